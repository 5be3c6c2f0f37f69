/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SUID_FILTER_H
#define INIT_SUID_FILTER_H

#include "init/plan.h"

/* A second seccomp filter that each command installs before execve: it forbids what PID 1
 * itself needs. */

void suid_filter_prepare(const struct plan *plan);

/* How many filters a command has in addition to PID 1's: 0 or 1. */
unsigned suid_filter_count(void);

/* Called in the child, which must not use errno. 0 or an errno. */
int suid_filter_install(void);

#endif
