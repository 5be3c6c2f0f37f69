/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"
#include "not-under-valgrind.h"
#include "policies.h"

NOT_UNDER_VALGRIND("valgrind takes what PCRE2 compiles at run time for uninitialised")

enum { PLENTY = 1000000 }; /* of milliseconds: no machine is too slow for that */

static void auto_matches(struct cay_matches *matches)
{
    cay_matches_done(matches);
}
#define AUTO_MATCHES __attribute__((cleanup(auto_matches))) struct cay_matches

/* "path:line:column:text|" of every match; valid until the next call. */
static const char *words_of(const struct cay_matches *matches)
{
    static struct buf words;

    buf_done(&words);
    buf_init(&words, 1 << 20);
    for (size_t i = 0; i < matches->count; i++)
        buf_format(&words, "%s:%llu:%llu:%s|", matches->items[i].path,
                   (unsigned long long)matches->items[i].line,
                   (unsigned long long)matches->items[i].column, matches->items[i].text);
    buf_append(&words, "", 0);
    ASSERT(!words.failed);
    return words.data;
}

static const char *grep_with(cay_files *files, const char *path, const char *regex,
                             struct cay_grep_options options)
{
    AUTO_MATCHES matches = {0};

    options.size = sizeof options;
    options.timeout_ms = PLENTY;
    ASSERT_OK(cay_files_grep(files, path, regex, &options, &matches, &err));
    return words_of(&matches);
}

static const char *grep(cay_files *files, const char *path, const char *regex)
{
    return grep_with(files, path, regex, (struct cay_grep_options){0});
}

TEST(a_match_tells_path_line_column_and_text)
{
    put_file("data/a.txt", "one\ntwo three\nfour\n");
    put_file("data/sub/b.txt", "no\nthree");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(grep(files, "data", "thr.e"),
               "data/a.txt:2:5:two three|data/sub/b.txt:2:1:three|");
}

TEST(a_line_has_one_match_and_the_order_is_by_path_then_line)
{
    put_file("data/b", "x x x\nx\n");
    put_file("data/a/c", "x");
    put_file("data/a.txt", "x");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(grep(files, "data", "x"),
               "data/a.txt:1:1:x|data/a/c:1:1:x|data/b:1:1:x x x|data/b:2:1:x|");
}

TEST(a_single_file_can_be_searched)
{
    put_file("data/a", "yes\n");
    put_file("data/b", "yes\n");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(grep(files, "data/b", "yes"), "data/b:1:1:yes|");
}

TEST(what_does_not_exist_or_lies_outside_is_an_error)
{
    AUTO(cay_files) files = open_data();
    struct cay_matches matches;

    ASSERT_CODE(cay_files_grep(files, "data/none", "x", NULL, &matches, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_files_grep(files, "none", "x", NULL, &matches, &err), CAY_E_OUTSIDE);
}

TEST(anchors_mean_the_line_and_line_ends_do_not_count)
{
    put_file("data/crlf", "first\r\nsecond\r\n\r\nlast");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(grep(files, "data", "^second$"), "data/crlf:2:1:second|");
    ASSERT_STR(grep(files, "data", "^$"), "data/crlf:3:1:|");
    ASSERT_STR(grep(files, "data", "first\\s+second"), "");
    ASSERT_STR(grep(files, "data", "t$"), "data/crlf:1:5:first|data/crlf:4:4:last|");
}

TEST(case_can_be_ignored_and_text_taken_as_it_is)
{
    put_file("data/a", "Hello (world)\nÉTÉ\n");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(grep(files, "data", "hello"), "");
    ASSERT_STR(grep_with(files, "data", "hello",
                         (struct cay_grep_options){.flags = CAY_GREP_IGNORE_CASE}),
               "data/a:1:1:Hello (world)|");
    ASSERT_STR(grep_with(files, "data", "été",
                         (struct cay_grep_options){.flags = CAY_GREP_IGNORE_CASE}),
               "data/a:2:1:ÉTÉ|");
    ASSERT_STR(grep_with(files, "data", "(world)",
                         (struct cay_grep_options){.flags = CAY_GREP_FIXED}),
               "data/a:1:7:Hello (world)|");
    ASSERT_STR(grep_with(files, "data", "(WORLD)",
                         (struct cay_grep_options){.flags = CAY_GREP_FIXED |
                                                            CAY_GREP_IGNORE_CASE}),
               "data/a:1:7:Hello (world)|");
}

TEST(a_wrong_expression_says_what_is_wrong_and_where)
{
    AUTO(cay_files) files = open_data();
    struct cay_matches matches;

    ASSERT_CODE(cay_files_grep(files, "data", "ab(c", NULL, &matches, &err),
                CAY_E_INVALID);
    ASSERT_HAS(err.message, "at byte 4");
    ASSERT_HAS(err.message, "parenthesis");
    ASSERT_STR(err.subject, "ab(c");
    ASSERT_CODE(cay_files_grep(files, "data", "\xff", NULL, &matches, &err),
                CAY_E_INVALID);
}

TEST(an_expression_that_would_take_for_ever_is_stopped)
{
    char line[64];
    struct cay_matches matches;

    memset(line, 'a', sizeof line - 1);
    memcpy(line + sizeof line - 2, "!", 2);
    put_file("data/evil.txt", line);
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(cay_files_grep(files, "data", "^(a+)+$", NULL, &matches, &err),
                CAY_E_LIMIT);
    ASSERT_STR(err.subject, "data/evil.txt");
    ASSERT_CODE(cay_files_grep(files, "data", "(*NO_JIT)^(a|aa)+$", NULL, &matches, &err),
                CAY_E_LIMIT);
}

/* Each line costs some milliseconds, a thousand of them more than the time given. */
TEST(an_expression_that_would_take_for_ever_on_a_long_line_ends_at_the_deadline)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 1 << 20 };
    static const char *const all[] = {"a+a+b", "(?=(a+))a*b", ".{0,65535}b", "a+(?>a+)b"};
    const struct cay_grep_options options = {.size = sizeof options, .timeout_ms = 100};
    struct cay_matches matches;
    AUTO_FREE char *line = malloc(LEN + 1);

    ASSERT(line);
    memset(line, 'a', LEN);
    line[LEN] = '\0';
    put_file("data/a", line);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ASSERT_CODE(cay_files_grep(files, "data", all[i], &options, &matches, &err),
                    CAY_E_TIMEOUT);
}

TEST(a_search_ends_at_its_deadline)
{
    struct cay_grep_options options = {.size = sizeof options, .timeout_ms = 1};
    struct cay_matches matches;
    AUTO_BUF text;

    buf_init(&text, 1 << 20);
    for (int i = 0; i < 1000; i++)
        buf_text(&text, "aaaaaaaaaaaaaaaaaa!\n");
    put_bytes("data/slow", text.data, text.len);
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(cay_files_grep(files, "data", "^(a+)+$", &options, &matches, &err),
                CAY_E_TIMEOUT);
}

TEST(binary_files_are_skipped_and_counted)
{
    AUTO_MATCHES matches = {0};

    put_file("data/text", "match\n");
    put_bytes("data/binary", "match\0match\n", 12);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_grep(files, "data", "match", NULL, &matches, &err));
    ASSERT_STR(words_of(&matches), "data/text:1:1:match|");
    ASSERT_INT(matches.files_searched, 1);
    ASSERT_INT(matches.files_skipped, 1);
}

TEST(text_that_is_not_utf8_is_searched)
{
    put_file("data/latin1", "caf\xe9 au lait\n");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(grep(files, "data", "lait"), "data/latin1:1:9:caf\xe9 au lait|");
}

TEST(what_a_rule_forbids_is_skipped_and_counted)
{
    static const char *const suffixes[] = {".txt"};
    struct cay_mount mount = CAY_MOUNT_INIT;
    AUTO_MATCHES matches = {0};

    mount.name = "data";
    mount.host = "data";
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 1;
    mount.max_file_bytes = 10;
    put_file("data/a.txt", "x");
    put_file("data/a.md", "x");
    put_file("data/large.txt", "x0123456789");
    ASSERT(symlink("a.md", scratch_path("data/link.txt")) == 0);
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    ASSERT_OK(cay_files_grep(files, "data", "x", NULL, &matches, &err));
    ASSERT_STR(words_of(&matches), "data/a.txt:1:1:x|");
    ASSERT_INT(matches.files_skipped, 3);
    cay_matches_done(&matches);
    /* Named itself, it is an error. */
    ASSERT_CODE(cay_files_grep(files, "data/a.md", "x", NULL, &matches, &err),
                CAY_E_SUFFIX);
    ASSERT_CODE(cay_files_grep(files, "data/large.txt", "x", NULL, &matches, &err),
                CAY_E_TOO_LARGE);
}

TEST(files_over_the_size_asked_for_are_skipped)
{
    AUTO_MATCHES matches = {0};
    struct cay_grep_options options = {.size = sizeof options, .max_file_bytes = 3};

    put_file("data/3", "x12");
    put_file("data/4", "x123");
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_grep(files, "data", "x", &options, &matches, &err));
    ASSERT_STR(words_of(&matches), "data/3:1:1:x12|");
    ASSERT_INT(matches.files_skipped, 1);
}

TEST(a_pattern_and_exclusions_choose_the_files)
{
    static const char *const exclude[] = {"sub"};

    put_file("data/a.c", "x");
    put_file("data/a.h", "x");
    put_file("data/sub/b.c", "x");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(
        grep_with(files, "data", "x", (struct cay_grep_options){.pattern = "**/*.c"}),
        "data/a.c:1:1:x|data/sub/b.c:1:1:x|");
    ASSERT_STR(grep_with(files, "data", "x",
                         (struct cay_grep_options){.pattern = "**/*.c",
                                                   .exclude = exclude,
                                                   .exclude_count = 1}),
               "data/a.c:1:1:x|");
}

TEST(it_stops_at_max_matches_and_says_so)
{
    AUTO_MATCHES some = {0}, all = {0};
    struct cay_grep_options options = {.size = sizeof options, .max_matches = 3};

    put_file("data/a", "x\nx\n");
    put_file("data/b", "x\nx\n");
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_grep(files, "data", "x", &options, &some, &err));
    ASSERT_STR(words_of(&some), "data/a:1:1:x|data/a:2:1:x|data/b:1:1:x|");
    ASSERT(some.truncated);
    options.max_matches = 4;
    ASSERT_OK(cay_files_grep(files, "data", "x", &options, &all, &err));
    ASSERT_INT(all.count, 4);
    ASSERT(!all.truncated);
}

TEST(lines_and_columns_are_right_across_the_borders_of_what_is_read_at_once)
{
    enum { LINES = 300000 };
    AUTO_MATCHES matches = {0};
    struct cay_grep_options options = {
        .size = sizeof options, .max_matches = LINES, .timeout_ms = PLENTY};
    AUTO_BUF text;

    buf_init(&text, 16 << 20);
    for (int i = 1; i <= LINES; i++)
        buf_format(&text, "%*s needle %d\n", i % 17, "", i);
    put_bytes("data/long", text.data, text.len);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_grep(files, "data", "needle [0-9]+$", &options, &matches, &err));
    ASSERT_INT(matches.count, LINES);
    for (int i = 1; i <= LINES; i++) {
        ASSERT_INT(matches.items[i - 1].line, i);
        ASSERT_INT(matches.items[i - 1].column, i % 17 + 2);
    }
}

TEST(a_long_line_is_cut_around_the_match_between_characters)
{
    AUTO_MATCHES matches = {0};
    struct cay_grep_options options = {.size = sizeof options, .max_line_bytes = 21};
    AUTO_BUF text;

    buf_init(&text, 1 << 20);
    for (int i = 0; i < 100; i++)
        buf_text(&text, "é");
    buf_text(&text, "needle");
    for (int i = 0; i < 100; i++)
        buf_text(&text, "漢");
    put_bytes("data/long", text.data, text.len);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_grep(files, "data", "needle", &options, &matches, &err));
    ASSERT_INT(matches.items[0].column, 201);
    ASSERT_STR(matches.items[0].text, "éééneedle漢漢");
}

TEST(a_line_of_many_megabytes_is_searched_to_its_end)
{
    enum { SIZE = 5 << 20 };
    struct cay_grep_options options = {.size = sizeof options, .timeout_ms = PLENTY};
    char *line = malloc(SIZE);
    AUTO_MATCHES middle = {0}, end = {0};

    memset(line, 'x', SIZE);
    memcpy(line, "start", 5);
    line[2 << 20] = '\n';
    memcpy(line + (2 << 20) + 1 + (1 << 20) - 3, "needle", 6); /* across a border */
    memcpy(line + SIZE - 4, "last", 4);
    put_bytes("data/line", line, SIZE);
    free(line);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_grep(files, "data", "needle", &options, &middle, &err));
    ASSERT_INT(middle.count, 1);
    ASSERT_INT(middle.items[0].line, 2);
    ASSERT_INT(middle.items[0].column, (1 << 20) - 3 + 1);
    ASSERT_OK(cay_files_grep(files, "data", "last$", &options, &end, &err));
    ASSERT_INT(end.count, 1);
    ASSERT_INT(end.items[0].column, SIZE - 4 - (2 << 20) - 1 + 1);
    ASSERT_STR(grep(files, "data", "^xneedle"), "");
}

/* A line that is longer is searched in pieces; where one begins is no border of words. */
TEST(what_is_before_a_piece_of_a_long_line_is_seen)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 3 << 20, SECOND = (1 << 20) - (64 << 10) };
    static const char *const none[] = {"\\bfoo", "(?<!x)foo", "\\Afoo", "^foo"};
    AUTO_FREE char *line = malloc(LEN + 1);

    ASSERT(line);
    memset(line, 'x', LEN);
    line[LEN] = '\0';
    memcpy(line + SECOND, "foo", 3);
    put_file("data/a", line);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ASSERT_STR(grep(files, "data", none[i]), "");
    ASSERT_STR(grep_with(files, "data", "(?<=x)foo",
                         (struct cay_grep_options){.max_line_bytes = 3}),
               "data/a:1:983041:foo|");
    line[SECOND - 1] = ' ';
    put_file("data/a", line);
    ASSERT_STR(grep_with(files, "data", "\\bfoo",
                         (struct cay_grep_options){.max_line_bytes = 3}),
               "data/a:1:983041:foo|");
}

TEST(a_fifo_is_not_opened_and_a_link_out_not_followed)
{
    put_file("outside/secret", "match");
    put_file("data/a", "match");
    ASSERT(mkfifo(scratch_path("data/fifo"), 0600) == 0);
    ASSERT(symlink("../outside/secret", scratch_path("data/out")) == 0);
    ASSERT(symlink("a", scratch_path("data/link")) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_STR(grep(files, "data", "match"), "data/a:1:1:match|data/link:1:1:match|");
}

TEST(everything_readable_is_searched_in_the_order_of_paths)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};

    mounts[0].name = "/m";
    mounts[0].host = "one";
    mounts[1].name = "/m/n";
    mounts[1].host = "two";
    put_file("one/a", "x");
    put_file("one/n/phantom", "x");
    put_file("one/z", "x");
    put_file("two/b", "x");
    AUTO(cay_files) files = open_mounts(CAY_STYLE_MOUNTS, mounts, 2);
    ASSERT_STR(grep(files, "/", "x"), "/m/a:1:1:x|/m/n/b:1:1:x|/m/z:1:1:x|");
    ASSERT_STR(grep_with(files, "/", "x", (struct cay_grep_options){.max_matches = 2}),
               "/m/a:1:1:x|/m/n/b:1:1:x|");
}

static int asked;

static enum cay_verdict refuse(void *cookie, const struct cay_approval *request,
                               char note[CAY_NOTE_MAX])
{
    (void)cookie;
    ASSERT_INT(request->op, CAY_OP_SEARCH);
    ASSERT_HAS(request->summary, "Search the files in data");
    snprintf(note, CAY_NOTE_MAX, "not today");
    asked++;
    return CAY_VERDICT_DENY;
}

TEST(searching_asks_where_reading_needs_approval)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = CAY_STYLE_PATHS,
                                       .mounts = &mount,
                                       .mount_count = 1,
                                       .base = scratch()};
    struct cay_files_options options = {.size = sizeof options, .approver = refuse};
    AUTO(cay_policy) policy = NULL;
    AUTO(cay_files) files = NULL;
    struct cay_matches matches;

    mount.name = "data";
    mount.host = "data";
    mount.read_approval = true;
    put_file("data/a", "x");
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    asked = 0;
    ASSERT_CODE(cay_files_grep(files, "data", "x", NULL, &matches, &err),
                CAY_E_NOT_APPROVED);
    ASSERT_HAS(err.hint, "not today");
    ASSERT_INT(asked, 1);
}

/* What is closed is denied where it is named, and skipped where what it is in is. */
static void search_closed(const char *closed)
{
    enum { NOBODY = 65534 };
    AUTO(cay_files) files = open_data();
    struct cay_matches named = {0}, above = {0};
    bool is_root = geteuid() == 0;

    put_file("data/z", "x");
    ASSERT_INT(chmod(scratch_path(closed), 0), 0);
    ASSERT(!is_root || seteuid(NOBODY) == 0);
    int code = cay_files_grep(files, closed, "x", NULL, &named, &err);
    int above_code = cay_files_grep(files, "data", "x", NULL, &above, NULL);
    ASSERT(!is_root || seteuid(0) == 0);
    ASSERT_INT(chmod(scratch_path(closed), 0700), 0);
    ASSERT_INT(code, CAY_E_DENIED);
    ASSERT_STR(err.subject, closed);
    ASSERT_INT(above_code, CAY_OK);
    ASSERT_INT(above.files_searched, 1);
    ASSERT_INT(above.files_skipped, 1);
    cay_matches_done(&above);
}

TEST(a_directory_that_may_not_be_read_is_denied_or_counted)
{
    put_file("data/closed/a", "x");
    search_closed("data/closed");
}

TEST(a_file_that_may_not_be_read_is_denied_or_counted)
{
    put_file("data/closed", "x");
    search_closed("data/closed");
}

TEST(a_deep_file_is_searched_too)
{
    enum { DEPTH = 300 };
    char path[2 * (DEPTH + 1) + 5] = "data";
    AUTO(cay_files) files = open_data();
    AUTO_MATCHES matches = {0};

    for (size_t i = 0; i <= DEPTH; i++)
        memcpy(path + 4 + 2 * i, i < DEPTH ? "/d" : "/a", 3);
    put_file(path, "x");
    ASSERT_OK(cay_files_grep(files, "data", "x", NULL, &matches, &err));
    ASSERT_INT(matches.count, 1);
    ASSERT_STR(matches.items[0].path, path);
}
