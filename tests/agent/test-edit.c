/* SPDX-License-Identifier: Apache-2.0 */

/* Edits: new files, other text, less text. */
#include "agent.h"

static enum cay_edit_kind kind;

static int edit(cay_sandbox *sandbox, const char *path, const char *old_text,
                const char *new_text)
{
    kind = 0;
    return cay_file_edit(sandbox, NULL, path, old_text, strlen(old_text), new_text,
                         strlen(new_text), &kind, &err);
}

BOTH(an_empty_old_text_makes_a_new_file)
{
    ASSERT_OK(edit(sandbox, "new/a b", "", "hello\n"));
    ASSERT_INT(kind, CAY_EDIT_CREATE);
    expect_inside(sandbox, "new/a b", "hello\n");
    ASSERT_CODE(edit(sandbox, "new/a b", "", "again"), CAY_E_EXISTS);
    ASSERT_STR(err.message, "File already exists: new/a b. Use UPDATE to change it");
    expect_inside(sandbox, "new/a b", "hello\n");
    ASSERT_CODE(edit(sandbox, "x", "", ""), CAY_E_INVALID);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "x", &err), 0);
}

BOTH(text_is_replaced_where_it_is_there_once)
{
    put_inside(sandbox, "a", "one two three\n");
    ASSERT_OK(edit(sandbox, "a", "two", "TWO and a half"));
    ASSERT_INT(kind, CAY_EDIT_UPDATE);
    expect_inside(sandbox, "a", "one TWO and a half three\n");
    ASSERT_OK(edit(sandbox, "a", " and a half", ""));
    ASSERT_INT(kind, CAY_EDIT_REMOVE);
    expect_inside(sandbox, "a", "one TWO three\n");
    ASSERT_OK(edit(sandbox, "a", "one TWO three\n", ""));
    expect_inside(sandbox, "a", "");
}

BOTH(text_that_is_not_there_exactly_once_changes_nothing)
{
    put_inside(sandbox, "a", "x y x\n");
    ASSERT_CODE(edit(sandbox, "a", "z", "w"), CAY_E_NO_MATCH);
    ASSERT_STR(err.message, "String to replace not found in file");
    ASSERT_CODE(edit(sandbox, "a", "x", "w"), CAY_E_NO_MATCH);
    ASSERT_HAS(err.message, "Found 2 matches");
    ASSERT_CODE(edit(sandbox, "a", "x", ""), CAY_E_NO_MATCH);
    expect_inside(sandbox, "a", "x y x\n");
}

BOTH(a_file_that_is_not_there_is_to_be_created)
{
    ASSERT_CODE(edit(sandbox, "none", "a", "b"), CAY_E_NOT_FOUND);
    ASSERT_STR(err.message, "File does not exist: none. Use CREATE to make it");
    ASSERT_CODE(edit(sandbox, "none", "a", ""), CAY_E_NOT_FOUND);
    ASSERT_CODE(edit(sandbox, "/home", "a", "b"), CAY_E_NOT_A_FILE);
    ASSERT_CODE(edit(sandbox, "/etc/passwd", "root:x:0:0:", "b"), CAY_E_DENIED);
}

BOTH(line_ends_stay_as_they_are)
{
    put_inside(sandbox, "a", "one\r\ntwo\r\nthree\r\n");
    ASSERT_OK(edit(sandbox, "a", "one\ntwo\n", "1\n2\n2b\n"));
    expect_inside(sandbox, "a", "1\r\n2\r\n2b\r\nthree\r\n");
    ASSERT_OK(edit(sandbox, "a", "2\r\n2b", "2\r\n3"));
    expect_inside(sandbox, "a", "1\r\n2\r\n3\r\nthree\r\n");
    put_inside(sandbox, "c", "a\r\nb\nc\n");
    ASSERT_OK(edit(sandbox, "c", "b\nc", "B\nC"));
    expect_inside(sandbox, "c", "a\r\nB\nC\n");
    put_inside(sandbox, "d", "a\r\nb\r\n");
    ASSERT_OK(edit(sandbox, "d", "a\r\nb", "a\nb"));
    expect_inside(sandbox, "d", "a\nb\r\n");
    put_inside(sandbox, "e", "a\r\nb\r\n");
    ASSERT_OK(edit(sandbox, "e", "b", "b\nc"));
    expect_inside(sandbox, "e", "a\r\nb\r\nc\r\n");
    put_inside(sandbox, "b", "one\ntwo\r\n");
    ASSERT_OK(edit(sandbox, "b", "one\n", "1\n"));
    expect_inside(sandbox, "b", "1\ntwo\r\n");
}

BOTH(backslashes_that_were_doubled_are_understood)
{
    put_inside(sandbox, "a", "print(\"x\\n\")\n");
    ASSERT_OK(edit(sandbox, "a", "\"x\\\\n\"", "\"y\\\\n\\\\t\""));
    expect_inside(sandbox, "a", "print(\"y\\n\\t\")\n");
    put_inside(sandbox, "b", "a\\\\nb");
    ASSERT_OK(edit(sandbox, "b", "a\\\\nb", "c\\\\nx"));
    expect_inside(sandbox, "b", "c\\\\nx");
    put_inside(sandbox, "c", "line\n");
    ASSERT_CODE(edit(sandbox, "c", "line\\n", "x\\n"), CAY_E_NO_MATCH);
}

static void put_bytes_inside(cay_sandbox *sandbox, const char *data, size_t len)
{
    ASSERT_OK(cay_file_write(sandbox, NULL, "a", data, len, 0, &err));
}

static void expect_bytes_inside(cay_sandbox *sandbox, const char *data, size_t len)
{
    struct cay_content content = {0};

    ASSERT_OK(cay_file_read(sandbox, NULL, "a", &content, &err));
    ASSERT_MEM(content.data, content.len, data, len);
    cay_free(content.data);
}

BOTH(an_encoding_stays_as_it_is)
{
    put_bytes_inside(sandbox, "caf\xE9 noir\n", 10);
    ASSERT_OK(edit(sandbox, "a", "caf\xC3\xA9", "th\xC3\xA9"));
    expect_bytes_inside(sandbox, "th\xE9 noir\n", 9);
    ASSERT_CODE(edit(sandbox, "a", "noir", "\xE4\xB8\x89"), CAY_E_NOT_TEXT);
    expect_bytes_inside(sandbox, "th\xE9 noir\n", 9);
    ASSERT_CODE(edit(sandbox, "a", "\xE4\xB8\x89", "x"), CAY_E_NO_MATCH);

    put_bytes_inside(sandbox, "\xFF\xFEh\0i\0\r\0\n\0", 10);
    ASSERT_OK(edit(sandbox, "a", "i\n", "\xF0\x9F\x98\x80\n"));
    expect_bytes_inside(sandbox, "\xFF\xFEh\0\x3D\xD8\x00\xDE\r\0\n\0", 12);
    put_bytes_inside(sandbox, "\xFE\xFF\0h\0i", 6);
    ASSERT_OK(edit(sandbox, "a", "hi", "yo"));
    expect_bytes_inside(sandbox, "\xFE\xFF\0y\0o", 6);

    put_bytes_inside(sandbox, "\0\1abc\xFF", 6);
    ASSERT_OK(edit(sandbox, "a", "abc", "d"));
    expect_bytes_inside(sandbox, "\0\1d\xFF", 4);
}

BOTH(characters_of_two_bytes_are_found_only_where_they_begin)
{
    put_bytes_inside(sandbox,
                     "\xFF\xFE"
                     "babababa",
                     10);
    ASSERT_CODE(edit(sandbox, "a", "\xE6\x89\xA1", "x"), CAY_E_NO_MATCH);
    ASSERT_CODE(edit(sandbox, "a", "\xE6\x85\xA2\xE6\x85\xA2", "x"), CAY_E_NO_MATCH);
    ASSERT_HAS(err.message, "Found 2 matches");
    put_bytes_inside(sandbox,
                     "\xFF\xFE"
                     "a\0a\0b\0a\0a\0a\0b\0c\0",
                     18);
    ASSERT_OK(edit(sandbox, "a", "aaab", "x"));
    expect_bytes_inside(sandbox,
                        "\xFF\xFE"
                        "a\0a\0b\0x\0c\0",
                        12);
    put_bytes_inside(sandbox,
                     "\xFF\xFE"
                     "a\0b\0",
                     5);
    ASSERT_CODE(edit(sandbox, "a", "b", "x"), CAY_E_NO_MATCH);
}

/* The old text is at every odd place, and at no even one. */
TEST(a_long_text_of_two_bytes_a_character_is_looked_for_in_no_time)
{
    enum { BYTES = 16 << 20, CHARS = 100000 };
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO_FREE char *file = malloc(BYTES), *old_text = malloc(3 * CHARS + 1);

    ASSERT(file && old_text);
    for (size_t i = 0; i < BYTES; i++)
        file[i] = i % 2 ? 'a' : 'b';
    for (size_t i = 0; i < CHARS; i++)
        memcpy(old_text + 3 * i, "\xE6\x89\xA1", 4);
    memcpy(file, "\xFF\xFE", 2);
    put_bytes_inside(sandbox, file, BYTES);
    ASSERT_CODE(edit(sandbox, "a", old_text, "x"), CAY_E_NO_MATCH);
}

TEST(an_edit_keeps_mode_and_owner)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    put_inside(sandbox, "a", "old\n");
    ASSERT_STR(says(sandbox, "chmod 755 a"), "");
    ASSERT_OK(edit(sandbox, "a", "old", "new"));
    ASSERT_STR(says(sandbox, "stat -c %a:%U a"), "755:user");
    clear_answer();
}

BOTH(names_may_be_odd)
{
    for (size_t i = 0; i < ODD_NAMES; i++) {
        char path[64];
        snprintf(path, sizeof path, "odd/%s", odd_names[i]);
        ASSERT_OK(edit(sandbox, path, "", "old"));
        ASSERT_OK(edit(sandbox, path, "old", "new"));
        expect_inside(sandbox, path, "new");
    }
}
