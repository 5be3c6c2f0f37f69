/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8-widen.h"

#include "harness.h"

enum { MOST = 3000, GUARD = 0xA5 };

static const uint32_t borders[] = {0,      'a',    0x7F,    0x80,    0xFF,    0x100,
                                   0x7FF,  0x800,  0xFFF,   0x1000,  0xD7FF,  0xE000,
                                   0xFFFD, 0xFFFF, 0x10000, 0x1F600, 0x3FFFF, 0x10FFFF};

static size_t encode(uint32_t value, unsigned char *to)
{
    if (value < 0x80) {
        to[0] = (unsigned char)value;
        return 1;
    }
    size_t len = value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
    for (size_t i = len; i-- > 1; value >>= 6)
        to[i] = (unsigned char)(0x80 | (value & 0x3F));
    to[0] = (unsigned char)((0xF00u >> len) | value);
    return len;
}

static uint32_t number_at(const void *numbers, unsigned width, size_t i)
{
    return width == 1   ? ((const uint8_t *)numbers)[i]
           : width == 2 ? ((const uint16_t *)numbers)[i]
                        : ((const uint32_t *)numbers)[i];
}

typedef size_t widen(const void *text, size_t len, unsigned width, void *to);

/* Exactly those numbers, and nothing behind them, come of the text; it has nothing behind
 * it either, so that reading past its end is seen. */
static void check(widen *way, const uint32_t *values, size_t count, unsigned width)
{
    unsigned char *text = malloc(count * 4 + 1);
    size_t len = 0, room = count * width;

    for (size_t i = 0; i < count; i++)
        len += encode(values[i], text + len);
    text = realloc(text, len + !len);
    AUTO_FREE unsigned char *out = malloc(room + 64);
    memset(out, GUARD, room + 64);
    ASSERT_INT(way(text, len, width, out), count);
    free(text);
    for (size_t i = 0; i < count; i++)
        ASSERT_INT(number_at(out, width, i), values[i]);
    for (size_t i = room; i < room + 64; i++)
        ASSERT_INT(out[i], GUARD);
}

static uint32_t highest_in(unsigned width)
{
    return width == 1 ? 0xFF : width == 2 ? 0xFFFF : 0x10FFFF;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Some text is mostly ASCII, some hardly. */
static uint32_t pick(uint32_t *seed, unsigned width, unsigned plain)
{
    uint32_t value;

    if (next_random(seed) % 16 < plain)
        return 'a' + next_random(seed) % 26;
    do
        value = borders[next_random(seed) % (sizeof borders / sizeof *borders)];
    while (value > highest_in(width));
    return value;
}

static void check_all(widen *way)
{
    static uint32_t values[MOST];
    uint32_t seed = 11;

    for (unsigned width = 1; width <= 4; width *= 2)
        for (unsigned plain = 0; plain <= 16; plain += 4)
            for (size_t count = 0; count < MOST; count += 1 + count / 9) {
                for (size_t i = 0; i < count; i++)
                    values[i] = pick(&seed, width, plain);
                check(way, values, count, width);
            }
}

TEST(characters_of_every_length_become_numbers_of_every_width)
{
    check_all(utf8_widen);
}

TEST(so_they_do_on_any_processor)
{
    check_all(utf8_widen_plainly);
}

TEST(every_character_is_itself)
{
    static uint32_t values[0x1000];

    for (uint32_t first = 0; first <= 0x10FFFF; first += 0x1000) {
        if (first >= 0xD000 && first < 0xE000)
            continue;
        for (uint32_t i = 0; i < 0x1000; i++)
            values[i] = first + i;
        check(utf8_widen, values, 0x1000, 4);
    }
}
