/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SUBREAPER_H
#define INIT_SUBREAPER_H

#include <stdbool.h>

#include "init/child.h"

/* Tracks the processes of a command where there is no cgroup for it.
 *
 * Each command is started by its own subreaper: a fork of PID 1 with
 * PR_SET_CHILD_SUBREAPER, which adopts every orphan of the command, so that the whole
 * tree is below it and below no other.  To kill the tree, PID 1 kills the subreaper,
 * inherits its processes, and kills every child that is not a subreaper until there is
 * none.
 *
 * The `fd` of such an exec cgroup is the socket to the subreaper. */

int subreaper_open(struct exec_cgroup *ret_cgroup);
void subreaper_close(struct exec_cgroup *cgroup);

/* Like child_start() without a cgroup, in a subreaper that is started for it.  What
 * becomes of the child is reported later, to the loop or to subreaper_wait(). */
pid_t subreaper_start(struct child *child, struct exec_cgroup *cgroup);
void subreaper_wait(const struct child *child, int timeout_ms);

/* A child of PID 1 has exited. */
void subreaper_reaped(pid_t pid);

int subreaper_kill(const struct exec_cgroup *cgroup);

/* Whether the whole tree is gone. */
bool subreaper_is_empty(const struct exec_cgroup *cgroup);

/* Called after every round of events; subreaper_is_busy(): call it again soon. */
void subreaper_update(void);
bool subreaper_is_busy(void);

/* Kills every tree and returns when all are dead. */
void subreaper_end_all(void);

#endif
