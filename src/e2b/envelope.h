/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_ENVELOPE_H
#define E2B_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The Connect protocol's streams.  Each message has five bytes before it, flags and a
 * big-endian length, and is JSON here; the last has the flag 2 and says whether all went
 * well.  Nothing in these bytes is trusted. */

enum { E2B_ENVELOPE_HEAD = 5, E2B_ENVELOPE_MAX = 4 << 20, E2B_ENVELOPE_END = 2 };

struct e2b_envelope {
    unsigned flags;
    const char *data;
    size_t len;
};

/* The one at the beginning of `bytes`, if it is all there.  How many bytes it takes; 0 if
 * there must come more; -1 if this cannot be one. */
ptrdiff_t e2b_envelope_read(const char *bytes, size_t len,
                            struct e2b_envelope *ret_envelope);

/* The five bytes for a message of that length. */
void e2b_envelope_head(size_t len, unsigned char *ret_head);

#endif
