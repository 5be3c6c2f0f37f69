/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/subids.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* "name:first:count"; false for what is not a line of that form. */
static bool parse(char *line, const char **ret_name, struct subids *ret_subids)
{
    char *first = strchr(line, ':');
    char *count = first ? strchr(first + 1, ':') : NULL;
    char *end;

    if (!count)
        return false;
    *first++ = '\0';
    *count++ = '\0';
    unsigned long long from = strtoull(first, &end, 10);
    if (end == first || *end || from > UINT32_MAX)
        return false;
    unsigned long long many = strtoull(count, &end, 10);
    if (end == count || (*end && *end != '\n') || many > UINT32_MAX - from)
        return false;
    *ret_name = line;
    *ret_subids = (struct subids){(uint32_t)from, (uint32_t)many};
    return true;
}

const char *subids_user(char *name, size_t room)
{
    char text[4096];
    struct passwd entry, *found = NULL;

    if (getpwuid_r(getuid(), &entry, text, sizeof text, &found) == 0 && found)
        snprintf(name, room, "%s", found->pw_name);
    else
        snprintf(name, room, "%u", (unsigned)getuid());
    return name;
}

/* Calls `visit` with each line until it returns false. */
static void read_lines(const char *file,
                       bool (*visit)(const char *name, struct subids ids, void *cookie),
                       void *cookie)
{
    FILE *stream = fopen(file, "re");
    struct subids ids;
    const char *name;
    char line[512];

    while (stream && fgets(line, sizeof line, stream))
        if (parse(line, &name, &ids) && !visit(name, ids, cookie))
            break;
    if (stream)
        fclose(stream);
}

struct search {
    char name[64], number[16]; /* lines may have either */
    struct subids best;
};

static bool keep_longest(const char *name, struct subids ids, void *cookie)
{
    struct search *search = cookie;

    if (ids.count > search->best.count &&
        (strcmp(name, search->name) == 0 || strcmp(name, search->number) == 0))
        search->best = ids;
    return true;
}

bool subids_own(const char *file, struct subids *ret_subids)
{
    struct search search = {.best = {0}};

    (void)subids_user(search.name, sizeof search.name);
    snprintf(search.number, sizeof search.number, "%u", (unsigned)getuid());
    read_lines(file, keep_longest, &search);
    *ret_subids = search.best;
    return search.best.count > 0;
}

static bool stop_at_overlap(const char *name, struct subids ids, void *cookie)
{
    struct subids *run = cookie;

    (void)name;
    if (ids.first < run->first + run->count && run->first < ids.first + ids.count)
        run->count = 0;
    return run->count > 0;
}

bool subids_overlap(const char *file, uint32_t first, uint32_t count)
{
    struct subids run = {first, count};

    read_lines(file, stop_at_overlap, &run);
    return run.count == 0;
}

static bool keep_end(const char *name, struct subids ids, void *cookie)
{
    uint32_t *end = cookie;

    (void)name;
    if (ids.first + ids.count > *end)
        *end = ids.first + ids.count;
    return true;
}

uint32_t subids_free_from(void)
{
    uint32_t end = 100000;

    read_lines(SUBIDS_USERS, keep_end, &end);
    read_lines(SUBIDS_GROUPS, keep_end, &end);
    return end;
}

const char *subids_program(const char *name)
{
    static const char *const places[][2] = {
        {"/usr/bin/newuidmap", "/usr/bin/newgidmap"},
        {"/usr/local/bin/newuidmap", "/usr/local/bin/newgidmap"},
        {"/run/wrappers/bin/newuidmap", "/run/wrappers/bin/newgidmap"},
    };
    bool groups = strcmp(name, "newgidmap") == 0;
    struct stat st;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (stat(places[i][groups], &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0 &&
            access(places[i][groups], X_OK) == 0)
            return places[i][groups];
    return NULL;
}

const char *subids_obstacle(const char *program)
{
    struct statvfs mount;
    struct stat st;

    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        return "this process may gain no privileges (no_new_privs)";
    if (statvfs(program, &mount) == 0 && mount.f_flag & ST_NOSUID)
        return "it lies on a file system mounted nosuid";
    if (stat(program, &st) != 0 ||
        (!(st.st_mode & S_ISUID) &&
         getxattr(program, "security.capability", NULL, 0) <= 0))
        return "it is neither setuid nor has file capabilities";
    return NULL;
}
