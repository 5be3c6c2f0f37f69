/* SPDX-License-Identifier: Apache-2.0 */
/* It is a part of cay-init only, so the library does not have it. */
#include "init/ring.c"

#include "harness.h"
#include "init/protocol.h"

/* Byte i of the stream is i % 251. */
static void add(struct ring *ring, size_t len)
{
    static char piece[3 * OUTPUT_KEPT];

    ASSERT(len <= sizeof piece);
    for (size_t i = 0; i < len; i++)
        piece[i] = (char)((ring->end + i) % 251);
    (void)ring_reserve(ring, len);
    ring_add(ring, piece, len);
}

static void check(const struct ring *ring)
{
    static char data[OUTPUT_KEPT];
    uint64_t at = ring->begin;

    while (at < ring->end) {
        size_t len = ring_copy(ring, at, data, 70000);
        ASSERT(len > 0);
        for (size_t i = 0; i < len; i++)
            if ((unsigned char)data[i] != (at + i) % 251)
                ASSERT_INT((unsigned char)data[i], (at + i) % 251);
        at += len;
    }
    ASSERT_INT(ring_copy(ring, ring->end, data, sizeof data), 0);
}

TEST(a_ring_takes_memory_as_bytes_come_and_keeps_the_last)
{
    struct ring ring = {0};

    ring_set_budget(4 * OUTPUT_KEPT);
    add(&ring, 100);
    ASSERT_INT(ring.room, 4096);
    for (int i = 0; i < 300; i++) {
        add(&ring, 9999);
        check(&ring);
    }
    ASSERT_INT(ring.room, OUTPUT_KEPT);
    ASSERT_INT(ring.end, 100 + 300 * 9999);
    ASSERT_INT(ring.end - ring.begin, OUTPUT_KEPT);
    add(&ring, 2 * OUTPUT_KEPT + 7);
    check(&ring);
    ASSERT_INT(ring.end - ring.begin, OUTPUT_KEPT);
    ring_empty(&ring);
    ASSERT_INT(ring.begin, ring.end);
}

TEST(all_rings_together_stay_within_the_budget)
{
    struct ring first = {0}, second = {0};

    ring_set_budget(OUTPUT_KEPT + 65536);
    add(&first, OUTPUT_KEPT);
    add(&second, 60000);
    ASSERT(!ring_reserve(&second, 10000));
    add(&second, 10000); /* it keeps fewer, and still counts */
    check(&second);
    ASSERT_INT(second.end, 70000);
    ASSERT_INT(second.end - second.begin, 65536);
    ring_empty(&first);
    ASSERT(ring_reserve(&second, 200000));
    add(&second, 200000);
    check(&second);
    ASSERT_INT(second.end - second.begin, 265536);
    ring_empty(&second);
}

TEST(beyond_the_budget_each_has_a_page)
{
    struct ring ring = {0};

    ring_set_budget(0);
    ASSERT(ring_is_affordable(&ring, 4096) && !ring_is_affordable(&ring, 4097));
    ASSERT(!ring_reserve(&ring, 10000));
    add(&ring, 10000);
    ASSERT_INT(ring.begin, 10000 - 4096);
    ASSERT_INT(ring.end, 10000);
    check(&ring);
    ring_empty(&ring);
}
