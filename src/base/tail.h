/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_TAIL_H
#define BASE_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The last `limit` bytes of a stream, and how many came before them. */
struct tail {
    char *data;
    size_t limit, room, start, len;
    uint64_t dropped;
};

void tail_init(struct tail *tail, size_t limit);
void tail_done(struct tail *tail);

/* False if memory is exhausted. */
bool tail_add(struct tail *tail, const char *data, size_t len);

/* Takes up to `room` of the oldest bytes out; how many. */
size_t tail_read(struct tail *tail, char *data, size_t room);

/* The bytes in order, NUL-terminated; the caller's.  NULL if memory is exhausted. */
char *tail_take(struct tail *tail, size_t *ret_len);

#endif
