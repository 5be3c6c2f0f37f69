/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include "diff/lines.h"
#include "harness.h"

static uint32_t seed = 1;

static uint32_t draw(uint32_t limit)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % limit;
}

static size_t count_changed(const struct lines_text *side)
{
    size_t count = 0;

    for (size_t i = 0; i < side->count; i++)
        count += side->changed[i];
    return count;
}

/* The lines that are not changed must be the same on both sides, in order. */
static void check_script(const struct lines *lines)
{
    const struct lines_text *old = &lines->sides[0], *new = &lines->sides[1];
    size_t j = 0;

    for (size_t i = 0; i < old->count; i++) {
        if (old->changed[i])
            continue;
        while (j < new->count &&new->changed[j])
            j++;
        ASSERT(j < new->count);
        ASSERT_MEM(new->text + new->starts[j], new->starts[j + 1] - new->starts[j],
                   old->text + old->starts[i], old->starts[i + 1] - old->starts[i]);
        j++;
    }
    while (j < new->count &&new->changed[j])
        j++;
    ASSERT_INT(j, new->count);
}

static bool is_same(const struct lines_text *a, size_t i, const struct lines_text *b,
                    size_t j)
{
    size_t len = a->starts[i + 1] - a->starts[i];

    return len == b->starts[j + 1] - b->starts[j] &&
           memcmp(a->text + a->starts[i], b->text + b->starts[j], len) == 0;
}

static size_t longest_common(const struct lines *lines)
{
    const struct lines_text *old = &lines->sides[0], *new = &lines->sides[1];
    static size_t table[64][64];

    for (size_t i = 0; i <= old->count; i++)
        for (size_t j = 0; j <= new->count; j++) {
            size_t best = 0;
            if (i && j && is_same(old, i - 1, new, j - 1))
                best = table[i - 1][j - 1] + 1;
            if (i && table[i - 1][j] > best)
                best = table[i - 1][j];
            if (j && table[i][j - 1] > best)
                best = table[i][j - 1];
            table[i][j] = best;
        }
    return table[old->count][new->count];
}

static size_t random_text(char *text, uint32_t most, uint32_t letters)
{
    size_t len = 0;

    for (uint32_t i = draw(most + 1); i > 0; i--) {
        text[len++] = (char)('a' + draw(letters));
        text[len++] = '\n';
    }
    if (len && draw(4) == 0)
        len--;
    return len;
}

TEST(a_script_is_correct_and_the_shortest)
{
    char before[128], after[128];

    for (int round = 0; round < 20000; round++) {
        uint32_t letters = 1 + draw(6);
        size_t before_len = random_text(before, 40, letters);
        size_t after_len = random_text(after, 40, letters);
        uint64_t steps = UINT64_MAX / 2;
        struct lines lines;
        ASSERT_INT(lines_compare(before, before_len, after, after_len, &steps, &lines),
                   0);
        check_script(&lines);
        size_t common = longest_common(&lines);
        ASSERT_INT(count_changed(&lines.sides[0]), lines.sides[0].count - common);
        ASSERT_INT(count_changed(&lines.sides[1]), lines.sides[1].count - common);
        lines_done(&lines);
    }
}

TEST(a_script_without_steps_left_is_longer_and_still_correct)
{
    char before[128], after[128];

    for (int round = 0; round < 5000; round++) {
        size_t before_len = random_text(before, 40, 3);
        size_t after_len = random_text(after, 40, 3);
        uint64_t steps = draw(40);
        struct lines lines;
        ASSERT_INT(lines_compare(before, before_len, after, after_len, &steps, &lines),
                   0);
        check_script(&lines);
        lines_done(&lines);
    }
}

TEST(a_text_with_too_many_lines_is_refused)
{
    size_t len = LINES_MAX + 1;
    AUTO_FREE char *text = malloc(len);
    uint64_t steps = 1000;
    struct lines lines;

    ASSERT(text);
    memset(text, '\n', len);
    ASSERT_INT(lines_compare(text, len, "", 0, &steps, &lines), -E2BIG);
    ASSERT_INT(lines_compare(text, len - 1, "\n", 1, &steps, &lines), 0);
    ASSERT_INT(count_changed(&lines.sides[0]), LINES_MAX - 1);
    lines_done(&lines);
}

/* Two orders of the same lines have no short script. */
TEST(unrelated_texts_use_no_more_steps_than_given)
{
    enum { LINES = 200000 };
    AUTO_BUF before, after;
    uint64_t steps = 1000000;
    struct lines lines;

    buf_init(&before, SIZE_MAX / 2);
    buf_init(&after, SIZE_MAX / 2);
    for (int i = 0; i < LINES; i++) {
        ASSERT(buf_format(&before, "%u\n", draw(LINES)));
        ASSERT(buf_format(&after, "%u\n", draw(LINES)));
    }
    ASSERT_INT(
        lines_compare(before.data, before.len, after.data, after.len, &steps, &lines), 0);
    ASSERT_INT(steps, 0);
    check_script(&lines);
    lines_done(&lines);
}
