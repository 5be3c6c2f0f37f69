/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_GROUPS_H
#define NATIVE_GROUPS_H

#include <limits.h>
#include <stdint.h>

#include "cay/error.h"
#include "init/plan.h"

/* The cgroups of one sandbox: a cgroup2 directory, in which every command gets a leaf,
 * and for the limits either the same directory or one in each v1 controller. */
struct groups {
    char unified[PATH_MAX];             /* "" if there is no cgroup2 */
    char v1[PLAN_GROUPS_MAX][PATH_MAX]; /* "" past the last */
    char memory_events[PATH_MAX];       /* counts kills for the memory limit */
    unsigned layers;                    /* CAY_LAYER_MEMORY, _PIDS, _CPU */
};

struct groups_limits {
    uint64_t memory_bytes;
    uint32_t pids, cpu_percent;
};

/* Makes them and sets the limits.  On failure nothing is left. */
int groups_make(const char *id, const struct groups_limits *limits,
                struct groups *ret_groups, struct cay_error *err);

/* Kills whatever is in them and removes them; they may be gone already. */
void groups_remove(const struct groups *groups);

#endif
