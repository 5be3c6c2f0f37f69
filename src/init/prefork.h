/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PREFORK_H
#define INIT_PREFORK_H

#include "init/child.h"

/* Kept ready for the next command: empty cgroups, and a child.
 *
 * After a foreground command, which is most often followed by another, a child is cloned
 * in advance.  It waits in its own cgroup for one second; an idle sandbox has none.  If
 * root inside kills it, the next command starts with a clone instead. */

int prefork_take_cgroup(struct exec_cgroup *ret_cgroup); /* 0 or a negative errno */
void prefork_keep_cgroup(struct exec_cgroup *cgroup); /* must be empty and never killed */

/* The child that waits for its request, or NULL.  It stays the caller's to fill in until
 * prefork_take() releases it. */
struct child *prefork_child(void);
pid_t prefork_take(struct exec_cgroup *ret_cgroup);

/* Its pid, to be left out of process lists; 0: none. */
pid_t prefork_pid(void);

/* prefork_want() requests a child; the loop makes it when it is idle. */
void prefork_want(void);
void prefork_cancel(void);
bool prefork_is_wanted(void);
void prefork_make(void);

/* True if `pid` was the preforked child. */
bool prefork_reaped(pid_t pid);

/* Kills it when its second is over; prefork_next_ns() is when. */
void prefork_update(void);
uint64_t prefork_next_ns(void);

#endif
