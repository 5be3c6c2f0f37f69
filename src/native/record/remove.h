/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_REMOVE_H
#define NATIVE_RECORD_REMOVE_H

#include "native/record/runtime.h"

/* Ends the sandbox and removes all its resources.  `pidfd` refers to its init, or is -1.
 * If a process cannot be ended now, the record stays, so that the next collect tries
 * again. */
int record_remove(const struct record *record, int pidfd, struct cay_error *err);

/* The first step of record_remove(): kills init without waiting.  *ret_pidfd refers to
 * init, or is -1 if it has ended. */
int record_kill_init(const struct record *record, int *ret_pidfd, struct cay_error *err);

/* Waits until it has ended; false if that takes too long. */
bool record_wait_init(int pidfd);

/* record_remove() for a sandbox whose record cannot be read; the caller holds its
 * lock. */
int record_remove_damaged(const char *id, struct cay_error *err);

/* Kills init and waits until it has ended; false if that takes too long. */
bool record_stop_init(const struct record *record, int pidfd);

int record_fail_end(const struct record *record, int error, struct cay_error *err);

/* A sandbox whose record cannot be read.  Its resources are found by its id: the control
 * socket and the uid range in the runtime directory, the cgroups, the disk and the home;
 * its processes are found by these. */

/* Fills in what is found, for record_remove(); the rest is 0.  1 if processes of the
 * sandbox run, 0 if none do, negative if that is unknown. */
int record_recover(const char *id, struct record *ret_record);

/* Sends SIGKILL to all processes that are found except PID 1, and waits until they have
 * ended.  0, -EBUSY if some have not ended in time, or another negative errno. */
int record_kill_processes(const struct record *record);

enum { HOME_PATH = 64 };

/* SANDBOX_HOME: the only directory that a sandbox isolated by landlock alone may write
 * to, and where a local sandbox keeps the results of commands. */
void record_home_path(const struct record *record, char ret_path[HOME_PATH]);

/* Creates it for `uid`, with "tmp" in it; for a local sandbox of root it is open to all
 * users. */
int record_create_home(const struct record *record, uint32_t uid, struct cay_error *err);

#endif
