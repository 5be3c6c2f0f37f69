/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_RING_H
#define INIT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The last bytes of a stream, by position: `begin` is the oldest byte kept, `end` the
 * number of bytes so far.  Memory is allocated as bytes arrive; all rings together stay
 * within the budget, except for the first page of each. */
struct ring {
    char *data;
    size_t room; /* 0 or a power of two */
    uint64_t begin, end;
};

void ring_set_budget(size_t bytes);

/* Whether ring_reserve() of `len` bytes would stay within the budget. */
bool ring_is_affordable(const struct ring *ring, size_t len);

/* Makes room for `len` more bytes without losing any, up to OUTPUT_KEPT.  False if the
 * budget or memory does not allow it: then the oldest bytes are dropped earlier. */
bool ring_reserve(struct ring *ring, size_t len);

void ring_add(struct ring *ring, const char *data, size_t len);

/* Copies up to `room` bytes from position `at`, which is in the ring or its end; how
 * many. */
size_t ring_copy(const struct ring *ring, uint64_t at, char *data, size_t room);

/* Frees the memory; the bytes in it count as dropped. */
void ring_empty(struct ring *ring);

#endif
