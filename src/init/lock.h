/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_LOCK_H
#define INIT_LOCK_H

#include "init/plan.h"

/* What root inside may have, as bits: nothing here, or for it, needs more. */
uint64_t lock_capabilities(void);

/* Gives up what nothing inside may have, and installs landlock and seccomp. */
void lock_the_door(const struct plan *plan);

/* A landlock ruleset that each command puts on before it executes, or -1. */
int lock_ruleset(void);

#endif
