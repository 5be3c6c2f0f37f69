/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_RUNNING_H
#define NATIVE_LAYER_RUNNING_H

#include <stddef.h>

#include "cay/sandbox.h"

#include "native/record/runtime.h"

/* The processes of a sandbox whose PID 1 is held, by its cgroup.  A prefork, which shares
 * PID 1's memory and has PID 1's root and working directory, does not count. */

/* How many run, or a negative errno. */
int running_count(const struct record *record);

/* Their pids on the host, which the caller frees; 0 or a negative errno. */
int running_list(const struct record *record, pid_t **ret_pids, size_t *ret_count);

/* Freezes them; 0 or a negative errno. -ETIMEDOUT: one cannot be frozen now.  The caller
 * calls running_thaw() in any case.  If this process dies, PID 1 thaws them. */
struct running_freezer {
    int control; /* locked, so that nothing pauses or resumes the sandbox meanwhile */
    bool was_frozen;
};
int running_freeze(const struct record *record, struct running_freezer *ret_freezer);
void running_thaw(struct running_freezer *freezer);

/* Kills these, or all, and waits.  As running_count(): more than 0 if some cannot die. */
int running_kill_some(const pid_t *pids, size_t count);
int running_kill(const struct record *record);

/* What a report shows of a process. */
void running_describe(pid_t pid, struct cay_ended *ret_ended);

#endif
