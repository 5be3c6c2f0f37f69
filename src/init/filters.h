/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_FILTERS_H
#define INIT_FILTERS_H

#include "init/plan.h"

/* Counts the seccomp filters that programs inside install.  The kernel's memory for them
 * is charged to no cgroup, and all filters of the machine share one limit, above which no
 * sandbox can be created: a sandbox may have FILTERS_MAX at a time. */
enum { FILTERS_MAX = 128 };

/* Serves the listener of confine.h from now on. */
void filters_prepare(const struct plan *plan);

#endif
