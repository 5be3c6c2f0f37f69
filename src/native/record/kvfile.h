/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_KVFILE_H
#define NATIVE_RECORD_KVFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What a file of ours says, as "KEY=VALUE" after "KEY=VALUE", each ended by a NUL: so any
 * text is a value.  A key may come more than once. */
struct facts {
    char *data; /* the reader's own */
    size_t len;
};

/* Adds one; a value of NULL is left out.  As with any buffer, check once at the end. */
void facts_add(struct buf *file, const char *key, const char *value);
void facts_add_number(struct buf *file, const char *key, uint64_t value);

/* Begins a file.  Only what begins like that is sound. */
void facts_begin(struct buf *file, size_t max);
bool facts_are_sound(const struct facts *facts);

/* The value that follows `last`, a value of the same key, or the first; NULL: none. */
const char *facts_next(const struct facts *facts, const char *key, const char *last);
const char *facts_text(const struct facts *facts, const char *key);
uint64_t facts_number(const struct facts *facts, const char *key); /* or 0 */
size_t facts_count(const struct facts *facts, const char *key);

#endif
