/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_STATE_H
#define NATIVE_RECORD_STATE_H

#include <limits.h>
#include <stdbool.h>

#include "cay/error.h"

/* What outlives a sandbox and a reboot: templates and disks, below the state directory of
 * sys/state-home.h. */

/* The directory `below` ("templates", "sandboxes"), 0700, so that no other user reaches
 * its files.  A descriptor or a code; CAY_E_NOT_FOUND if it is missing and `make` is
 * false. */
int state_open(const char *below, bool make, struct cay_error *err);

/* Creates a directory in `dir` named PREFIX and random letters, locked (flock) by the
 * caller; a descriptor or a code. */
int state_draft(int dir, const char *prefix, char ret_name[NAME_MAX + 1],
                struct cay_error *err);

/* Removes the directory `name` in `dir`, whose lock the caller holds.  It is first
 * renamed to ".old-...", since a partly removed directory is useless; renaming needs no
 * free space. */
int state_remove(int dir, const char *name, const char *who, struct cay_error *err);

/* Removes the directories in `dir` with that prefix whose lock is free: they are left
 * from a crash.  Returns their number. */
size_t state_sweep(int dir, const char *prefix);

/* Replaces a file in `dir` atomically, with fsync. */
int state_write(int dir, const char *name, const void *data, size_t len,
                struct cay_error *err);

/* Reads a file of at most `max` bytes; NUL-terminated, the caller frees it.  NULL with
 * errno set on failure. */
char *state_read(int dir, const char *name, size_t max, size_t *ret_len);

#endif
