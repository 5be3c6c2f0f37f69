/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_STATE_H
#define NATIVE_RECORD_STATE_H

#include <limits.h>
#include <stdbool.h>

#include "cay/error.h"

/* What outlives a sandbox and a reboot: templates and disks, below the directory of
 * sys/state-home.h. */

/* The directory `below` there ("templates", "sandboxes"): 0700, so that nobody reaches
 * the files of other users in it.  A descriptor, or a code; CAY_E_NOT_FOUND if it is not
 * there and not to be made. */
int state_open(const char *below, bool make, struct cay_error *err);

/* A new directory in `dir`, called PREFIX and random letters, and locked (flock) for
 * whoever makes something in it; a descriptor, or a code. */
int state_draft(int dir, const char *prefix, char ret_name[NAME_MAX + 1],
                struct cay_error *err);

/* Removes the directory `name` in `dir`, whose lock the caller holds: under another name
 * first, ".old-...", since what is half removed is of no use.  It takes no space, of
 * which there may be none. */
int state_remove(int dir, const char *name, const char *who, struct cay_error *err);

/* Removes the directories in `dir` of that prefix whose lock nobody holds: what a crash
 * left.  How many there were. */
size_t state_sweep(int dir, const char *prefix);

/* Writes a whole file in `dir`, in place of what has that name; fsync'ed. */
int state_write(int dir, const char *name, const void *data, size_t len,
                struct cay_error *err);

/* Reads a file of at most `max` bytes; NUL-terminated, the caller's.  NULL with errno
 * set if there is none. */
char *state_read(int dir, const char *name, size_t max, size_t *ret_len);

#endif
