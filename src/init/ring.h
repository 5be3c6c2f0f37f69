/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_RING_H
#define INIT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The last bytes of a stream, by their position in it: the byte at `begin` is the oldest
 * that is kept, and `end` is how many there were in all.  It takes memory as bytes come,
 * and all rings together take no more than the budget, but for the first page of each. */
struct ring {
    char *data;
    size_t room; /* 0 or a power of two */
    uint64_t begin, end;
};

void ring_set_budget(size_t bytes);

/* Whether ring_reserve() of so many would be within the budget. */
bool ring_is_affordable(const struct ring *ring, size_t len);

/* Makes room for `len` more bytes without losing any, as far as OUTPUT_KEPT allows.
 * False if the budget or memory does not: then the oldest go earlier. */
bool ring_reserve(struct ring *ring, size_t len);

void ring_add(struct ring *ring, const char *data, size_t len);

/* Up to `room` bytes from position `at`, which is kept or the end; how many. */
size_t ring_copy(const struct ring *ring, uint64_t at, char *data, size_t room);

/* Gives the memory back; what was kept is lost, and counts as such. */
void ring_empty(struct ring *ring);

#endif
