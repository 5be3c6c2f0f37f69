/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_REMOVE_H
#define NATIVE_RECORD_REMOVE_H

#include "native/record/runtime.h"

/* Ends the sandbox and removes everything it has.  `pidfd` is of its init, or -1.  If
 * some process cannot be ended now, the record stays so that the next collect tries
 * again. */
int record_remove(const struct record *record, int pidfd, struct cay_error *err);

/* The first half of that: ends init without waiting.  *ret_pidfd is of init, or -1 if it
 * has ended. */
int record_kill_init(const struct record *record, int *ret_pidfd, struct cay_error *err);

/* record_remove() for a sandbox whose record cannot be read; the caller holds its lock.
 */
int record_remove_damaged(const char *id, struct cay_error *err);

/* Kills init and waits for its end; false if that takes too long. */
bool record_stop_init(const struct record *record, int pidfd);

int record_fail_end(const struct record *record, int error, struct cay_error *err);

/* A sandbox whose record cannot be read.  Its parts carry its id, so they are found
 * without the record: the control socket and the uid range in the runtime directory, the
 * cgroups by their name, its disk and its home; and by these its processes. */

/* Fills in what can be found out, for record_remove(): the rest is 0.  1 if processes of
 * the sandbox run, 0 if none do, negative if that cannot be told now. */
int record_recover(const char *id, struct record *ret_record);

/* Sends SIGKILL to all of its processes that can be found but PID 1, and waits for their
 * end.  0, or -EBUSY if some take their time, or another negative errno. */
int record_kill_processes(const struct record *record);

#endif
