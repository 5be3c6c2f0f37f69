/* SPDX-License-Identifier: Apache-2.0 */

/* Output made fit to read, function by function. */
#include <stdio.h>
#include <time.h>

#include "../unit/harness.h"
#include "cay/agent.h"

typedef char *(*change)(const char *text, size_t len, size_t *ret_len);

static void expect(change function, const char *text, size_t len, const char *expected,
                   size_t expected_len)
{
    size_t got = 12345;
    AUTO_FREE char *out = function(text, len, &got);

    ASSERT(out);
    ASSERT_MEM(out, got, expected, expected_len);
    ASSERT_INT(out[got], 0);
}

#define EXPECT(function, text, expected)                                                 \
    expect(function, text, sizeof(text) - 1, expected, sizeof(expected) - 1)

static char *collapse(const char *text, size_t len, size_t *ret_len)
{
    return cay_text_collapse(text, len, 4, ret_len);
}

TEST(control_sequences_are_taken_out)
{
    EXPECT(cay_text_strip_ansi, "", "");
    EXPECT(cay_text_strip_ansi, "plain", "plain");
    EXPECT(cay_text_strip_ansi, "\x1b[31mred\x1b[0m", "red");
    EXPECT(cay_text_strip_ansi, "\x1b[1;32;40mbold\x1b[m", "bold");
    EXPECT(cay_text_strip_ansi, "\x1b[?25l\x1b[2K\x1b[10;20Hx", "x");
    EXPECT(cay_text_strip_ansi, "\x1b[ q\x1b[!pdone", "done");
    EXPECT(cay_text_strip_ansi, "\x1b[12", "\x1b[12"); /* not complete */
    EXPECT(cay_text_strip_ansi, "\x1b[\x1b[31mx", "\x1b[x");
}

TEST(commands_to_the_terminal_are_taken_out_within_a_line)
{
    EXPECT(cay_text_strip_ansi, "\x1b]0;title\x07text", "text");
    EXPECT(cay_text_strip_ansi, "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link");
    EXPECT(cay_text_strip_ansi, "\x1b]0;first\x07mid\x07last", "mid\x07last");
    EXPECT(cay_text_strip_ansi, "\x1b]0;open\nnext\x07", "\x1b]0;open\nnext\x07");
    EXPECT(cay_text_strip_ansi, "\x1b]a\x1b]b\nc\x1b]d\x07", "\x1b]a\x1b]b\nc");
}

TEST(an_escape_goes_with_the_character_behind_it)
{
    EXPECT(cay_text_strip_ansi, "\x1b(B\x1b=x", "Bx");
    EXPECT(cay_text_strip_ansi, "a\x1b\xC3\xA9z", "az");
    EXPECT(cay_text_strip_ansi, "a\x1b\nb", "ab");
    EXPECT(cay_text_strip_ansi, "a\x1b", "a\x1b");
    EXPECT(cay_text_strip_ansi, "a\x1b\x1b[0mc", "a");
}

TEST(of_a_line_that_was_written_over_the_last_text_stays)
{
    EXPECT(cay_text_resolve_cr, "", "");
    EXPECT(cay_text_resolve_cr, "10%\r50%\r100%\n", "100%\n");
    EXPECT(cay_text_resolve_cr, "a\r\nb\r\n", "a\nb\n");
    EXPECT(cay_text_resolve_cr, "gone\r", "");
    EXPECT(cay_text_resolve_cr, "gone\r\r\nnext", "\nnext");
    EXPECT(cay_text_resolve_cr, "a\rb\r\nc\rx", "b\nx");
    EXPECT(cay_text_resolve_cr, "\n\n", "\n\n");
}

TEST(lines_that_repeat_are_counted)
{
    EXPECT(collapse, "", "");
    EXPECT(collapse, "a\na\na\n", "a\na\na\n");
    EXPECT(collapse, "a\na\na\na", "a\n... [2 similar lines collapsed]\na");
    EXPECT(collapse, "x\na\na\na\na\na\ny\n",
           "x\na\n... [3 similar lines collapsed]\na\ny\n");
    EXPECT(collapse, "a\na\na\nb\nb\nb\nb\n",
           "a\na\na\nb\n... [2 similar lines collapsed]\nb\n");
}

TEST(lines_that_differ_in_a_digit_are_all_there)
{
    EXPECT(collapse, "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n",
           "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n");
    EXPECT(collapse, "a\n\n\n\n\n\nb\n", "a\n\n\n\n\n\nb\n");
    EXPECT(collapse, " \n \n \n \n \n", " \n \n \n \n \n");
}

TEST(the_least_number_of_lines_can_be_chosen)
{
    size_t len;
    AUTO_FREE char *six = cay_text_collapse("a\na\na\na\na", 9, 6, &len);
    AUTO_FREE char *none = cay_text_collapse("a\na", 3, 0, &len);
    AUTO_FREE char *three = cay_text_collapse("a\na\na", 5, 0, &len);

    ASSERT_STR(six, "a\na\na\na\na");
    ASSERT_STR(none, "a\na");
    ASSERT_STR(three, "a\n... [1 similar lines collapsed]\na");
}

TEST(what_is_not_utf8_becomes_a_replacement_character)
{
    EXPECT(cay_text_strip_ansi, "a\xFFz", "a\xEF\xBF\xBDz");
    EXPECT(cay_text_resolve_cr, "\xC3\xA9\xC3", "\xC3\xA9\xEF\xBF\xBD");
    EXPECT(collapse, "\xE2\x82", "\xEF\xBF\xBD");
    EXPECT(cay_text_clean, "\xE2\x82\x41", "\xEF\xBF\xBD\x41");
    EXPECT(cay_text_clean, "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80");
    EXPECT(cay_text_clean, "\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT(cay_text_clean, "\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT(cay_text_clean, "a\0b", "a\0b");
}

TEST(cleaning_is_all_of_it_in_order)
{
    EXPECT(cay_text_clean, "\x1b[32mok\x1b[0m\r\n", "ok\n");
    EXPECT(cay_text_clean, "get\r\n\x1b[31mtry\x1b[0m\ntry\ntry\n1%\rtry\nend\n",
           "get\ntry\n... [2 similar lines collapsed]\ntry\nend\n");
}

/* Each of these is quadratic for who searches to the end for every beginning. */
TEST(hostile_text_is_cleaned_in_one_pass)
{
    static const char *const pieces[] = {"\x1b]", "\x1b[0;", "\x1b[", "\r",      "\n",
                                         "a\n",   "\xFF",    "\x1b",  "\x1b]x\n"};
    enum { COUNT = 1 << 20 };
    struct timespec begin, end;

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t piece = strlen(pieces[i]), len;
        AUTO_FREE char *text = malloc(COUNT * piece + 1);
        ASSERT(text);
        for (size_t k = 0; k < COUNT; k++)
            memcpy(text + k * piece, pieces[i], piece);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        AUTO_FREE char *out = cay_text_clean(text, COUNT * piece, &len);
        clock_gettime(CLOCK_MONOTONIC, &end);
        ASSERT(out);
        ASSERT(end.tv_sec - begin.tv_sec < 60); /* it would be hours */
    }
}
