/* SPDX-License-Identifier: Apache-2.0 */
#include "base/glob.h"

#include "harness.h"

static bool matches(const char *text, const char *path)
{
    struct glob pattern;

    ASSERT_OK(glob_compile("test", text, &pattern, &err));
    bool result = glob_matches_path(&pattern, 0, path);
    glob_done(&pattern);
    return result;
}

static void refused(const char *text, const char *because)
{
    struct glob pattern;

    ASSERT_CODE(glob_compile("test", text, &pattern, &err), CAY_E_INVALID);
    ASSERT_HAS(err.message, because);
}

TEST(a_star_takes_any_part_of_one_name)
{
    ASSERT(matches("*.txt", "a.txt"));
    ASSERT(matches("*.txt", ".txt"));
    ASSERT(matches("a*b*c", "abbbc"));
    ASSERT(matches("*", "anything"));
    ASSERT(!matches("*.txt", "a.txt.gz"));
    ASSERT(!matches("*.txt", "d/a.txt"));
    ASSERT(!matches("a*b*c", "abcd"));
}

TEST(names_that_start_with_a_dot_are_ordinary)
{
    ASSERT(matches("*", ".hidden"));
    ASSERT(matches("**/*", ".git/config"));
}

TEST(a_question_mark_takes_one_character_whatever_its_length_in_bytes)
{
    ASSERT(matches("?", "a"));
    ASSERT(matches("?", "é"));
    ASSERT(matches("?", "漢"));
    ASSERT(matches("?", "🜁"));
    ASSERT(matches("a?c", "aéc"));
    ASSERT(!matches("?", "ab"));
    ASSERT(!matches("??", "é"));
}

TEST(a_byte_that_is_not_utf8_counts_as_one_character)
{
    ASSERT(matches("?", "\xff"));
    ASSERT(matches("??", "\xc3("));
    ASSERT(matches("?", "\x80"));
    ASSERT(matches("???", "\xed\xa0\x80")); /* a surrogate */
    ASSERT(matches("??", "\xc0\x80"));      /* an over-long NUL */
    ASSERT(matches("\xff*", "\xff\xfe"));
    ASSERT(!matches("\xff", "\xfe"));
}

TEST(a_class_takes_one_of_its_characters)
{
    ASSERT(matches("[abc]", "b"));
    ASSERT(matches("[a-c]x", "bx"));
    ASSERT(matches("[à-ü]", "é"));
    ASSERT(matches("[]]", "]"));
    ASSERT(matches("[a-]", "-"));
    ASSERT(matches("[*]", "*"));
    ASSERT(matches("[^a]", "^"));
    ASSERT(!matches("[abc]", "d"));
    ASSERT(!matches("[*]", "x"));
    ASSERT(!matches("[c-a]", "b"));
    ASSERT(!matches("[a-z]", "\xff"));
}

TEST(a_class_with_an_exclamation_mark_takes_any_other)
{
    ASSERT(matches("[!abc]", "d"));
    ASSERT(matches("[!a-c]", "é"));
    ASSERT(matches("[!]]", "a"));
    ASSERT(!matches("[!abc]", "a"));
    ASSERT(!matches("[!]]", "]"));
}

TEST(a_bracket_that_is_never_closed_stands_for_itself)
{
    ASSERT(matches("[", "["));
    ASSERT(matches("a[b", "a[b"));
    ASSERT(matches("[]", "[]"));
    ASSERT(matches("[!]", "[!]"));
    ASSERT(!matches("[ab", "a"));
}

TEST(a_backslash_is_an_ordinary_character)
{
    ASSERT(matches("a\\*", "a\\b"));
    ASSERT(!matches("a\\*", "a*"));
}

TEST(two_stars_take_any_number_of_directories)
{
    ASSERT(matches("**/a", "a"));
    ASSERT(matches("**/a", "x/a"));
    ASSERT(matches("**/a", "x/y/z/a"));
    ASSERT(matches("x/**/a", "x/a"));
    ASSERT(matches("x/**/a", "x/y/z/a"));
    ASSERT(matches("**/x/**/a", "p/x/q/r/a"));
    ASSERT(!matches("x/**/a", "y/x/a"));
    ASSERT(!matches("**/a", "a/b"));
}

TEST(two_stars_at_the_end_take_everything_below_but_not_the_top)
{
    ASSERT(matches("x/**", "x/a"));
    ASSERT(matches("x/**", "x/a/b/c"));
    ASSERT(!matches("x/**", "x"));
    ASSERT(matches("**", "a/b"));
}

TEST(two_stars_inside_a_name_are_one_star)
{
    ASSERT(matches("a**b", "axxb"));
    ASSERT(!matches("a**b", "ax/xb"));
    ASSERT(!matches("***", "a/b"));
}

TEST(no_pattern_is_every_name_at_any_depth)
{
    ASSERT(matches("", "a"));
    ASSERT(matches("", "a/b/c"));
    ASSERT(matches(NULL, "a/b"));
}

TEST(dots_and_doubled_slashes_are_left_out)
{
    ASSERT(matches("./a//b/", "a/b"));
    refused(".", "no components");
}

TEST(matching_is_case_sensitive)
{
    ASSERT(!matches("*.TXT", "a.txt"));
}

TEST(a_pattern_that_leaves_the_directory_is_refused)
{
    refused("/etc/*", "must not start with '/'");
    refused("~/x", "must not start with '~'");
    refused("c:/x", "drive letter");
    refused("..", "must not contain '..'");
    refused("a/../b", "must not contain '..'");
    refused("a/..", "must not contain '..'");
    ASSERT(matches("a..b", "a..b"));
    ASSERT(matches("..a", "..a"));
}

TEST(a_pattern_that_is_too_long_is_refused)
{
    char text[GLOB_LENGTH_MAX + 2];

    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    refused(text, "4,096");
    text[sizeof text - 2] = '\0';
    ASSERT(!matches(text, "a"));
    for (size_t i = 1; i < 128; i += 2)
        text[i] = '/';
    text[127] = '\0';
    refused(text, "63 components");
    text[125] = '\0';
    ASSERT(!matches(text, "a"));
}

/* With a matcher that tries every way to share the letters out among the stars this would
 * not end in the age of the universe. */
TEST(many_stars_take_no_exponential_time)
{
    char text[4000], name[256];

    for (size_t i = 0; i < sizeof text - 1; i += 2)
        memcpy(text + i, "*a", 2);
    text[sizeof text - 2] = 'b';
    text[sizeof text - 1] = '\0';
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ASSERT(!matches(text, name));
}

TEST(two_stars_do_not_pass_through_links_but_names_do)
{
    struct glob pattern;

    ASSERT_OK(glob_compile("test", "**/a/b", &pattern, &err));
    glob_state start = glob_start(&pattern, 0);
    ASSERT(!glob_goes_deeper(&pattern, glob_step(&pattern, start, "link", true)));
    glob_state at = glob_step(&pattern, start, "a", true);
    ASSERT(glob_goes_deeper(&pattern, at));
    ASSERT(glob_accepts(&pattern, glob_step(&pattern, at, "b", false)));
    glob_done(&pattern);
}

TEST(a_walk_need_not_go_where_nothing_can_match)
{
    struct glob pattern;

    ASSERT_OK(glob_compile("test", "src/*.c", &pattern, &err));
    glob_state start = glob_start(&pattern, 0);
    ASSERT_INT(glob_step(&pattern, start, "doc", false), 0);
    glob_state src = glob_step(&pattern, start, "src", false);
    ASSERT(glob_goes_deeper(&pattern, src));
    ASSERT(!glob_goes_deeper(&pattern, glob_step(&pattern, src, "a.c", false)));
    glob_done(&pattern);
}
