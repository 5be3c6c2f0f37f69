/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_UTF8_KERNEL_H
#define BASE_UTF8_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/utf8.h"

/* The requested counts of a text, and whether it can be UTF-8. */
struct utf8_tally {
    size_t tails; /* continuation bytes */
    size_t lf;
    unsigned char highest; /* the least byte of its kind: 0, 0x80, 0xC4, 0xF0 */
    bool has_cr;
    bool wrong;
};

/* A kernel processes many bytes at once.  The text must have 3 bytes before it, which are
 * read as context, and a length that is a multiple of UTF8_STEP; alignment to UTF8_ALIGN
 * is fastest.  A character cut off at the end is not an error, even if its first byte is
 * invalid. */
enum { UTF8_STEP = 128, UTF8_ALIGN = 64 };

struct utf8_kernel {
    const char *name;
    void (*look)(const unsigned char *text, size_t len, enum utf8_count count,
                 struct utf8_tally *ret_tally);
};

/* The best that this processor has; NULL if none. */
const struct utf8_kernel *utf8_kernel(void);

/* The kernel number `i` of those that this processor has, best first; NULL after the
 * last. */
const struct utf8_kernel *utf8_kernel_at(size_t i);

#ifdef __x86_64__
/* How many bytes the vector instructions of this processor process at once: 64, 32, 16
 * or 1. */
unsigned utf8_lanes(void);
#endif

#endif
