/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_HOLD_H
#define INIT_HOLD_H

#include <stdbool.h>

#include "init/command.h"

/* Holding a command's tree together where no cgroup does it.
 *
 * Each command is started by a process of its own, its holder: a copy of us that adopts
 * whatever the command leaves behind, so that all of its tree is below the holder and
 * below no other.  To kill the tree is to kill the holder: what it held becomes our own
 * child, and whatever is our child and no holder dies, until there is none.
 *
 * Such a leaf has the socket to its holder as `fd`. */

int hold_open(struct leaf *ret_leaf);
void hold_close(struct leaf *leaf);

/* As birth_begin() without a leaf, in a holder that is started for it.  What becomes of
 * the birth is heard of later, by the loop or here. */
pid_t hold_begin(struct birth *birth, struct leaf *leaf);
void hold_wait(const struct birth *birth, int timeout_ms);

/* A child of ours has died. */
void hold_reaped(pid_t pid);

int hold_kill(const struct leaf *leaf);

/* Whether all of it is gone. */
bool hold_is_empty(const struct leaf *leaf);

/* After anything may have happened, and whether there is more to do in a moment. */
void hold_tend(void);
bool hold_is_busy(void);

/* Ends every tree, and returns when they are dead. */
void hold_end_all(void);

#endif
