/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_CGROUP_H
#define NATIVE_RECORD_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cay/error.h"

enum { CGROUP_PATH = 224, CGROUP_V1 = 3 };

/* The cgroups of one sandbox: a cgroup2 directory, in which every command gets a
 * cgroup of its own, and for the limits either the same directory or one in each v1
 * controller. */
struct cgroup {
    char unified[CGROUP_PATH];       /* "" if there is no cgroup2 */
    char v1[CGROUP_V1][CGROUP_PATH]; /* "" where there is none */
    char memory_events[CGROUP_PATH]; /* counts kills for the memory limit */
    char
        pids_events[CGROUP_PATH]; /* counts forks that failed because of the pids limit */
    unsigned layers;              /* CAY_LAYER_MEMORY, _PIDS, _CPU */
};

struct cgroup_limits {
    uint64_t memory_bytes;
    uint32_t pids, cpu_percent;
};

/* Computes the paths without creating anything, so that they can be recorded first.
 * Paths are "" where this user may not create cgroups. */
int cgroup_name(const char *id, const struct cgroup_limits *limits,
                struct cgroup *ret_cgroup, struct cay_error *err);

/* The mount point of the v1 controller `which`, or of cgroup2 for CGROUP_V1: 1; 0 if it
 * is not mounted; negative if that is unknown. */
int cgroup_find_mount(size_t which, char ret_path[CGROUP_PATH]);

/* The limits that cgroup_set_limits() will be able to set: CAY_LAYER_MEMORY, _PIDS,
 * _CPU. */
unsigned cgroup_preview_layers(const struct cgroup *cgroup,
                               const struct cgroup_limits *limits);

/* cgroup_create() creates the cgroup2 directory; *ret_fd is an O_PATH descriptor of it
 * (-1 if there is none).  cgroup_set_limits() creates the v1 cgroups and sets all
 * limits. */
int cgroup_create(const struct cgroup *cgroup, int *ret_fd, struct cay_error *err);
int cgroup_set_limits(struct cgroup *cgroup, const struct cgroup_limits *limits,
                      struct cay_error *err);

/* Other values for the limits that were set, while the sandbox runs. */
int cgroup_change_limits(const struct cgroup *cgroup, const struct cgroup_limits *limits,
                         struct cay_error *err);

/* The "tasks" files of the v1 cgroups, in ret_fds, with -1 after the last.  A thread that
 * writes "0" moves only itself, which takes no lock; moving another process, or a whole
 * thread group, waits milliseconds for an RCU grace period. */
int cgroup_open_tasks(const struct cgroup *cgroup, int ret_fds[CGROUP_V1],
                      struct cay_error *err);

/* Removes the cgroups of commands that have ended. */
void cgroup_remove_execs(const struct cgroup *cgroup);

/* Kills all processes in the cgroups and removes these; they may be gone already.
 * Negative if something is left: -EBUSY if a killed process has not ended yet. */
int cgroup_remove(const struct cgroup *cgroup);

/* Usage as the kernel reports it now. */
struct cgroup_usage {
    uint64_t memory, cpu_us;
    uint32_t pids;
    bool has_memory, has_cpu, has_pids; /* which of them are accounted */
    bool frozen;
};

void cgroup_usage(const struct cgroup *cgroup, struct cgroup_usage *ret_usage);

/* Whether the kernel has a limit for CAY_LAYER_MEMORY, _PIDS or _CPU, and which
 * controller enforces it: "cgroup v1 memory". */
bool cgroup_has_limit(const struct cgroup *cgroup, unsigned layer, char *ret_by,
                      size_t room);

/* Finds the cgroups of a sandbox by name in all hierarchies; "" where there is none.
 * Negative if there are too few descriptors or too little memory to search. */
int cgroup_find(const char *id, struct cgroup *ret_cgroup);

/* Calls `visit` for each process in the cgroups and below.  Negative if some could not be
 * listed. */
int cgroup_visit_pids(const struct cgroup *cgroup, void (*visit)(pid_t pid, void *cookie),
                      void *cookie);

/* Opens the file with the current memory usage, or returns -1. */
int cgroup_open_usage(const struct cgroup *cgroup);

/* Whether a file of so many bytes fits into the memory limit, assuming that the kernel
 * drops cached pages of files on disk.  `usage` is the descriptor of
 * cgroup_open_usage(). */
bool cgroup_has_room(const struct cgroup *cgroup, int usage, uint64_t limit,
                     uint64_t bytes);

#endif
