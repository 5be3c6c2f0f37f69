/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_GROUPS_LOOK_H
#define NATIVE_GROUPS_LOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/native/groups.h"

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

#endif
