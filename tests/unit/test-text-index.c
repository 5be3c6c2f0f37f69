/* SPDX-License-Identifier: Apache-2.0 */
#include "files/index.h"

#include "harness.h"

/* Where unit `n` begins, told byte by byte. */
static size_t plain_find(const char *text, size_t len, enum text_unit unit, uint64_t n,
                         char before)
{
    size_t at = 0;

    for (; at < len; at++) {
        char previous = at > 0 ? text[at - 1] : before;
        bool joined =
            unit == TEXT_UNIVERSAL_CHARS && previous == '\r' && text[at] == '\n';
        if (unit == TEXT_LINES) {
            if (n == 0)
                break;
            n -= text[at] == '\n';
        } else if ((text[at] & 0xC0) != 0x80 && !joined && n-- == 0) {
            break;
        }
    }
    return at;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static size_t random_text(char *text, size_t most, uint32_t *seed)
{
    static const char *const pieces[] = {
        "a", "\r", "\n", "\r\n", "é", "漢", "\xF0\x9F\x98\x80", "plain ascii text "};
    size_t len = 0;

    while (len + 20 < most) {
        const char *piece = pieces[next_random(seed) % 8];
        memcpy(text + len, piece, strlen(piece));
        len += strlen(piece);
    }
    return len;
}

TEST(every_unit_of_a_text_is_found_where_it_begins)
{
    static char text[11000];
    uint32_t seed = 3;

    for (enum text_unit unit = TEXT_CHARS; unit <= TEXT_LINES; unit++)
        for (unsigned round = 0; round < 4; round++) {
            size_t len = random_text(text, sizeof text - 3000 * round, &seed);
            char before = round % 2 ? '\r' : 'x';
            /* What was before has its own counts, to which `n` is added. */
            const struct text_mark start = {500, 400, 100};
            uint64_t base = unit == TEXT_CHARS ? 500 : 400;
            for (uint64_t n = 0; n < len; n += 1 + n / 50)
                ASSERT_INT(text_unit_find(text, len, unit, base + n, &start,
                                          (unsigned char)before),
                           plain_find(text, len, unit, n, before));
        }
}
