/* SPDX-License-Identifier: Apache-2.0 */

/* Patterns, encodings and tracebacks: what needs no sandbox. */
#include "../unit/harness.h"
#include "agent/command.h"
#include "agent/text.h"
#include "base/glob.h"
#include "cay/agent.h"

static bool path_matches(const char *pattern, const char *path, bool dots)
{
    struct glob glob;

    ASSERT_OK(glob_split("test", pattern, dots ? 0 : GLOB_HIDE_DOTS, &glob, &err));
    bool fits = glob_matches_path(&glob, 0, path);
    glob_done(&glob);
    return fits;
}

TEST(names_match_as_in_fnmatch)
{
    ASSERT(glob_match_name("*", "anything") && glob_match_name("*", "") &&
           glob_match_name("a*c", "abc"));
    ASSERT(glob_match_name("*.py", "x.py") && !glob_match_name("*.py", "x.pyc"));
    ASSERT(glob_match_name("?", "\xC3\xA9") && !glob_match_name("?", "ab") &&
           glob_match_name("?", "\xFF"));
    ASSERT(glob_match_name("[a-c]x", "bx") && !glob_match_name("[a-c]x", "dx"));
    ASSERT(glob_match_name("[!a-c]x", "dx") && !glob_match_name("[!a-c]x", "ax"));
    ASSERT(glob_match_name("[]]", "]") && glob_match_name("[!]]", "a") &&
           glob_match_name("[^a]", "^"));
    ASSERT(glob_match_name("[-a]", "-") && glob_match_name("[a-]", "-") &&
           !glob_match_name("[z-a]", "m"));
    ASSERT(glob_match_name("[", "[") && glob_match_name("a[b", "a[b") &&
           glob_match_name("[!", "[!"));
    ASSERT(glob_match_name("\\*", "\\x") && !glob_match_name("\\*", "*"));
    ASSERT(glob_match_name("*a*a*a*b", "aaaaaaaaaaaaab") &&
           !glob_match_name("*a*a*a*b", "aaaaaaaa"));
    ASSERT(glob_match_name("[\xC3\xA0-\xC3\xA9]", "\xC3\xA8"));
    ASSERT(!glob_match_name("", "a") && glob_match_name("", ""));
}

TEST(paths_match_part_by_part)
{
    ASSERT(path_matches("a/*.c", "a/b.c", false) &&
           !path_matches("a/*.c", "a/b/c.c", false));
    ASSERT(path_matches("**/*.c", "x.c", false) &&
           path_matches("**/*.c", "a/b/x.c", false));
    ASSERT(path_matches("**", "", false) && path_matches("**", "a/b", false));
    ASSERT(path_matches("a/**/b", "a/b", false) &&
           path_matches("a/**/b", "a/x/y/b", false));
    ASSERT(path_matches("**/a/**/b", "x/a/y/b", false));
    ASSERT(!path_matches("**/*", ".git/x", false) &&
           path_matches("**/*", ".git/x", true));
    ASSERT(!path_matches("**/*", "a/.b", false) && path_matches("**/.*", "a/.b", false));
    ASSERT(path_matches("./a//b", "a/b", false));
}

TEST(many_stars_in_a_pattern_take_no_time)
{
    ASSERT(!path_matches("**/**/**/**/**/**/**/**/**/**/**/**/x",
                         "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/y",
                         false));
}

static const char *guess(const char *bytes, size_t len, bool is_all)
{
    return encoding_slug(encoding_guess(bytes, len, is_all));
}

TEST(an_encoding_is_guessed_from_the_first_bytes)
{
    ASSERT_STR(guess("", 0, true), "utf-8");
    ASSERT_STR(guess("plain", 5, true), "utf-8");
    ASSERT_STR(guess("\xC3\xA9", 2, true), "utf-8");
    ASSERT_STR(guess("\xEF\xBB\xBFx", 4, true), "utf-8");
    ASSERT_STR(guess("abc\xC3", 4, false), "utf-8");
    ASSERT_STR(guess("abc\xC3", 4, true), "latin-1");
    ASSERT_STR(guess("caf\xE9 au lait", 12, true), "latin-1");
    ASSERT_STR(guess("\xFF\xFEh\0i\0", 6, true), "utf-16");
    ASSERT_STR(guess("\xFE\xFF\0h\0i", 6, true), "utf-16");
    ASSERT_STR(guess("\xFF\xFE\0\0h\0\0\0", 8, true), "binary");
    ASSERT_STR(guess("\x7F"
                     "ELF\2\1\1\0",
                     8, true),
               "binary");
    ASSERT_STR(guess("\x89PNG\r\n\x1A\n", 8, true), "binary");
}

static const char *error_of(const char *text)
{
    static char line[512];

    return code_traceback_error(text, strlen(text), line, sizeof line) ? line : NULL;
}

TEST(the_last_line_of_a_traceback_names_the_error)
{
    ASSERT_STR(error_of("Traceback (most recent call last):\n"
                        "  File \"/tmp/x/main.py\", line 1, in <module>\n"
                        "    1/0\n"
                        "    ~^~\n"
                        "ZeroDivisionError: division by zero\n"),
               "ZeroDivisionError: division by zero");
    ASSERT_STR(error_of("  File \"x.py\", line 1\n    (\n    ^\n"
                        "SyntaxError: '(' was never closed\n"),
               "SyntaxError: '(' was never closed");
    ASSERT_STR(error_of("  File \"x\", line 1, in f\nKeyboardInterrupt"),
               "KeyboardInterrupt");
    ASSERT_STR(error_of("  File \"x\", line 1, in f\nmy.pkg.Error: two\nlines\n"),
               "my.pkg.Error: two");
    ASSERT_STR(error_of("  File \"a\", line 1\nKeyError: 'k'\n\nDuring handling of the "
                        "above exception, another exception occurred:\n\n"
                        "  File \"a\", line 3\nValueError: last\n"),
               "ValueError: last");
}

TEST(what_is_no_traceback_names_none)
{
    ASSERT_STR(error_of(""), NULL);
    ASSERT_STR(error_of("warning: something\n"), NULL);
    ASSERT_STR(error_of("ValueError: only said\n"), NULL);
    ASSERT_STR(error_of("  File \"x\"\nnot an error line: at all\n"), NULL);
    ASSERT_STR(error_of("  File \"x\", line 1\nE: \xFF\n"), "E: \xEF\xBF\xBD");
}

TEST(a_status_has_a_name)
{
    ASSERT_STR(cay_status_slug(CAY_STATUS_SUCCESS), "success");
    ASSERT_STR(cay_status_slug(CAY_STATUS_ERROR), "error");
    ASSERT_STR(cay_status_slug(CAY_STATUS_TIMEOUT), "timeout");
    ASSERT_STR(cay_status_slug(CAY_STATUS_RUNNING), "running");
    ASSERT_STR(cay_status_slug(CAY_STATUS_STOPPED), "stopped");
    ASSERT_STR(cay_status_slug((enum cay_status)99), "unknown");
}
