/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_LAUNCH_H
#define NATIVE_MAKE_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"
#include "init/plan.h"
#include "init/setup.h"
#include "native/record/idmap.h"

/* A cay-init on its way. */
struct launch {
    bool is_dumpable;    /* the caller's to say, before anything: see sys/fsid.h */
    struct child *child; /* NULL: nothing has begun */
    int status; /* socket: orders to it, reports from it; the caller's to close */
    int pidfd;  /* the caller's too; -1 until launch_wait_clone() */
    pid_t pid;
    bool has_pid;
    bool mapping; /* helpers are at work */
    struct idmap_helpers helpers;
};

/* Begins to make a network for it, where we are root.  It is to become a cay-init by
 * launch_begin(), or to be given up by launch_cancel(), which is also for a launch that
 * never began: {0}. */
void launch_network(struct launch *launch);
void launch_cancel(struct launch *launch);

/* Starts cay-init in the cgroup `group` (-1: ours), as PID 1 of a new user and PID
 * namespace if there are to be any, and returns while it makes its other namespaces; it
 * then waits for orders.  It is not our child.  `owner` is whose the user namespace
 * is (0: ours). */
int launch_begin(int group, enum setup_kind kind, uid_t owner, struct launch *launch,
                 struct cay_error *err);

/* Whether it can be met without waiting for it. */
bool launch_is_cloned(const struct launch *launch);

/* Learns which process it is. */
int launch_wait_clone(struct launch *launch, struct cay_error *err);

/* Writes the map.  Where helpers do it, launch_start_map() may start them as soon as it
 * was met; launch_map() then waits for them. */
void launch_start_map(struct launch *launch, const struct idmap *map);
int launch_map(struct launch *launch, const struct idmap *map, struct cay_error *err);

/* Gives one of the two orders of plan.h; the descriptors are those it lists. */
int launch_send(const struct launch *launch, const void *order, size_t len,
                const int *fds, size_t count, struct cay_error *err);

/* Waits until it is ready, or says why it cannot be. */
int launch_wait(const struct launch *launch, struct cay_error *err);

/* In any case, once launch_begin() succeeded; kills it unless it is ready. */
void launch_done(struct launch *launch, bool ready);

#endif
