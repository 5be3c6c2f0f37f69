/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAUNCH_H
#define NATIVE_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"

/* What goes into a new init; plan.h names the numbers they have there. */
struct launch {
    int plan, status, listen, cgroup; /* descriptors; cgroup -1: there is none */
    int leaf;                         /* the cgroup it is born into, or -1 */
};

/* Starts cay-init as PID 1 of a new user and PID namespace and returns while it makes its
 * other namespaces; it then waits for launch_go().  It is not our child. */
int launch_init(const struct launch *launch, pid_t *ret_pid, int *ret_pidfd,
                struct cay_error *err);

int launch_map(pid_t pid, uint32_t id_base, uint32_t id_count, struct cay_error *err);

/* Hands the mounts over. */
int launch_go(int status, const int *fds, size_t count, struct cay_error *err);

/* Waits until it is ready, or says why it cannot be. */
int launch_wait(int status, struct cay_error *err);

#endif
