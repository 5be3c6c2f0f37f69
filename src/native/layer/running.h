/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_RUNNING_H
#define NATIVE_LAYER_RUNNING_H

#include "native/record/runtime.h"

/* The processes of a sandbox whose PID 1 is held, by its cgroup.  A prefork, which shares
 * PID 1's memory and has PID 1's root and working directory, does not count. */

/* How many run, or a negative errno. */
int running_count(const struct record *record);

/* Kills them and waits.  The same result: more than 0 if some cannot die. */
int running_kill(const struct record *record);

#endif
