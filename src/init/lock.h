/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_LOCK_H
#define INIT_LOCK_H

#include <sys/resource.h>

#include "init/plan.h"

/* What root inside may have, as bits: nothing here, or for it, needs more. */
uint64_t lock_capabilities(void);

/* Takes from commands to come what they may never have.  We keep it for now. */
void lock_commands(void);

/* Gives up what nothing inside may have, and installs landlock and seccomp. */
void lock_the_door(const struct plan *plan);

/* Instead, where commands are the caller's own: they have what the caller has, but if
 * that is not root they get no more by set-user-id programs, which we could not kill. */
void lock_nothing(const struct plan *plan);

/* The open files that commands may have where we may have more, or NULL. */
const struct rlimit *lock_files(void);

/* A landlock ruleset that each command puts on before it executes, or -1. */
int lock_ruleset(void);

#endif
