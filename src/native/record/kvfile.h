/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_KVFILE_H
#define NATIVE_RECORD_KVFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

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
