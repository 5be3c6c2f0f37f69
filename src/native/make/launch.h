/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_LAUNCH_H
#define NATIVE_MAKE_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"
#include "init/plan.h"
#include "init/setup.h"
#include "native/record/idmap.h"
#include "relay/collect.h"

/* A cay-init that is being started. */
struct launch {
    bool is_dumpable;    /* set by the caller beforehand: see sys/fsid.h */
    struct child *child; /* NULL: not started */
    int status;          /* socket for orders and reports; the caller closes it */
    int pidfd;           /* the caller closes it; -1 until launch_wait_clone() */
    pid_t pid;
    bool has_pid;
    bool mapping; /* newuidmap and newgidmap run */
    struct idmap_helpers helpers;
};

/* Starts to create a network for root's sandbox, a relayed one if requested.  Either
 * launch_begin() turns it into a cay-init, or launch_cancel() ends it; launch_cancel()
 * also accepts an unused launch, {0}. */
void launch_network(struct launch *launch, bool is_relayed);
void launch_cancel(struct launch *launch);

/* Starts cay-init in the cgroup `group` (-1: ours), as PID 1 of a new user and PID
 * namespace according to `kind`, and returns while it creates its other namespaces; it
 * then waits for orders.  It is not a child of this process.  `owner` owns the user
 * namespace (0: this process's user). */
int launch_begin(int group, enum setup_kind kind, uid_t owner, struct launch *launch,
                 struct cay_error *err);

/* Whether launch_wait_clone() returns without waiting. */
bool launch_is_cloned(const struct launch *launch);

/* Waits for the clone, and learns its pid and pidfd. */
int launch_wait_clone(struct launch *launch, struct cay_error *err);

/* Writes the uid and gid maps.  For newuidmap and newgidmap, launch_start_map() can start
 * them after launch_wait_clone(); launch_map() then waits for them. */
void launch_start_map(struct launch *launch, const struct idmap *map);
int launch_map(struct launch *launch, const struct idmap *map, struct cay_error *err);

/* Sends one of the two orders of plan.h, with the descriptors listed there. */
int launch_send(const struct launch *launch, const void *order, size_t len,
                const int *fds, size_t count, struct cay_error *err);

/* The sockets of a relayed network, which the caller closes; waits for cay-init if it
 * creates the network.  To be called before launch_wait(). */
int launch_sockets(const struct launch *launch, int ret_sockets[COLLECT_SOCKETS],
                   struct cay_error *err);

/* Waits until it is ready, or returns the error it reports.  With a connection on which
 * it has a request, until it replies there: that saves a wake-up. */
int launch_wait(const struct launch *launch, int connection, struct cay_error *err);

/* To be called after every successful launch_begin(); kills cay-init unless it is
 * ready. */
void launch_done(struct launch *launch, bool ready);

#endif
