/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/cgroup-look.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "cay/sandbox.h"

enum { ROOM_SPARED = 64 }; /* this part of the memory limit */

static bool get(const char *directory, const char *file, char *text, size_t room)
{
    char path[GROUPS_PATH + 64];

    if (!*directory)
        return false;
    snprintf(path, sizeof path, "%s/%s", directory, file);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, room - 1);
    if (len < 0)
        return false;
    text[len] = '\0';
    return true;
}

/* The number at the start of a file, in whichever of the directories has it. */
static bool get_number(const struct groups *groups, const char *unified, const char *v1,
                       uint64_t *ret_value)
{
    char text[64];
    bool found = get(groups->unified, unified, text, sizeof text);

    for (size_t i = 0; !found && i < GROUPS_V1; i++)
        found = get(groups->v1[i], v1, text, sizeof text);
    if (found)
        *ret_value = strtoull(text, NULL, 10);
    return found;
}

static bool has_word(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* "name value" on a line of its own. */
static bool get_key(const char *directory, const char *file, const char *key,
                    uint64_t *ret_value)
{
    char text[8192];

    if (!get(directory, file, text, sizeof text))
        return false;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (has_word(line, key) && line[strlen(key)] == ' ') {
            *ret_value = strtoull(line + strlen(key), NULL, 10);
            return true;
        }
    }
    return false;
}

void groups_usage(const struct groups *groups, struct groups_usage *ret_usage)
{
    uint64_t pids = 0, frozen = 0;

    *ret_usage = (struct groups_usage){0};
    ret_usage->has_memory =
        get_number(groups, "memory.current", "memory.usage_in_bytes", &ret_usage->memory);
    ret_usage->has_pids = get_number(groups, "pids.current", "pids.current", &pids);
    ret_usage->pids = (uint32_t)pids;
    ret_usage->has_cpu =
        get_key(groups->unified, "cpu.stat", "usage_usec", &ret_usage->cpu_us);
    ret_usage->frozen =
        get_key(groups->unified, "work/cgroup.events", "frozen", &frozen) && frozen == 1;
}

/* What the kernel can take back from the cgroup without ending a process. */
static uint64_t read_cache(const struct groups *groups)
{
    uint64_t sum = 0, value;

    for (size_t i = 0; i <= GROUPS_V1; i++) {
        const char *directory = i < GROUPS_V1 ? groups->v1[i] : groups->unified;
        if (get_key(directory, "memory.stat", "inactive_file", &value))
            sum += value;
        if (get_key(directory, "memory.stat", "active_file", &value))
            sum += value;
    }
    return sum;
}

int groups_open_usage(const struct groups *groups)
{
    char path[GROUPS_PATH + 64];
    int fd = -1;

    for (size_t i = 0; i <= GROUPS_V1 && fd < 0; i++) {
        const char *directory = i ? groups->v1[i - 1] : groups->unified;
        snprintf(path, sizeof path, "%s/%s", directory,
                 i ? "memory.usage_in_bytes" : "memory.current");
        fd = *directory ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    }
    return fd;
}

bool groups_has_room(const struct groups *groups, int usage, uint64_t limit,
                     uint64_t bytes)
{
    char text[32];
    ssize_t len = pread(usage, text, sizeof text - 1, 0);

    if (len <= 0)
        return true;
    text[len] = '\0';
    uint64_t used = strtoull(text, NULL, 10);
    /* The kernel charges in batches, and others use memory meanwhile. */
    bytes += limit / ROOM_SPARED;
    if (used + bytes <= limit)
        return true;
    uint64_t cache = read_cache(groups);
    return used - (cache < used ? cache : used) + bytes <= limit;
}

static const struct {
    unsigned layer;
    const char *name, *unified, *v1;
} limits[] = {
    {CAY_LAYER_MEMORY, "memory", "memory.max", "memory.limit_in_bytes"},
    {CAY_LAYER_PIDS, "pids", "pids.max", "pids.max"},
    {CAY_LAYER_CPU, "cpu", "cpu.max", "cpu.cfs_quota_us"},
};

bool groups_keep(const struct groups *groups, unsigned layer, char *ret_by, size_t room)
{
    char text[64];

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (limits[i].layer != layer)
            continue;
        if (get(groups->unified, limits[i].unified, text, sizeof text) &&
            !has_word(text, "max")) {
            snprintf(ret_by, room, "cgroup v2 %s", limits[i].name);
            return true;
        }
        for (size_t j = 0; j < GROUPS_V1; j++)
            if (get(groups->v1[j], limits[i].v1, text, sizeof text) &&
                !has_word(text, "max") && !has_word(text, "-1")) {
                snprintf(ret_by, room, "cgroup v1 %s", limits[i].name);
                return true;
            }
    }
    return false;
}
