/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdio.h>

#include "base/utf8-kernel.h"

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

/* Feeds the text in steps, and judges what came of it. */
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

/* Two scans of the same bytes must agree, also in when they know that those are wrong. */
static void check_agree(const struct utf8_kernel *kernel, const struct utf8_scan *scan,
                        const struct utf8_scan *slow)
{
    bool same = scan->invalid == slow->invalid;

    if (same && !scan->invalid)
        same = scan->chars == slow->chars && scan->lf == slow->lf &&
               scan->crlf == slow->crlf && scan->has_cr == slow->has_cr &&
               utf8_scan_highest(scan) == utf8_scan_highest(slow) &&
               scan->last == slow->last && scan->pending == slow->pending &&
               memcmp(scan->held, slow->held, slow->pending) == 0;
    if (!same)
        printf("# kernel %s\n", kernel->name);
    ASSERT(same);
}

/* Every kernel against none, after each of the pieces that the text is fed in. */
static void check_kernels(const unsigned char *text, size_t len, size_t step)
{
    enum { KERNELS = 4 };
    struct utf8_scan slow = {0}, scans[KERNELS] = {{0}};
    const struct utf8_kernel *kernel;

    for (size_t at = 0; at < len; at += step) {
        size_t piece = len - at < step ? len - at : step;
        (void)utf8_scan_by(NULL, &slow, text + at, piece);
        for (size_t i = 0; (kernel = utf8_kernel_at(i)); i++) {
            (void)utf8_scan_by(kernel, &scans[i], text + at, piece);
            check_agree(kernel, &scans[i], &slow);
        }
    }
}

/* Right and wrong, alone and at borders of what is right. */
static const char *const sequences[] = {
    "a",
    "\r\n",
    "\r",
    "\n",
    "\x7F",
    "\xC2\x80",
    "\xDF\xBF",
    "\xE0\xA0\x80",
    "\xED\x9F\xBF",
    "\xEE\x80\x80",
    "\xEF\xBF\xBF",
    "\xF0\x90\x80\x80",
    "\xF4\x8F\xBF\xBF",
    "\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80",
    "\x80",
    "\xBF",
    "\xC0",
    "\xC1",
    "\xC0\x80",
    "\xC1\xBF",
    "\xC2",
    "\xC2\xC2\x80",
    "\xC2\x80\x80",
    "\xE0",
    "\xE0\x80",
    "\xE0\x9F\xBF",
    "\xE1\x80",
    "\xE1\x80\x80\x80",
    "\xE1\xE1\x80\x80",
    "\xED\xA0\x80",
    "\xED\xBF\xBF",
    "\xF0\x80",
    "\xF0\x8F\xBF\xBF",
    "\xF1",
    "\xF1\x80",
    "\xF1\x80\x80",
    "\xF1\x80\x80\x80\x80",
    "\xF1\x80\x80\xC2\x80",
    "\xF4\x90\x80\x80",
    "\xF5",
    "\xF5\x80\x80\x80",
    "\xF8\x88\x80\x80\x80",
    "\xFE",
    "\xFF",
};

enum { SEQUENCES = sizeof sequences / sizeof *sequences };

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
        ASSERT_INT(utf8_is_valid(cases[i].text, strlen(cases[i].text)), cases[i].good);
        ASSERT_INT(scan.chars >= 1, 1);
    }
}

TEST(every_kernel_judges_each_pair_before_any_class_of_bytes_as_none_does)
{
    static const unsigned char classes[] = {'a',  '\n', 0x80, 0x8F, 0x90, 0x9F,
                                            0xA0, 0xBF, 0xC2, 0xE1, 0xF1, 0xFF};
    enum { CLASSES = sizeof classes, HEAD = 100 };
    _Alignas(UTF8_ALIGN) unsigned char text[HEAD + 4 + 2 * UTF8_STEP];

    memset(text, 'x', sizeof text);
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        text[HEAD] = (unsigned char)(pair >> 8);
        text[HEAD + 1] = (unsigned char)pair;
        for (unsigned more = 0; more < CLASSES * CLASSES; more++) {
            /* All of them after the pairs that matter most, some of them after all. */
            bool matters = pair >= 0xC000 && (pair + 1) % 16 < 2;
            if (!matters && more % 29 != 0)
                continue;
            text[HEAD + 2] = classes[more / CLASSES];
            text[HEAD + 3] = classes[more % CLASSES];
            check_kernels(text, sizeof text, sizeof text);
        }
    }
}

TEST(every_kernel_judges_the_same_at_every_place)
{
    enum { LEN = 2 * 2048 + 300 };
    static _Alignas(UTF8_ALIGN) unsigned char text[LEN];

    for (size_t k = 0; k < SEQUENCES; k++)
        for (size_t place = 0; place < LEN - 8; place++) {
            /* Borders of vectors are what there is to be seen. */
            if ((place + 5) % 16 > 8 || (place > 400 && (place + 5) % 64 > 8))
                continue;
            memset(text, 'x', LEN);
            for (size_t i = place & 1; k & 1 && i < place; i += 2)
                memcpy(text + i, "é", 2);
            memcpy(text + place, sequences[k], strlen(sequences[k]));
            check_kernels(text, LEN, LEN);
        }
}

TEST(every_kernel_judges_the_same_wherever_the_text_is_cut)
{
    enum { LEN = 900 };
    static unsigned char text[LEN];

    for (size_t k = 0; k < SEQUENCES; k++)
        for (size_t step = 1; step < LEN; step += 1 + step / 40) {
            size_t len = strlen(sequences[k]);
            for (size_t i = 0; i < LEN; i++)
                text[i] = (unsigned char)"漢é x"[i % 7];
            text[LEN - 1 - (LEN - 1) % 7] = 'x';
            memcpy(text + LEN / 7 / 2 * 7 - 7 * (step % 5), sequences[k], len);
            check_kernels(text, LEN, step);
        }
}

TEST(every_kernel_judges_the_same_at_every_alignment_and_length)
{
    static const char line[] = "naïve\r\ncafé 漢字 \xF0\x9F\x98\x80 plain\n";
    enum { MOST = 200 };
    _Alignas(UTF8_ALIGN) unsigned char text[UTF8_ALIGN + 4 * MOST];

    for (size_t align = 0; align < UTF8_ALIGN; align++)
        for (size_t len = 0; len <= 3 * MOST; len += len < MOST ? 1 : 13) {
            for (size_t i = 0; i < len; i++)
                text[align + i] = (unsigned char)line[(i + align) % (sizeof line - 1)];
            check_kernels(text + align, len, MOST);
            check_kernels(text + align, len, 4 * MOST);
        }
}

TEST(a_scan_tells_how_high_the_characters_are)
{
    static const struct {
        const char *text;
        uint32_t highest;
    } cases[] = {{"", 0x7F},
                 {"abc\x7F", 0x7F},
                 {"caf\xC3\xA9\xC3\xBF", 0xFF},
                 {"\xC4\x80", 0xFFFF},
                 {"\xEF\xBF\xBF\xC3\xA9", 0xFFFF},
                 {"\xF0\x90\x80\x80 \xE6\x97\xA5", 0x10FFFF},
                 {"\xF4\x8F\xBF\xBF", 0x10FFFF}};
    unsigned char text[1000];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t place = 0; place < sizeof text - 8; place += 7) {
            struct utf8_scan scan = {0};
            memset(text, 'x', sizeof text);
            memcpy(text + place, cases[i].text, strlen(cases[i].text));
            ASSERT(utf8_scan(&scan, text, sizeof text));
            ASSERT_INT(utf8_scan_highest(&scan), cases[i].highest);
        }
}

TEST(what_is_not_asked_for_is_not_counted)
{
    static const char line[] = "naïve\r\ncafé 漢字 plain\n";
    char text[100 * (sizeof line - 1)];

    for (size_t i = 0; i < 100; i++)
        memcpy(text + i * (sizeof line - 1), line, sizeof line - 1);
    struct utf8_scan scan = {.count = UTF8_CHARS_AND_CRLF};
    ASSERT(utf8_scan(&scan, text, sizeof text));
    ASSERT_INT(scan.chars, 100 * (sizeof line - 1 - 6));
    ASSERT_INT(scan.crlf, 100);
    ASSERT(scan.lf < 200);
    ASSERT(scan.has_cr && utf8_scan_complete(&scan));

    scan = (struct utf8_scan){.count = UTF8_CHARS};
    ASSERT(utf8_scan(&scan, text, sizeof text));
    ASSERT_INT(scan.chars, 100 * (sizeof line - 1 - 6));
    ASSERT(!scan.has_cr && utf8_scan_complete(&scan));
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
        size_t step = 1 + next_random(&seed) % 700;
        check(text, len, step);
        check(text, len, len + 1);
        check_kernels(text, len, step * 3);
        check_kernels(text, len, len + 1);
    }
}

TEST(a_trusted_scan_counts_from_the_middle_of_a_character)
{
    struct utf8_scan scan = {.trusted = true};

    ASSERT(utf8_scan(&scan, "\xA9xyz", 4));
    ASSERT_INT(scan.chars, 3);

    static unsigned char text[1000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)"\xA5\xE6\x97"[i % 3];
    ASSERT(utf8_scan(&scan, text, sizeof text));
    ASSERT_INT(scan.chars, 3 + 333);
}

TEST(utf8_next_decodes_one_character_or_what_one_replacement_is_for)
{
    static const struct {
        const char *text;
        size_t len, size;
        uint32_t character;
    } cases[] = {
        {"a", 1, 1, 'a'},
        {"", 1, 1, 0},
        {"\xC3\xA9x", 3, 2, 0xE9},
        {"\xE6\x97\xA5", 3, 3, 0x65E5},
        {"\xF4\x8F\xBF\xBF", 4, 4, 0x10FFFF},
        {"\xE6\x97", 4, 2, UTF8_INVALID},         /* cut by the end of the string */
        {"\xE6\x97\xA5", 2, 2, UTF8_INVALID},     /* cut by `len` */
        {"\xC0\x80", 2, 1, UTF8_INVALID},         /* over-long */
        {"\xE0\x80\x80", 3, 1, UTF8_INVALID},     /* the same */
        {"\xED\xA0\x80", 3, 1, UTF8_INVALID},     /* a surrogate */
        {"\xF4\x90\x80\x80", 4, 1, UTF8_INVALID}, /* above U+10FFFF */
        {"\xF0\x9F\x98x", 4, 3, UTF8_INVALID},
        {"\xFF", 1, 1, UTF8_INVALID},
        {"\x80", 1, 1, UTF8_INVALID},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t character = 0;
        ASSERT_INT(utf8_next(cases[i].text, cases[i].len, &character), cases[i].size);
        ASSERT_INT(character, cases[i].character);
    }
}
