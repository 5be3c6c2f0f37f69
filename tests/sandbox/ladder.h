/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LADDER_H
#define TESTS_LADDER_H

#include "ledger.h"
#include "ordinary.h"

/* The level that a test's other half, in a process of an ordinary user, is for. */
static enum cay_level level_here __attribute__((unused));

static inline cay_sandbox *make_on(enum cay_level level)
{
    const struct cay_sandbox_options options = {.size = sizeof options, .level = level};

    return make_sandbox(&options);
}

/* Calls `act` as somebody whose best level is this one. */
static inline void on_level(enum cay_level level, void (*act)(void))
{
    if (level == CAY_LEVEL_LANDLOCK)
        need_landlock();
    level_here = level;
    as_ordinary(ordinary_user(level == CAY_LEVEL_RANGE), act);
}

static inline void on_every_level(void (*act)(void))
{
    on_level(CAY_LEVEL_RANGE, act);
    on_level(CAY_LEVEL_SINGLE, act);
    on_level(CAY_LEVEL_LANDLOCK, act);
}

static struct cay_sandbox_info info __attribute__((unused));

static inline void look(cay_sandbox *sandbox)
{
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
}

/* "landlock ABI 7" for CAY_LAYER_LANDLOCK; "" if it is not enforced. */
static inline const char *by(unsigned layer)
{
    const char *found = "";

    for (size_t i = 0; i < info.enforced_count; i++)
        if (info.enforced[i].layer == layer)
            found = info.enforced[i].by;
    ASSERT_INT((info.layers & layer) != 0, *found != '\0');
    return found;
}

/* Processes of a user; those that are dead do not count. */
static inline size_t count_processes(uid_t uid)
{
    DIR *directory = opendir("/proc");
    size_t count = 0;

    ASSERT(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[300], line[256], state = 0;
        long owner = -1;
        snprintf(path, sizeof path, "/proc/%s/status", entry->d_name);
        FILE *status =
            entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        while (status && fgets(line, sizeof line, status))
            if (strncmp(line, "State:", 6) == 0)
                state = line[7];
            else if (strncmp(line, "Uid:", 4) == 0)
                owner = strtol(line + 4, NULL, 10);
        if (status)
            fclose(status);
        count += owner == (long)uid && state != 'Z' && state != 'X';
    }
    closedir(directory);
    return count;
}

/* What this user has running besides us: init and whatever is inside. */
static inline size_t count_others(void)
{
    return count_processes(getuid()) - 1;
}

#endif
