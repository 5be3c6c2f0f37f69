/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PREFORK_H
#define INIT_PREFORK_H

#include "init/child.h"

/* Kept ready for the next command: empty cgroups, and a child.
 *
 * After a foreground command, which is most often followed by another, a child is cloned
 * in advance.  It waits in its own cgroup for one second; an idle sandbox has none.  If
 * root inside kills it, the next command starts with a clone instead.
 *
 * A spare of a pool has one for as long as it waits to be claimed.  A sandbox may end
 * right after its first command, so after that one the child is cloned a moment later. */

int prefork_take_cgroup(struct exec_cgroup *ret_cgroup); /* 0 or a negative errno */
void prefork_keep_cgroup(struct exec_cgroup *cgroup); /* must be empty and never killed */

/* The child that waits for its request, or NULL.  It stays the caller's to fill in until
 * prefork_take() releases it. */
struct child *prefork_child(void);
pid_t prefork_take(struct exec_cgroup *ret_cgroup);

/* Its pid, to be left out of process lists; 0: none. */
pid_t prefork_pid(void);

/* prefork_want() requests a child; the loop makes it when it is idle and it is due. */
void prefork_want(uint64_t after_ms);
void prefork_cancel(void);
bool prefork_is_wanted(void);
bool prefork_is_due(void);
void prefork_make(void);

/* Gives the child that waits, or is made next, its second or no limit. */
void prefork_set_limited(bool is_limited);

/* True if `pid` was the preforked child. */
bool prefork_reaped(pid_t pid);

/* Kills it when its second is over; prefork_end_ns() is when.  prefork_due_ns() is when
 * one is to be made. */
void prefork_update(void);
uint64_t prefork_end_ns(void);
uint64_t prefork_due_ns(void);

#endif
