/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Counts made over bytes that are fed piece by piece, and whether they are UTF-8 so far.
 */
struct utf8_scan {
    uint64_t chars; /* code points begun */
    uint64_t lf;    /* "\n" */
    uint64_t crlf;  /* "\n" right after a "\r" */
    bool has_cr;
    bool trusted; /* set by the caller: only count, from any byte on */
    bool invalid;
    unsigned char last;    /* the last byte fed */
    unsigned char pending; /* bytes of an unfinished character: 0 to 3 */
    unsigned char held[4]; /* those bytes */
};

/* Start from a zeroed struct.  False once the bytes are not UTF-8. */
bool utf8_scan(struct utf8_scan *scan, const void *data, size_t len);

/* True if all that was fed is whole, valid characters. */
bool utf8_scan_complete(const struct utf8_scan *scan);

#endif
