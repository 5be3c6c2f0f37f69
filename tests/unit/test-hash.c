/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include "harness.h"

static uint64_t by_byte(const unsigned char *bytes, size_t len)
{
    uint64_t hash = HASH_STABLE;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    return hash;
}

TEST(the_stable_hash_is_fnv_1a)
{
    ASSERT(hash_stable(HASH_STABLE, "", 0) == HASH_STABLE);
    ASSERT(hash_stable(HASH_STABLE, "a", 1) == UINT64_C(0xAF63DC4C8601EC8C));
    ASSERT(hash_stable(HASH_STABLE, "foobar", 6) == UINT64_C(0x85944171F73967E8));
}

TEST(zeros_are_hashed_like_other_bytes)
{
    unsigned char bytes[64];

    for (size_t start = 0; start < 16; start++)
        for (size_t end = start; end <= sizeof bytes; end++) {
            memset(bytes, 7, sizeof bytes);
            memset(bytes + start, 0, end - start);
            ASSERT(hash_stable(HASH_STABLE, bytes, sizeof bytes) ==
                   by_byte(bytes, sizeof bytes));
            ASSERT(hash_stable(HASH_STABLE, bytes, end) == by_byte(bytes, end));
        }
}
