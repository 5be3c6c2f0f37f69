/* SPDX-License-Identifier: Apache-2.0 */
#include "files/tar.h"

#include "harness.h"

static struct tar_filter filter;
static struct tar_item item;

static void start(void)
{
    memset(&filter, 0, sizeof filter);
    filter.max_entries = 10;
    filter.max_bytes = 100;
    filter.max_depth = 4;
    filter.base_depth = 1;
}

/* Gives the filter a frame with the texts behind it. */
static int take(struct tar_frame frame, const char *first, const char *second)
{
    char message[TAR_MESSAGE_MAX];
    size_t first_len = strlen(first), second_len = strlen(second);

    memcpy(message, &frame, sizeof frame);
    memcpy(message + sizeof frame, first, first_len);
    memcpy(message + sizeof frame + first_len, second, second_len);
    return tar_filter_take(&filter, "test", message,
                           sizeof frame + first_len + second_len, &item, &err);
}

static int take_entry(enum tar_kind kind, const char *path, const char *link,
                      uint64_t size)
{
    struct tar_frame frame = {.kind = kind,
                              .detail = 0100644,
                              .size = size,
                              .path_len = (uint32_t)strlen(path),
                              .link_len = (uint32_t)strlen(link)};

    return take(frame, path, link);
}

static int take_data(uint64_t offset, const char *text)
{
    return take((struct tar_frame){.kind = TAR_DATA, .size = offset}, text, "");
}

static int take_plain(uint32_t kind, uint32_t detail)
{
    return take((struct tar_frame){.kind = kind, .detail = detail}, "", "");
}

TEST(names_come_out_plain)
{
    start();
    ASSERT_OK(take_entry(TAR_DIRECTORY, "./a//b/./c/", "", 0));
    ASSERT_STR(item.path, "a/b/c");
    ASSERT_OK(take_entry(TAR_DIRECTORY, "./", "", 0));
    ASSERT_STR(item.path, "");
    ASSERT_CODE(take_entry(TAR_FILE, ".", "", 0), CAY_E_INVALID);
    ASSERT_INT(item.mode & ~0777u, 0);
}

TEST(a_file_has_its_content_in_order_and_no_more_than_it_said)
{
    start();
    ASSERT_OK(take_entry(TAR_FILE, "f", "", 10));
    ASSERT_OK(take_data(0, "123"));
    ASSERT_OK(take_data(5, "67")); /* a hole before it */
    ASSERT_CODE(take_data(6, "x"), CAY_E_PROTOCOL);
    ASSERT_CODE(take_data(9, "01"), CAY_E_PROTOCOL);
    ASSERT_CODE(take_data(UINT64_MAX, "x"), CAY_E_PROTOCOL);
    ASSERT_OK(take_data(9, "0"));
    ASSERT_OK(take_plain(TAR_FILE_END, 0));
    ASSERT_INT(item.size, 10);
    ASSERT_OK(take_plain(TAR_END, 0));
}

TEST(messages_out_of_order_are_not_believed)
{
    start();
    ASSERT_CODE(take_data(0, "x"), CAY_E_PROTOCOL);
    ASSERT_CODE(take_plain(TAR_FILE_END, 0), CAY_E_PROTOCOL);
    ASSERT_OK(take_entry(TAR_FILE, "f", "", 10));
    ASSERT_CODE(take_entry(TAR_DIRECTORY, "d", "", 0), CAY_E_PROTOCOL);
    ASSERT_CODE(take_plain(TAR_END, 0), CAY_E_PROTOCOL);
}

TEST(lengths_that_do_not_fit_the_message_are_not_believed)
{
    char message[TAR_MESSAGE_MAX + 1] = {0};
    struct tar_frame frame = {.kind = TAR_FILE, .path_len = UINT32_MAX, .link_len = 2};

    start();
    ASSERT_CODE(take(frame, "a", ""), CAY_E_PROTOCOL);
    frame.path_len = 0;
    ASSERT_CODE(take(frame, "a", ""), CAY_E_PROTOCOL);
    frame = (struct tar_frame){.kind = TAR_FILE, .path_len = 1};
    ASSERT_CODE(take(frame, "ab", ""), CAY_E_PROTOCOL);
    frame.kind = TAR_DATA;
    ASSERT_CODE(take(frame, "a", ""), CAY_E_PROTOCOL);
    for (size_t len = 0; len < sizeof frame; len++)
        ASSERT_CODE(tar_filter_take(&filter, "test", message, len, &item, &err),
                    CAY_E_PROTOCOL);
    ASSERT_CODE(tar_filter_take(&filter, "test", message, sizeof message, &item, &err),
                CAY_E_PROTOCOL);
}

TEST(other_nonsense_is_not_believed)
{
    struct tar_frame frame = {.kind = TAR_FILE, .path_len = 3, .mtime_ns = 1000000000};
    char message[sizeof frame + 3];

    start();
    ASSERT_CODE(take(frame, "abc", ""), CAY_E_PROTOCOL);
    ASSERT_CODE(take_plain(0, 0), CAY_E_PROTOCOL);
    ASSERT_CODE(take_plain(77, 0), CAY_E_PROTOCOL);
    ASSERT_CODE(take_plain(TAR_BROKEN, 77), CAY_E_PROTOCOL);
    ASSERT_CODE(take_entry(TAR_FILE, "f", "link", 0), CAY_E_PROTOCOL);
    frame.mtime_ns = 0;
    memcpy(message, &frame, sizeof frame);
    memcpy(message + sizeof frame, "a\0b", 3);
    ASSERT_CODE(tar_filter_take(&filter, "test", message, sizeof message, &item, &err),
                CAY_E_PROTOCOL);
}

TEST(each_limit_is_the_last_that_is_allowed)
{
    start();
    ASSERT_OK(take_entry(TAR_FILE, "a/b/c/d", "", 100));
    ASSERT_OK(take_plain(TAR_FILE_END, 0));
    ASSERT_CODE(take_entry(TAR_FILE, "f", "", 1), CAY_E_LIMIT);
    ASSERT_CODE(take_entry(TAR_FILE, "f", "", UINT64_MAX), CAY_E_LIMIT);
    ASSERT_CODE(take_entry(TAR_DIRECTORY, "a/b/c/d/e", "", 0), CAY_E_LIMIT);
    start();
    for (int i = 0; i < 10; i++)
        ASSERT_OK(take_entry(TAR_SPECIAL, "", "", 0));
    ASSERT_CODE(take_entry(TAR_SPECIAL, "", "", 0), CAY_E_LIMIT);
}

TEST(a_link_may_climb_as_far_as_the_top_and_only_at_its_beginning)
{
    static const struct {
        const char *path, *link;
        enum tar_kind kind;
    } links[] = {
        {"l", "x", TAR_LINK},
        {"l", "../x", TAR_LINK}, /* the archive itself is one directory below the top */
        {"l", "../../x", TAR_SPECIAL},
        {"a/b/l", "../../../x", TAR_LINK},
        {"a/b/l", "../../../../x", TAR_SPECIAL},
        {"a/l", "./../b", TAR_LINK},
        {"l", "a/../b", TAR_SPECIAL},
        {"l", "..", TAR_LINK},
        {"l", "/x", TAR_SPECIAL},
    };

    start();
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        ASSERT_OK(take_entry(TAR_LINK, links[i].path, links[i].link, 0));
        ASSERT_INT(item.kind, links[i].kind);
    }
}

TEST(a_hard_link_of_a_root_may_start_at_it)
{
    start();
    ASSERT_CODE(take_entry(TAR_HARD_LINK, "a", "/etc/b", 0), CAY_E_OUTSIDE);
    filter.is_root = true;
    ASSERT_OK(take_entry(TAR_HARD_LINK, "a", "//etc/b", 0));
    ASSERT_STR(item.link, "etc/b");
    ASSERT_CODE(take_entry(TAR_HARD_LINK, "a", "/../b", 0), CAY_E_OUTSIDE);
    ASSERT_CODE(take_entry(TAR_HARD_LINK, "a", "/", 0), CAY_E_INVALID);
}

TEST(what_is_wrong_with_an_archive_is_said)
{
    start();
    ASSERT_CODE(take_plain(TAR_BROKEN, TAR_NOT_TAR), CAY_E_INVALID);
    ASSERT_CODE(take_plain(TAR_BROKEN, TAR_DAMAGED), CAY_E_INVALID);
    ASSERT_CODE(take_plain(TAR_BROKEN, TAR_COMPRESSED_TWICE), CAY_E_INVALID);
    ASSERT_CODE(take_plain(TAR_BROKEN, TAR_UNREADABLE), CAY_E_IO);
    ASSERT_CODE(take_plain(TAR_BROKEN, TAR_NO_MEMORY), CAY_E_NO_MEMORY);
}
