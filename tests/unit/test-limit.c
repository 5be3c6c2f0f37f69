/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/limit.h"

#include "harness.h"

static const struct network_limits none, fast = {.at = {[NETWORK_RATE] = 1 << 20}},
                                         slow = {.at = {[NETWORK_RATE] = 2048}},
                                         few = {.at = {[NETWORK_BYTES] = 100}};

enum { PIECE = 64 << 10 };

TEST(a_network_without_limits_is_always_open)
{
    struct limiter limiter = {0};

    for (int i = 0; i < 1000; i++) {
        ASSERT(limit_open(&limiter, &none, 1));
        limit_share(&limiter, &none, 7);
        ASSERT_INT(limit_room(&limiter, &none, PIECE), PIECE);
        limit_take(&limiter, PIECE);
    }
    ASSERT(!limit_is_over(&limiter, &none, SIZE_MAX));
}

/* Bytes that one link carries within some milliseconds, one wake-up for each turn. */
static uint64_t carry(const struct network_limits *limits, uint64_t ms, unsigned *wakes)
{
    struct limiter limiter = {0};
    uint64_t now = 1000, end = now + ms;

    *wakes = 0;
    while (now < end) {
        ++*wakes;
        while (limit_open(&limiter, limits, now)) {
            limit_share(&limiter, limits, 1);
            limit_take(&limiter, limit_room(&limiter, limits, PIECE));
        }
        now = limiter.open_at_ms;
    }
    return limiter.carried;
}

TEST(the_rate_holds_for_a_long_time_after_a_burst)
{
    unsigned wakes;
    uint64_t carried = carry(&fast, 100000, &wakes);

    ASSERT(carried >= 100ull << 20 && carried <= 101ull << 20);
    ASSERT(wakes <= 10001);
    carried = carry(&slow, 100000, &wakes);
    ASSERT(carried >= 200 << 10 && carried <= 217 << 10);
    ASSERT(wakes <= 401);
}

TEST(links_that_wait_get_equal_shares)
{
    struct limiter limiter = {0};
    size_t rooms[3];

    ASSERT(limit_open(&limiter, &fast, 1000));
    for (size_t left = 3; left; left--) {
        limit_share(&limiter, &fast, left);
        rooms[left - 1] = limit_room(&limiter, &fast, 1 << 20);
        limit_take(&limiter, rooms[left - 1]);
    }
    ASSERT(rooms[0] - rooms[1] <= 2 && rooms[1] - rooms[2] <= 2);
    ASSERT(!limit_open(&limiter, &fast, 1000) && limiter.open_at_ms == 1010);
    ASSERT(!limit_open(&limiter, &fast, 1009) && limit_open(&limiter, &fast, 1010));
}

TEST(a_share_is_never_nothing_while_the_bucket_is_open)
{
    struct limiter limiter = {.credit = 5000, .refilled_ms = 1000};

    ASSERT(limit_open(&limiter, &slow, 1000));
    limit_share(&limiter, &slow, 100);
    ASSERT_INT(limit_room(&limiter, &slow, PIECE), 5);
}

TEST(the_limit_on_bytes_is_exact)
{
    struct limiter limiter = {0};

    limit_share(&limiter, &few, 1);
    ASSERT_INT(limit_room(&limiter, &few, PIECE), 100);
    ASSERT(!limit_is_over(&limiter, &few, 100) && limit_is_over(&limiter, &few, 101));
    limit_take(&limiter, 60);
    ASSERT_INT(limit_room(&limiter, &few, PIECE), 40);
    limit_take(&limiter, 40);
    ASSERT_INT(limit_room(&limiter, &few, PIECE), 0);
    ASSERT(limit_is_over(&limiter, &few, 1) && !limit_is_over(&limiter, &few, 0));
}
