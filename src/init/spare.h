/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SPARE_H
#define INIT_SPARE_H

#include "init/command.h"

/* What is kept ready for the next command: leaves, and a child.
 *
 * After a command in the foreground, which most often means that there will be another, a
 * child is cloned for that one beforehand.  It waits in a leaf of its own for a second;
 * an idle sandbox has none.  Whoever is root inside can kill it, which does no more harm
 * than to make the next command start the long way. */

int spare_take_leaf(struct leaf *ret_leaf); /* 0 or a negative errno */
void spare_keep_leaf(struct leaf *leaf);    /* empty, and never killed */

/* The child that waits for its request; NULL if there is none.  It stays one until it is
 * taken, and then has its request. */
struct birth *spare_birth(void);
pid_t spare_take(struct leaf *ret_leaf);

/* Its pid, for who lists processes; 0 if there is none. */
pid_t spare_pid(void);

/* Makes one when there is nothing better to do. */
void spare_want(void);
bool spare_is_wanted(void);
void spare_make(void);

/* True if that was the one. */
bool spare_reaped(pid_t pid);

/* Ends it when its time is over, and when that is. */
void spare_tend(void);
uint64_t spare_next_ns(void);

#endif
