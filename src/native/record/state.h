/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_STATE_H
#define NATIVE_RECORD_STATE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
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

/* Removes the directory `name` in `dir` with all files, also those of subordinate ids;
 * `label` names it in errors. */
int state_remove_tree(int dir, const char *name, const char *who, const char *label,
                      struct cay_error *err);

/* Removes the directories in `dir` with that prefix whose lock is free: they are left
 * from a crash.  Returns their number. */
size_t state_sweep(int dir, const char *prefix);

/* Replaces a file in `dir` atomically, with fsync. */
int state_write(int dir, const char *name, const void *data, size_t len,
                struct cay_error *err);

/* The same without fsync. */
int state_replace(int dir, const char *name, const void *data, size_t len,
                  struct cay_error *err);

/* Reads a file of at most `max` bytes; NUL-terminated, the caller frees it.  NULL with
 * errno set on failure. */
char *state_read(int dir, const char *name, size_t max, size_t *ret_len);

/* A file of "KEY=VALUE" entries, each ended by a NUL, so that a value may contain any
 * text. A key may occur several times. */
struct kvfile {
    char *data; /* the caller frees it */
    size_t len;
};

/* Adds an entry; NULL values are left out.  As with any buffer, check for failure once at
 * the end. */
void kvfile_add(struct buf *file, const char *key, const char *value);
void kvfile_add_number(struct buf *file, const char *key, uint64_t value);

/* Starts a file with its signature; kvfile_is_valid() checks it. */
void kvfile_begin(struct buf *file, size_t max);
bool kvfile_is_valid(const struct kvfile *kvfile);

/* The next value of the key after `last`, or the first if that is NULL; NULL: none. */
const char *kvfile_next(const struct kvfile *kvfile, const char *key, const char *last);
const char *kvfile_text(const struct kvfile *kvfile, const char *key);
uint64_t kvfile_number(const struct kvfile *kvfile, const char *key); /* or 0 */
size_t kvfile_count(const struct kvfile *kvfile, const char *key);

#endif
