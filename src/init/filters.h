/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_FILTERS_H
#define INIT_FILTERS_H

#include "init/plan.h"

/* Counts the seccomp filters that programs inside install.  The kernel's memory for them
 * is in no cgroup, and what the whole machine may use for them has one limit, above which
 * no sandbox can be created: a sandbox may have FILTERS_MAX at a time. */
enum { FILTERS_MAX = 128 };

/* Answers the listener of lock.h from now on. */
void filters_prepare(const struct plan *plan);

#endif
