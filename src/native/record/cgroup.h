/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_CGROUP_H
#define NATIVE_RECORD_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cay/error.h"

enum { CGROUP_PATH = 224, CGROUP_V1 = 3 };

/* The cgroups of one sandbox: a cgroup2 directory, in which every command gets a leaf,
 * and for the limits either the same directory or one in each v1 controller. */
struct cgroup {
    char unified[CGROUP_PATH];       /* "" if there is no cgroup2 */
    char v1[CGROUP_V1][CGROUP_PATH]; /* "" where there is none */
    char memory_events[CGROUP_PATH]; /* counts kills for the memory limit */
    char pids_events[CGROUP_PATH];   /* counts what was not started for that of pids */
    unsigned layers;                 /* CAY_LAYER_MEMORY, _PIDS, _CPU */
};

struct cgroup_limits {
    uint64_t memory_bytes;
    uint32_t pids, cpu_percent;
};

/* Where they will be, before any of them exists, so that it can be written down.  Where
 * this user may make none there is none. */
int cgroup_name(const char *id, const struct cgroup_limits *limits,
                struct cgroup *ret_cgroup, struct cay_error *err);

/* Where the v1 controller `which`, or for CGROUP_V1 cgroup2, is mounted: 1, 0 if it is
 * not, or negative if that cannot be told now. */
int cgroup_find_mount(size_t which, char ret_path[CGROUP_PATH]);

/* Those of the limits that cgroup_set_limits() will set: CAY_LAYER_MEMORY, _PIDS, _CPU.
 */
unsigned cgroup_preview_layers(const struct cgroup *cgroup,
                               const struct cgroup_limits *limits);

/* Makes the cgroup2 one, of which *ret_group is an O_PATH descriptor (-1 if there is
 * none); then the rest, with the limits. */
int cgroup_create(const struct cgroup *cgroup, int *ret_fd, struct cay_error *err);
int cgroup_set_limits(struct cgroup *cgroup, const struct cgroup_limits *limits,
                      struct cay_error *err);

/* The "tasks" files of the v1 groups, in ret_fds, -1 past the last.  A process that
 * writes "0" to them moves itself, alone, which takes no lock; moving another, or a whole
 * thread group, waits milliseconds for every processor after a pause. */
int cgroup_open_tasks(const struct cgroup *cgroup, int ret_fds[CGROUP_V1],
                      struct cay_error *err);

/* Removes those of commands that have ended. */
void cgroup_remove_execs(const struct cgroup *cgroup);

/* Kills whatever is in them and removes them; they may be gone already.  Negative if
 * something is left: EBUSY if it is killed and takes its time, else what kept us from it.
 */
int cgroup_remove(const struct cgroup *cgroup);

/* What the kernel says of a sandbox's cgroups, now. */
struct cgroup_usage {
    uint64_t memory, cpu_us;
    uint32_t pids;
    bool has_memory, has_cpu, has_pids; /* which of them it counts */
    bool frozen;
};

void cgroup_usage(const struct cgroup *cgroup, struct cgroup_usage *ret_usage);

/* Whether a limit is set there for CAY_LAYER_MEMORY, _PIDS or _CPU, and by what: "cgroup
 * v1 memory". */
bool cgroup_has_limit(const struct cgroup *cgroup, unsigned layer, char *ret_by,
                      size_t room);

/* The cgroups of a sandbox by their name, wherever its maker was; "" where there is none.
 * Negative if too few files or too little memory are left to look. */
int cgroup_find(const char *id, struct cgroup *ret_cgroup);

/* Calls `visit` for each process in them and below.  Negative if not all could be listed.
 */
int cgroup_visit_pids(const struct cgroup *cgroup, void (*visit)(pid_t pid, void *cookie),
                      void *cookie);

/* The file that tells how much memory they use, or -1. */
int cgroup_open_usage(const struct cgroup *cgroup);

/* Whether so many bytes of a file in memory fit into the memory limit, after the kernel
 * has dropped cached pages of files on disk.  `usage` is the file above. */
bool cgroup_has_room(const struct cgroup *cgroup, int usage, uint64_t limit,
                     uint64_t bytes);

#endif
