/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"
#include "sandbox/approve.h"

static bool match(const char *pattern, const char *const *argv)
{
    char *line = approve_line(argv);

    ASSERT(line);
    bool is_match = approve_matches(pattern, argv, line);
    free(line);
    return is_match;
}

TEST(a_pattern_matches_the_line_the_last_part_and_the_script)
{
    const char *const git[] = {"/usr/bin/git", "push", "origin", NULL};
    const char *const shell[] = {"/bin/bash", "-x", "-lc", "git push", NULL};
    const char *const other[] = {"sh", "script", "-c", "git push", NULL};

    ASSERT(match("git push*", git));
    ASSERT(match("/usr/bin/git push origin", git));
    ASSERT(match("*", git));
    ASSERT(!match("git push", git));
    ASSERT(!match("", git));
    ASSERT(match("git push", shell));
    ASSERT(match("*-lc 'git push'", shell));
    ASSERT(!match("git push", other));
    ASSERT(match("*p*s*o*n", git));
}

TEST(options_before_and_after_c_do_not_hide_the_script)
{
    static const char script[] = "git push";
    const char *const commands[][8] = {
        {"bash", "--norc", "-c", script},
        {"bash", "-o", "errexit", "-c", script},
        {"bash", "-eo", "pipefail", "-c", script},
        {"bash", "+O", "extglob", "-c", script},
        {"bash", "--rcfile", "/dev/null", "-c", script},
        {"sh", "-c", "-e", script},
        {"sh", "-c", "--", script},
        {"sh", "-c", " \n\tgit push"},
        {"fish", "-c", script},
        {"sh", "-c", "exec \"$0\" -c -- \"$1\"", "sh", script}};
    const char *const file[] = {"sh", "-e", "script", "-c", script, NULL};
    const char *const after[] = {"sh", "--", "-c", script, NULL};
    const char *const none[] = {"sh", "-o", NULL};

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        ASSERT(match("git push*", commands[i]));
    ASSERT(!match("git push*", file));
    ASSERT(!match("git push*", after));
    ASSERT(!match("git push*", none));
}

TEST(a_directory_in_quotes_does_not_hide_the_program)
{
    const char *const argv[] = {"/tmp/a b/git", "push", "it's", NULL};
    const char *const only[] = {"/tmp/a b/", NULL};

    ASSERT(match("git push*", argv));
    ASSERT(match("'/tmp/a b/git' push*", argv));
    ASSERT(!match("push*", argv));
    ASSERT(!match("git*", only));
}

TEST(a_line_is_quoted_as_for_a_shell)
{
    const char *const argv[] = {"a",         "",    "b c",   "it's",
                                "new\nline", "x=1", "$HOME", NULL};
    char *line = approve_line(argv);

    ASSERT_STR(line, "a '' 'b c' 'it'\\''s' 'new\nline' x=1 '$HOME'");
    free(line);
}
