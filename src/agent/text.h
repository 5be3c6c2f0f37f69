/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_TEXT_H
#define AGENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Output of programs, made readable. */

enum { TEXT_MIN_RUN = 4 };

/* A NUL-terminated copy with U+FFFD for each part that is not UTF-8, as by Python's
 * errors="replace".  NULL if out of memory. */
char *text_decode(const char *bytes, size_t len, size_t *ret_len);

/* These expect UTF-8, change the text in place, and return the new length. */
size_t text_strip_ansi(char *text, size_t len);
size_t text_resolve_cr(char *text, size_t len);

/* NULL if out of memory.  *ret_missing: lines were left out. */
char *text_collapse(const char *text, size_t len, uint32_t min_run, size_t *ret_len,
                    bool *ret_missing);

size_t text_chars(const char *text, size_t len);

/* Where the character number `chars` begins, counted from 0; at most `len`. */
size_t text_offset(const char *text, size_t len, size_t chars);

/* --- Encodings of files --- */

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
