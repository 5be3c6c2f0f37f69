/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/replace.h"
#include "policies.h"

static struct cay_edit_result result;

static struct cay_edit make(const char *old_text, const char *new_text, unsigned flags)
{
    return (struct cay_edit){old_text, strlen(old_text), new_text, strlen(new_text),
                             flags};
}

static int edit(cay_files *files, const char *path, const char *old_text,
                const char *new_text, unsigned flags)
{
    const struct cay_edit one = make(old_text, new_text, flags);

    return cay_files_edit(files, path, &one, 1, NULL, &result, &err);
}

TEST(the_one_occurrence_is_replaced)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "say hello to them");
    ASSERT_OK(edit(files, "data/a", "hello", "good-bye", 0));
    ASSERT_STR(get_file("data/a"), "say good-bye to them");
    ASSERT_INT(result.replaced, 1);
    ASSERT_INT(result.bytes, 20);
}

TEST(none_or_several_occurrences_change_nothing)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "x y x y x");
    ASSERT_CODE(edit(files, "data/a", "z", "w", 0), CAY_E_NO_MATCH);
    ASSERT_HAS(err.message, "text not found");
    ASSERT_CODE(edit(files, "data/a", "x", "w", 0), CAY_E_NO_MATCH);
    ASSERT_HAS(err.message, "found 3 times");
    ASSERT_STR(get_file("data/a"), "x y x y x");
}

TEST(occurrences_are_counted_without_overlap)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "aaa");
    ASSERT_OK(edit(files, "data/a", "aa", "b", 0));
    ASSERT_STR(get_file("data/a"), "ba");
}

TEST(all_replaces_every_one_and_needs_at_least_one)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "x y x");
    ASSERT_OK(edit(files, "data/a", "x", "long", CAY_EDIT_ALL));
    ASSERT_STR(get_file("data/a"), "long y long");
    ASSERT_INT(result.replaced, 2);
    ASSERT_CODE(edit(files, "data/a", "x", "w", CAY_EDIT_ALL), CAY_E_NO_MATCH);
}

TEST(the_empty_text_occurs_once_only_in_an_empty_file)
{
    AUTO(cay_files) files = open_data();

    put_file("data/empty", "");
    put_file("data/a", "é\r\n");
    ASSERT_OK(edit(files, "data/empty", "", "text", 0));
    ASSERT_STR(get_file("data/empty"), "text");
    ASSERT_CODE(edit(files, "data/a", "", "text", 0), CAY_E_NO_MATCH);
    ASSERT_HAS(err.message, "found 3 times");
}

TEST(the_empty_text_is_not_replaced_everywhere)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "hello\nworld\n");
    ASSERT_CODE(edit(files, "data/a", "", "x", CAY_EDIT_ALL), CAY_E_INVALID);
    ASSERT_CODE(edit(files, "data/a", "", "x", CAY_EDIT_ALL | CAY_EDIT_EXACT),
                CAY_E_INVALID);
    ASSERT_STR(get_file("data/a"), "hello\nworld\n");
}

TEST(line_ends_survive_an_edit_made_from_universal_newlines)
{
    AUTO(cay_files) files = open_data();

    put_file("data/dos", "one\r\ntwo\r\nthree\r\n");
    ASSERT_OK(edit(files, "data/dos", "one\ntwo\n", "1\n2\nand a half\n", 0));
    ASSERT_STR(get_file("data/dos"), "1\r\n2\r\nand a half\r\nthree\r\n");
    put_file("data/mac", "one\rtwo\r");
    ASSERT_OK(edit(files, "data/mac", "one\n", "1\n", 0));
    ASSERT_STR(get_file("data/mac"), "1\rtwo\r");
    put_file("data/unix", "one\ntwo\n");
    ASSERT_OK(edit(files, "data/unix", "one\n", "1\n", 0));
    ASSERT_STR(get_file("data/unix"), "1\ntwo\n");
}

TEST(untouched_parts_of_a_mixed_file_keep_their_line_ends)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "1\n2\r\n3\r4\n5");
    ASSERT_OK(edit(files, "data/a", "3\n", "drei\n", 0));
    ASSERT_STR(get_file("data/a"), "1\n2\r\ndrei\n4\n5");
}

TEST(the_same_text_with_two_kinds_of_line_end_counts_twice)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "a\nb;a\r\nb");
    ASSERT_CODE(edit(files, "data/a", "a\nb", "x", 0), CAY_E_NO_MATCH);
    ASSERT_HAS(err.message, "found 2 times");
    ASSERT_OK(edit(files, "data/a", "a\nb", "x", CAY_EDIT_EXACT));
    ASSERT_STR(get_file("data/a"), "x;a\r\nb");
}

TEST(a_carriage_return_in_the_old_text_is_that_byte)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "a\r\nb\r\nc\n");
    ASSERT_OK(edit(files, "data/a", "\r", "", CAY_EDIT_ALL));
    ASSERT_STR(get_file("data/a"), "a\nb\nc\n");
    ASSERT_CODE(edit(files, "data/a", "a\r", "x", 0), CAY_E_NO_MATCH);
    put_file("data/a", "a\nb\n");
    ASSERT_OK(edit(files, "data/a", "a\r\nb", "x", 0));
    ASSERT_STR(get_file("data/a"), "x\n");
}

TEST(a_byte_order_mark_survives)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "\xEF\xBB\xBFhello");
    ASSERT_OK(edit(files, "data/a", "hello", "bye", 0));
    ASSERT_STR(get_file("data/a"), "\xEF\xBB\xBF"
                                   "bye");
}

TEST(several_edits_are_all_done_or_none)
{
    AUTO(cay_files) files = open_data();
    const struct cay_edit good[] = {make("a", "b", 0), make("b", "c", 0)};
    const struct cay_edit bad[] = {make("c", "d", 0), make("zzz", "x", 0)};

    put_file("data/a", "a.");
    ASSERT_OK(cay_files_edit(files, "data/a", good, 2, NULL, &result, &err));
    ASSERT_STR(get_file("data/a"), "c.");
    ASSERT_INT(result.replaced, 2);
    ASSERT_CODE(cay_files_edit(files, "data/a", bad, 2, NULL, &result, &err),
                CAY_E_NO_MATCH);
    ASSERT_HAS(err.message, "edit 2 of 2");
    ASSERT_STR(get_file("data/a"), "c.");
}

TEST(an_edit_keeps_mode_and_in_place_keeps_the_inode)
{
    AUTO(cay_files) files = open_data();
    const struct cay_edit one = make("x", "a longer text", 0);
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_IN_PLACE};
    struct stat before, after;

    put_file("data/a", "x x");
    put_file("data/a", "-x-");
    ASSERT_INT(chmod(scratch_path("data/a"), 0640), 0);
    ASSERT_INT(stat(scratch_path("data/a"), &before), 0);
    ASSERT_OK(cay_files_edit(files, "data/a", &one, 1, &options, NULL, &err));
    ASSERT_INT(stat(scratch_path("data/a"), &after), 0);
    ASSERT_INT(after.st_ino, before.st_ino);
    ASSERT_STR(get_file("data/a"), "-a longer text-");
    ASSERT_OK(edit(files, "data/a", "longer", "short", 0));
    ASSERT_INT(stat(scratch_path("data/a"), &after), 0);
    ASSERT_INT(after.st_mode & 07777, 0640);
}

TEST(what_is_not_text_is_not_edited)
{
    AUTO(cay_files) files = open_data();

    put_bytes("data/a", "abc\xFF", 4);
    ASSERT_CODE(edit(files, "data/a", "b", "x", 0), CAY_E_NOT_TEXT);
    ASSERT_CODE(edit(files, "data/none", "b", "x", 0), CAY_E_NOT_FOUND);
    ASSERT_CODE(edit(files, "data", "b", "x", 0), CAY_E_NOT_A_FILE);
}

TEST(the_result_must_keep_to_the_size_rule)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = "data";
    mount.host = "data";
    mount.writable = true;
    mount.max_file_bytes = 4;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    put_file("data/a", "abc");
    ASSERT_CODE(edit(files, "data/a", "b", "bbb", 0), CAY_E_TOO_LARGE);
    ASSERT_STR(get_file("data/a"), "abc");
    put_file("data/big", "abcde");
    ASSERT_CODE(edit(files, "data/big", "cde", "", 0), CAY_E_TOO_LARGE);
}

TEST(an_edit_without_edits_or_with_foreign_flags_is_refused)
{
    AUTO(cay_files) files = open_data();
    const struct cay_edit none = {NULL, 0, "", 0, 0};

    put_file("data/a", "abc");
    ASSERT_CODE(cay_files_edit(files, "data/a", NULL, 0, NULL, NULL, &err),
                CAY_E_INVALID);
    ASSERT_CODE(cay_files_edit(files, "data/a", &none, 1, NULL, NULL, &err),
                CAY_E_INVALID);
    ASSERT_CODE(edit(files, "data/a", "a", "b", 1u << 9), CAY_E_UNSUPPORTED);
}

/* What an edit means, on text in memory. */
static char *plain_edit(const char *text, const char *old_text, const char *new_text,
                        uint64_t *ret_found)
{
    AUTO_BUF out;
    size_t len = strlen(old_text);

    buf_init(&out, 1 << 26);
    *ret_found = 0;
    for (const char *at = text;;) {
        const char *match = strstr(at, old_text);
        if (!match) {
            buf_text(&out, at);
            return buf_take(&out);
        }
        buf_append(&out, at, (size_t)(match - at));
        buf_text(&out, new_text);
        ++*ret_found;
        at = match + len;
    }
}

TEST(large_files_are_edited_as_small_ones_wherever_the_text_lies)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 900000, STEP = 256 << 10 };
    AUTO_FREE char *text = malloc(LEN + 1);
    static const size_t places[] = {0,    STEP - 40,    STEP - 7, STEP - 1,
                                    STEP, 2 * STEP - 3, LEN - 8};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint64_t found;
        memset(text, 'u', LEN);
        for (size_t k = 79; k < LEN; k += 80)
            text[k] = '\n';
        text[LEN] = '\0';
        memcpy(text + places[i], "uniqu\nu!", 8);
        put_file("data/a", text);
        AUTO_FREE char *want = plain_edit(text, "uniqu\nu!", "found", &found);
        ASSERT_INT(found, 1);
        ASSERT_OK(edit(files, "data/a", "uniqu\nu!", "found", 0));
        const char *have = get_file("data/a");
        ASSERT_MEM(have, strlen(have), want, strlen(want));
    }
}

struct counted {
    const char *text;
    size_t len;
    unsigned reads;
};

static ssize_t get_counted(void *cookie, void *data, size_t len, uint64_t offset)
{
    struct counted *counted = cookie;
    size_t left = counted->len - (size_t)offset;

    counted->reads++;
    len = len < left ? len : left;
    memcpy(data, counted->text + offset, len);
    return (ssize_t)len;
}

static int put_nowhere(void *cookie, const void *data, size_t len)
{
    (void)data;
    *(size_t *)cookie += len;
    return 0;
}

/* Whatever a window keeps is searched again with the next one. */
TEST(a_long_text_is_looked_for_in_windows_of_its_own_size)
{
    enum { LEN = 16 << 20, NEEDLE = 4 << 20 };
    AUTO_FREE char *text = malloc(LEN);
    struct counted counted = {.text = text, .len = LEN};
    const struct replace_source source = {get_counted, &counted};
    size_t bytes = 0;
    const struct replace_sink sink = {put_nowhere, &bytes};
    uint64_t found = 0;

    ASSERT(text);
    for (size_t i = 0; i < LEN; i++)
        text[i] = (char)('a' + i * 7919 % 26);
    memcpy(text + LEN - NEEDLE - 5, "FROM", 4);
    const struct cay_edit edit = {text + LEN - NEEDLE - 5, NEEDLE, "to", 2, 0};
    ASSERT_INT(replace_stream(&source, &edit, &sink, &found), 0);
    ASSERT_INT(found, 1);
    ASSERT_INT(bytes, LEN - NEEDLE + 2);
    ASSERT(counted.reads <= 2 + LEN / NEEDLE);
}

TEST(random_edits_agree_with_the_plain_ones_whatever_the_line_ends)
{
    AUTO(cay_files) files = open_data();
    static const char *const olds[] = {"ab", "\n", "b\na", "a\n\n", "aab"};
    static const char *const news[] = {"", "x", "y\nz", "ab"};
    static const char *const ends[] = {"\n", "\r\n"};
    uint32_t seed = 11;

    for (int round = 0; round < 400; round++) {
        AUTO_BUF plain, file, want_file;
        uint64_t found;
        buf_init(&plain, 1 << 20);
        buf_init(&file, 1 << 20);
        buf_init(&want_file, 1 << 20);
        const char *end = ends[round % 2];
        const char *old_text = olds[(seed >> 9) % 5], *new_text = news[(seed >> 13) % 4];
        /* The first line end tells the file's kind. */
        buf_text(&plain, "c\n");
        for (int k = 0; k < 60; k++) {
            seed = seed * 1664525u + 1013904223u;
            buf_text(&plain, (seed >> 20) % 3 == 0   ? "a"
                             : (seed >> 20) % 3 == 1 ? "b"
                                                     : "\n");
        }
        AUTO_FREE char *want = plain_edit(plain.data, old_text, new_text, &found);
        for (const char *c = plain.data; *c; c++)
            buf_append(&file, *c == '\n' ? end : c, *c == '\n' ? strlen(end) : 1);
        for (const char *c = want; *c; c++)
            buf_append(&want_file, *c == '\n' ? end : c, *c == '\n' ? strlen(end) : 1);
        buf_append(&want_file, "", 0);
        put_file("data/a", file.data);
        int code = edit(files, "data/a", old_text, new_text, CAY_EDIT_ALL);
        ASSERT_INT(code, found ? CAY_OK : CAY_E_NO_MATCH);
        ASSERT_STR(get_file("data/a"), found ? want_file.data : file.data);
    }
}

/* Hours of nothing but NUL characters. */
TEST(a_file_that_is_long_only_by_its_holes_is_not_passed_over_as_text)
{
    AUTO(cay_files) files = open_data();
    AUTO(cay_reader) reader = NULL;
    struct cay_page page;

    put_file("data/a", "a");
    if (truncate(scratch_path("data/a"), (off_t)1 << 42) != 0)
        SKIP("the file system has no files of 4 TiB");
    ASSERT_CODE(edit(files, "data/a", "a", "b", 0), CAY_E_LIMIT);
    ASSERT_CODE(cay_files_read(files, "data/a", NULL, &page, &err), CAY_E_LIMIT);
    ASSERT_CODE(cay_files_read_lines(files, "data/a", NULL, &page, &err), CAY_E_LIMIT);
    ASSERT_OK(cay_reader_open(files, "data/a", &reader, &err));
    ASSERT_CODE(cay_reader_page(reader, NULL, &page, &err), CAY_E_LIMIT);
    const struct cay_read_options some = {.size = sizeof some, .max = 1};
    ASSERT_OK(cay_files_read_bytes(files, "data/a", &some, &page, &err));
    ASSERT_STR(page.text, "a");
    cay_page_done(&page);
}
