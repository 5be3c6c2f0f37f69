/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_GROUPS_H
#define NATIVE_GROUPS_H

#include <stdint.h>
#include <sys/types.h>

#include "cay/error.h"

enum { GROUPS_PATH = 224, GROUPS_V1 = 3 };

/* The cgroups of one sandbox: a cgroup2 directory, in which every command gets a leaf,
 * and for the limits either the same directory or one in each v1 controller. */
struct groups {
    char unified[GROUPS_PATH];       /* "" if there is no cgroup2 */
    char v1[GROUPS_V1][GROUPS_PATH]; /* "" past the last */
    char memory_events[GROUPS_PATH]; /* counts kills for the memory limit */
    unsigned layers;                 /* CAY_LAYER_MEMORY, _PIDS, _CPU */
};

struct groups_limits {
    uint64_t memory_bytes;
    uint32_t pids, cpu_percent;
};

/* Makes them and sets the limits.  On failure nothing is left. */
int groups_make(const char *id, const struct groups_limits *limits,
                struct groups *ret_groups, struct cay_error *err);

/* Puts a process that waits for us under the v1 limits; it is in cgroup2 by its birth. */
int groups_join(const struct groups *groups, pid_t pid, struct cay_error *err);

/* Kills whatever is in them and removes them; they may be gone already. */
void groups_remove(const struct groups *groups);

/* How often the memory limit has killed. */
uint64_t groups_memory_kills(const struct groups *groups);

#endif
