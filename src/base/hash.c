/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static uint64_t key[2];
static pthread_once_t key_drawn = PTHREAD_ONCE_INIT;

static void draw_key(void)
{
    /* 16 bytes after boot never fail and never come short. */
    (void)!getrandom(key, sizeof key, 0);
}

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void rounds(uint64_t v[4], int count)
{
    while (count-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

uint64_t hash_bytes(const void *data, size_t len)
{
    const unsigned char *bytes = data;
    uint64_t word;

    (void)pthread_once(&key_drawn, draw_key);
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                     key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    size_t i = 0;
    for (; len - i >= 8; i += 8) {
        memcpy(&word, bytes + i, 8);
        v[3] ^= word;
        rounds(v, 2);
        v[0] ^= word;
    }
    word = (uint64_t)len << 56;
    for (int shift = 0; i < len; i++, shift += 8)
        word |= (uint64_t)bytes[i] << shift;
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
    v[2] ^= 0xff;
    rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Records are mostly zeros, and eight of them are one multiplication. */
uint64_t hash_stable(uint64_t hash, const void *data, size_t len)
{
    static const uint64_t prime = UINT64_C(0x100000001B3);
    const uint64_t squared = prime * prime,
                   of_eight = squared * squared * squared * squared;
    const unsigned char *bytes = data;
    uint64_t word;

    for (size_t i = 0; i < len;) {
        if (!bytes[i] && len - i >= sizeof word) {
            memcpy(&word, bytes + i, sizeof word);
            if (!word) {
                hash *= of_eight;
                i += sizeof word;
                continue;
            }
        }
        hash = (hash ^ bytes[i++]) * prime;
    }
    return hash;
}
