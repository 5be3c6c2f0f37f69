/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include "harness.h"

/* The definition, written as plainly as possible: a decoder that looks at values. */
static bool plain_decode(const unsigned char *text, size_t len, struct utf8_scan *counts)
{
    for (size_t i = 0; i < len;) {
        unsigned char lead = text[i];
        size_t need = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        uint32_t value = lead < 0x80 ? lead : lead & (0xFFu >> (need + 1));

        if ((lead >= 0x80 && lead < 0xC0) || lead > 0xF7 || len - i < need)
            return false;
        for (size_t k = 1; k < need; k++) {
            if ((text[i + k] & 0xC0) != 0x80)
                return false;
            value = value << 6 | (text[i + k] & 0x3Fu);
        }
        if (value < least[need] || value > 0x10FFFF ||
            (value >= 0xD800 && value <= 0xDFFF))
            return false;
        counts->chars++;
        counts->lf += lead == '\n';
        counts->crlf += lead == '\n' && i > 0 && text[i - 1] == '\r';
        i += need;
    }
    return true;
}

static void check(const unsigned char *text, size_t len, size_t step)
{
    struct utf8_scan plain = {0}, scan = {0};
    bool good = plain_decode(text, len, &plain);

    for (size_t at = 0; at < len; at += step)
        (void)utf8_scan(&scan, text + at, len - at < step ? len - at : step);
    ASSERT_INT(utf8_scan_complete(&scan), good);
    if (good) {
        ASSERT_INT(scan.chars, plain.chars);
        ASSERT_INT(scan.lf, plain.lf);
        ASSERT_INT(scan.crlf, plain.crlf);
    }
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

TEST(every_two_byte_text_is_judged_as_the_definition_says)
{
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++) {
            const unsigned char text[2] = {(unsigned char)a, (unsigned char)b};
            check(text, 2, 2);
            check(text, 2, 1);
        }
}

TEST(the_borders_of_each_length_are_exact)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"\xC1\xBF", false},         {"\xC2\x80", true},
        {"\xE0\x9F\xBF", false},     {"\xE0\xA0\x80", true},
        {"\xED\x9F\xBF", true},      {"\xED\xA0\x80", false},
        {"\xEE\x80\x80", true},      {"\xEF\xBF\xBF", true},
        {"\xF0\x8F\xBF\xBF", false}, {"\xF0\x90\x80\x80", true},
        {"\xF4\x8F\xBF\xBF", true},  {"\xF4\x90\x80\x80", false},
        {"\xF5\x80\x80\x80", false}, {"\xEF\xBB\xBF", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct utf8_scan scan = {0};
        (void)utf8_scan(&scan, cases[i].text, strlen(cases[i].text));
        ASSERT_INT(utf8_scan_complete(&scan), cases[i].good);
        ASSERT_INT(scan.chars >= 1, 1);
    }
}

TEST(random_text_is_counted_as_the_definition_says_however_it_is_cut)
{
    static const char *const pieces[] = {
        "a", "\r", "\n", "\r\n", "é", "漢", "\xF0\x9F\x98\x80", "plain ascii text "};
    uint32_t seed = 7;
    unsigned char text[8192];

    for (int round = 0; round < 300; round++) {
        size_t len = 0, want = next_random(&seed) % (sizeof text - 32);
        while (len < want) {
            const char *piece = pieces[next_random(&seed) % 8];
            memcpy(text + len, piece, strlen(piece));
            len += strlen(piece);
        }
        if (round % 3 == 0 && len)
            text[next_random(&seed) % len] = (unsigned char)next_random(&seed);
        check(text, len, 1 + next_random(&seed) % 700);
    }
}

TEST(a_trusted_scan_counts_from_the_middle_of_a_character)
{
    struct utf8_scan scan = {.trusted = true};

    ASSERT(utf8_scan(&scan, "\xA9xyz", 4));
    ASSERT_INT(scan.chars, 3);
}
