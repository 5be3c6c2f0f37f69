/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAUNCH_H
#define NATIVE_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"
#include "init/plan.h"

/* A cay-init on its way. */
struct launch {
    struct birth *birth;
    int status; /* socket: orders to it, reports from it; the caller's to close */
    int pidfd;  /* the caller's too; -1 until launch_meet() */
    pid_t pid;
    bool met;
};

/* Starts cay-init as PID 1 of a new user and PID namespace in the cgroup `leaf` (-1:
 * ours), and returns while it makes its other namespaces; it then waits for launch_go().
 * It is not our child.  `owner` is whose the user namespace is (0: ours). */
int launch_begin(int leaf, bool own_network, uid_t owner, struct launch *ret_launch,
                 struct cay_error *err);

/* Learns which process it is. */
int launch_meet(struct launch *launch, struct cay_error *err);

int launch_map(pid_t pid, uint32_t id_base, uint32_t id_count, struct cay_error *err);

/* Gives the order; the descriptors are those plan.h lists. */
int launch_go(const struct launch *launch, const struct plan_go *go, const int *fds,
              size_t count, struct cay_error *err);

/* Waits until it is ready, or says why it cannot be. */
int launch_wait(const struct launch *launch, struct cay_error *err);

/* In any case, once launch_begin() succeeded; kills it unless it is ready. */
void launch_done(struct launch *launch, bool ready);

#endif
