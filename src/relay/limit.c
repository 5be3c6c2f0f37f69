/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/limit.h"

enum {
    PARTS = 1000, /* of a byte of credit, so that a millisecond is a whole number */
    BURST_MS = 100,
    BURST_LEAST = 16 << 10,
    PAUSE_LEAST_MS = 10, /* fewer wake-ups, and pieces that fill packets */
    PAUSE_MOST_MS = 250,
    PIECE = 4 << 10
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void refill(struct limiter *limiter, uint64_t rate, uint64_t now_ms)
{
    uint64_t most = rate * BURST_MS;

    if (most < (uint64_t)BURST_LEAST * PARTS)
        most = (uint64_t)BURST_LEAST * PARTS;
    if (!limiter->refilled_ms)
        limiter->credit = most;
    else
        limiter->credit += rate * least(now_ms - limiter->refilled_ms, PARTS);
    limiter->credit = least(limiter->credit, most);
    limiter->refilled_ms = now_ms;
}

bool limit_open(struct limiter *limiter, const struct network_limits *limits,
                uint64_t now_ms)
{
    uint64_t rate = limits->at[NETWORK_RATE];

    if (!rate)
        return true;
    if (now_ms < limiter->open_at_ms)
        return false;
    refill(limiter, rate, now_ms);
    if (limiter->credit >= PARTS)
        return true;
    uint64_t pause = (uint64_t)PIECE * PARTS / rate;
    limiter->open_at_ms = now_ms + (pause < PAUSE_LEAST_MS  ? PAUSE_LEAST_MS
                                    : pause > PAUSE_MOST_MS ? PAUSE_MOST_MS
                                                            : pause);
    return false;
}

void limit_share(struct limiter *limiter, const struct network_limits *limits,
                 size_t links)
{
    uint64_t all = limiter->credit / PARTS;

    limiter->share = !limits->at[NETWORK_RATE] ? UINT64_MAX
                     : links && all >= links   ? all / links
                                               : all;
}

size_t limit_room(const struct limiter *limiter, const struct network_limits *limits,
                  size_t most)
{
    uint64_t bytes = limits->at[NETWORK_BYTES], room = least(most, limiter->share);

    if (bytes)
        room = limiter->carried < bytes ? least(room, bytes - limiter->carried) : 0;
    return (size_t)room;
}

void limit_take(struct limiter *limiter, size_t bytes)
{
    limiter->carried += bytes;
    limiter->share -= least(limiter->share, bytes);
    limiter->credit -= least(limiter->credit, (uint64_t)bytes * PARTS);
}

bool limit_is_over(const struct limiter *limiter, const struct network_limits *limits,
                   size_t more)
{
    uint64_t bytes = limits->at[NETWORK_BYTES];

    return bytes && more > bytes - least(bytes, limiter->carried);
}
