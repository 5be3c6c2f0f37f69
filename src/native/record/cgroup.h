/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_CGROUP_H
#define NATIVE_RECORD_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cay/error.h"

enum { GROUPS_PATH = 224, GROUPS_V1 = 3 };

/* The cgroups of one sandbox: a cgroup2 directory, in which every command gets a leaf,
 * and for the limits either the same directory or one in each v1 controller. */
struct groups {
    char unified[GROUPS_PATH];       /* "" if there is no cgroup2 */
    char v1[GROUPS_V1][GROUPS_PATH]; /* "" where there is none */
    char memory_events[GROUPS_PATH]; /* counts kills for the memory limit */
    char pids_events[GROUPS_PATH];   /* counts what was not started for that of pids */
    unsigned layers;                 /* CAY_LAYER_MEMORY, _PIDS, _CPU */
};

struct groups_limits {
    uint64_t memory_bytes;
    uint32_t pids, cpu_percent;
};

/* Where they will be, before any of them exists, so that it can be written down.  Where
 * this user may make none there is none. */
int groups_name(const char *id, const struct groups_limits *limits,
                struct groups *ret_groups, struct cay_error *err);

/* Where the v1 controller `which`, or for GROUPS_V1 cgroup2, is mounted: 1, 0 if it is
 * not, or negative if that cannot be told now. */
int groups_mount(size_t which, char ret_path[GROUPS_PATH]);

/* Those of the limits that groups_limit() will set: CAY_LAYER_MEMORY, _PIDS, _CPU. */
unsigned groups_promise(const struct groups *groups, const struct groups_limits *limits);

/* Makes the cgroup2 one, of which *ret_group is an O_PATH descriptor (-1 if there is
 * none); then the rest, with the limits. */
int groups_begin(const struct groups *groups, int *ret_group, struct cay_error *err);
int groups_limit(struct groups *groups, const struct groups_limits *limits,
                 struct cay_error *err);

/* The "tasks" files of the v1 groups, in ret_fds, -1 past the last.  A process that
 * writes "0" to them moves itself, alone, which takes no lock; moving another, or a whole
 * thread group, waits milliseconds for every processor after a pause. */
int groups_open_tasks(const struct groups *groups, int ret_fds[GROUPS_V1],
                      struct cay_error *err);

/* Removes those of commands that have ended. */
void groups_clear(const struct groups *groups);

/* Kills whatever is in them and removes them; they may be gone already.  Negative if
 * something is left: EBUSY if it is killed and takes its time, else what kept us from it.
 */
int groups_remove(const struct groups *groups);

/* What the kernel says of a sandbox's cgroups, now. */
struct groups_usage {
    uint64_t memory, cpu_us;
    uint32_t pids;
    bool has_memory, has_cpu, has_pids; /* which of them it counts */
    bool frozen;
};

void groups_usage(const struct groups *groups, struct groups_usage *ret_usage);

/* Whether a limit is set there for CAY_LAYER_MEMORY, _PIDS or _CPU, and by what: "cgroup
 * v1 memory". */
bool groups_keep(const struct groups *groups, unsigned layer, char *ret_by, size_t room);

/* The cgroups of a sandbox by their name, wherever its maker was; "" where there is none.
 * Negative if too few files or too little memory are left to look. */
int groups_find(const char *id, struct groups *ret_groups);

/* Calls `visit` for each process in them and below.  Negative if not all could be listed.
 */
int groups_visit(const struct groups *groups, void (*visit)(pid_t pid, void *cookie),
                 void *cookie);

/* The file that tells how much memory they use, or -1. */
int groups_open_usage(const struct groups *groups);

/* Whether so many bytes of a file in memory fit into the memory limit, after the kernel
 * has dropped cached pages of files on disk.  `usage` is the file above. */
bool groups_has_room(const struct groups *groups, int usage, uint64_t limit,
                     uint64_t bytes);

#endif
