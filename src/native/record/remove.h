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
int record_begin_end(const struct record *record, int *ret_pidfd, struct cay_error *err);

/* record_remove() for a sandbox whose record cannot be read; the caller holds its lock.
 */
int record_remove_damaged(const char *id, struct cay_error *err);

/* Kills init and waits for its end; false if that takes too long. */
bool record_end_init(const struct record *record, int pidfd);

int record_fail_end(const struct record *record, int error, struct cay_error *err);

#endif
