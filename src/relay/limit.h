/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_LIMIT_H
#define RELAY_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "network/rules.h"

/* The limits of a sandbox on bytes and on bytes a second, in both directions and for all
 * of its connections together.  The second is a bucket of tokens: while it is empty,
 * links wait, and then each gets an equal share.  Pure. */

struct limiter {
    uint64_t carried;     /* bytes in all */
    uint64_t credit;      /* bytes that may pass now, in thousandths */
    uint64_t share;       /* of the link whose turn it is */
    uint64_t refilled_ms; /* 0: never */
    uint64_t open_at_ms;  /* if it is closed */
};

/* Refills the bucket.  False if no byte may pass before limiter->open_at_ms. */
bool limit_open(struct limiter *limiter, const struct network_limits *limits,
                uint64_t now_ms);

/* Begins the turn of one of `links` links, or of one of their two directions. */
void limit_share(struct limiter *limiter, const struct network_limits *limits,
                 size_t links);

/* How many of `most` bytes may pass in this turn. */
size_t limit_room(const struct limiter *limiter, const struct network_limits *limits,
                  size_t most);
void limit_take(struct limiter *limiter, size_t bytes);

/* Whether `more` bytes would be over the limit on all bytes. */
bool limit_is_over(const struct limiter *limiter, const struct network_limits *limits,
                   size_t more);

#endif
