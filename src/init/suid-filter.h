/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SUID_FILTER_H
#define INIT_SUID_FILTER_H

#include "init/plan.h"

/* What we need to be able to do, and what we start must not: a second filter, which each
 * command puts on before it executes. */

void suid_filter_prepare(const struct plan *plan);

/* How many filters of ours a command has beyond those that we have: 0 or 1. */
unsigned suid_filter_count(void);

/* In the child, which may use no errno.  0 or an errno. */
int suid_filter_install(void);

#endif
