/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_CGROUP_LOOK_H
#define NATIVE_RECORD_CGROUP_LOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "native/record/cgroup.h"

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
