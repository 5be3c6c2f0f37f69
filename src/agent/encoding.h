/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_ENCODING_H
#define AGENT_ENCODING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum encoding {
    ENCODING_UTF8,
    ENCODING_UTF16_LE,
    ENCODING_UTF16_BE,
    ENCODING_LATIN_1,
    ENCODING_BINARY
};

/* How much of a file the guess needs at most. */
enum { ENCODING_BYTES = 64 << 10 };

/* By the beginning of a file; `is_all`: the bytes are the whole file. */
enum encoding encoding_guess(const void *data, size_t len, bool is_all);

const char *encoding_slug(enum encoding encoding); /* "utf-8" */

/* Appends UTF-8 text in that encoding, without a byte order mark.  False if a character
 * does not exist in it, or if out of memory: then out->failed is set. */
bool encoding_put(enum encoding encoding, const char *text, size_t len, struct buf *out);

#endif
