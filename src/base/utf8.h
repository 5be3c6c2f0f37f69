/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a scan counts.  Fewer counts are faster. */
enum utf8_count { UTF8_ALL, UTF8_CHARS_AND_CRLF, UTF8_CHARS };

/* Counts over bytes that are passed piece by piece, and whether they are valid UTF-8 so
 * far. */
struct utf8_scan {
    uint64_t chars; /* code points started */
    uint64_t lf;    /* "\n" */
    uint64_t crlf;  /* "\n" right after a "\r" */
    bool has_cr;
    bool trusted;          /* set by the caller: only count, from any byte on */
    enum utf8_count count; /* set by the caller: other counts may be wrong */
    bool invalid;
    unsigned char highest; /* highest byte, which bounds the code points */
    unsigned char last;    /* the last byte fed */
    unsigned char pending; /* bytes of an unfinished character: 0 to 3 */
    unsigned char held[4]; /* those bytes */
};

/* Whether the byte continues a character. */
static inline bool utf8_is_tail(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Start from a zeroed struct.  False once the bytes are not UTF-8. */
bool utf8_scan(struct utf8_scan *scan, const void *data, size_t len);

/* True if all that was fed is whole, valid characters. */
bool utf8_scan_complete(const struct utf8_scan *scan);

/* The same of all of it at once. */
bool utf8_is_valid(const void *data, size_t len);

/* The character at the start of `text`, of which there are `len` bytes, at least one: its
 * length, and *ret_value is the code point.  If the bytes are not UTF-8, *ret_value is
 * UTF8_INVALID, and the length is that of the part which Python's errors="replace"
 * replaces by one U+FFFD.  Reads no byte beyond one that does not fit, so `len` may be 4
 * anywhere in a string that ends with NUL. */
#define UTF8_INVALID UINT32_MAX
size_t utf8_next(const char *text, size_t len, uint32_t *ret_value);

/* No character that was fed is above: 0x7F, 0xFF, 0xFFFF or 0x10FFFF, the least of them.
 */
uint32_t utf8_scan_highest(const struct utf8_scan *scan);

/* As utf8_scan(), with a kernel of one's choice; NULL for none at all. */
struct utf8_kernel;
bool utf8_scan_by(const struct utf8_kernel *kernel, struct utf8_scan *scan,
                  const void *data, size_t len);

#endif
