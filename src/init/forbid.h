/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_FORBID_H
#define INIT_FORBID_H

#include "init/plan.h"

/* What we need to be able to do, and what we start must not: a second filter, which each
 * command puts on before it executes. */

void forbid_prepare(const struct plan *plan);

/* How many filters of ours a command has beyond those that we have: 0 or 1. */
unsigned forbid_filters(void);

/* In the child, which may use no errno.  0 or an errno. */
int forbid_it(void);

#endif
