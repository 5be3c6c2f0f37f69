/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PREFORK_H
#define INIT_PREFORK_H

#include "init/child.h"

/* What is kept ready for the next command: leaves, and a child.
 *
 * After a command in the foreground, which most often means that there will be another, a
 * child is cloned for that one beforehand.  It waits in a cgroup of its own for a second;
 * an idle sandbox has none.  Whoever is root inside can kill it, which does no more harm
 * than to make the next command start the long way. */

int prefork_take_cgroup(struct exec_cgroup *ret_cgroup); /* 0 or a negative errno */
void prefork_keep_cgroup(struct exec_cgroup *cgroup);    /* empty, and never killed */

/* The child that waits for its request; NULL if there is none.  It stays one until it is
 * taken, and then has its request. */
struct child *prefork_child(void);
pid_t prefork_take(struct exec_cgroup *ret_cgroup);

/* Its pid, for who lists processes; 0 if there is none. */
pid_t prefork_pid(void);

/* Makes one when there is nothing better to do. */
void prefork_want(void);
bool prefork_is_wanted(void);
void prefork_make(void);

/* True if that was the one. */
bool prefork_reaped(pid_t pid);

/* Ends it when its time is over, and when that is. */
void prefork_update(void);
uint64_t prefork_next_ns(void);

#endif
