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

/* How much of a file is looked at. */
enum { ENCODING_BYTES = 64 << 10 };

/* What the beginning of a file looks like; `is_all`: it is the whole file. */
enum encoding encoding_guess(const void *data, size_t len, bool is_all);

const char *encoding_slug(enum encoding encoding); /* "utf-8" */

/* UTF-8 as bytes of that encoding, without a byte order mark.  False if a character has
 * none there; out->failed tells a lack of memory. */
bool encoding_put(enum encoding encoding, const char *text, size_t len, struct buf *out);

#endif
