/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SUBREAPER_H
#define INIT_SUBREAPER_H

#include <stdbool.h>

#include "init/child.h"

/* Holding a command's tree together where no cgroup does it.
 *
 * Each command is started by a process of its own, its holder: a copy of us that adopts
 * whatever the command leaves behind, so that all of its tree is below the holder and
 * below no other.  To kill the tree is to kill the holder: what it held becomes our own
 * child, and whatever is our child and no holder dies, until there is none.
 *
 * Such a cgroup has the socket to its holder as `fd`. */

int subreaper_open(struct exec_cgroup *ret_cgroup);
void subreaper_close(struct exec_cgroup *cgroup);

/* As child_start() without a cgroup, in a holder that is started for it.  What becomes of
 * the child is heard of later, by the loop or here. */
pid_t subreaper_start(struct child *child, struct exec_cgroup *cgroup);
void subreaper_wait(const struct child *child, int timeout_ms);

/* A child of ours has died. */
void subreaper_reaped(pid_t pid);

int subreaper_kill(const struct exec_cgroup *cgroup);

/* Whether all of it is gone. */
bool subreaper_is_empty(const struct exec_cgroup *cgroup);

/* After anything may have happened, and whether there is more to do in a moment. */
void subreaper_update(void);
bool subreaper_is_busy(void);

/* Ends every tree, and returns when they are dead. */
void subreaper_end_all(void);

#endif
