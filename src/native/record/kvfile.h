/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_KVFILE_H
#define NATIVE_RECORD_KVFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What a file of ours says, as "KEY=VALUE" after "KEY=VALUE", each ended by a NUL: so any
 * text is a value.  A key may come more than once. */
struct kvfile {
    char *data; /* the reader's own */
    size_t len;
};

/* Adds one; a value of NULL is left out.  As with any buffer, check once at the end. */
void kvfile_add(struct buf *file, const char *key, const char *value);
void kvfile_add_number(struct buf *file, const char *key, uint64_t value);

/* Begins a file.  Only what begins like that is sound. */
void kvfile_begin(struct buf *file, size_t max);
bool kvfile_is_valid(const struct kvfile *kvfile);

/* The value that follows `last`, a value of the same key, or the first; NULL: none. */
const char *kvfile_next(const struct kvfile *kvfile, const char *key, const char *last);
const char *kvfile_text(const struct kvfile *kvfile, const char *key);
uint64_t kvfile_number(const struct kvfile *kvfile, const char *key); /* or 0 */
size_t kvfile_count(const struct kvfile *kvfile, const char *key);

#endif
