/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdio.h>

#include "harness.h"

TEST(an_append_over_the_limit_fails_and_keeps_the_content)
{
    AUTO_BUF buf;

    buf_init(&buf, 8);
    ASSERT(buf_text(&buf, "1234"));
    ASSERT(!buf_text(&buf, "56789"));
    ASSERT_STR(buf.data, "1234");
    ASSERT_INT(buf.len, 4);
}

TEST(the_limit_itself_can_be_reached)
{
    AUTO_BUF buf;

    buf_init(&buf, 8);
    ASSERT(buf_text(&buf, "12345678"));
    ASSERT_STR(buf.data, "12345678");
    ASSERT(!buf_text(&buf, "9"));
}

TEST(after_one_failure_every_append_fails)
{
    AUTO_BUF buf;

    buf_init(&buf, 4);
    ASSERT(!buf_text(&buf, "12345"));
    ASSERT(!buf_text(&buf, "1"));
    ASSERT(!buf_format(&buf, "%d", 1));
    ASSERT(!buf_append(&buf, "", 0));
    ASSERT(!buf_take(&buf));
}

TEST(content_grows_in_any_steps_and_stays_terminated)
{
    AUTO_BUF buf;
    char all[1000] = "";

    buf_init(&buf, sizeof all);
    for (size_t len = 0, step = 1; len + step < sizeof all; len += step, step++) {
        memset(all + len, 'a' + (int)(step % 26), step);
        ASSERT(buf_append(&buf, all + len, step));
        ASSERT_STR(buf.data, all);
        ASSERT(buf.room > buf.len);
    }
}

TEST(bytes_may_be_zero)
{
    AUTO_BUF buf;

    buf_init(&buf, 100);
    ASSERT(buf_append(&buf, "a\0b", 3));
    ASSERT_MEM(buf.data, buf.len, "a\0b", 3);
}

TEST(formatted_text_is_appended_whole_or_not_at_all)
{
    AUTO_BUF buf;

    buf_init(&buf, 10);
    ASSERT(buf_format(&buf, "%s=%d", "ab", 12));
    ASSERT_STR(buf.data, "ab=12");
    ASSERT(!buf_format(&buf, "%s", "too long for it"));
    ASSERT_STR(buf.data, "ab=12");
}

TEST(formatted_text_may_fill_the_buffer_to_its_limit)
{
    AUTO_BUF buf;

    buf_init(&buf, 5);
    ASSERT(buf_format(&buf, "%s", "12345"));
    ASSERT_STR(buf.data, "12345");
}

TEST(reserved_room_is_there_and_counts_only_when_used)
{
    AUTO_BUF buf;

    buf_init(&buf, 1000);
    ASSERT(buf_text(&buf, "ab"));
    ASSERT(buf_reserve(&buf, 500));
    ASSERT(buf.room - buf.len > 500);
    ASSERT_STR(buf.data, "ab");
    ASSERT(!buf_reserve(&buf, 999));
}

TEST(what_is_taken_belongs_to_the_caller_and_leaves_the_buffer_empty)
{
    AUTO_BUF buf;

    buf_init(&buf, 100);
    ASSERT(buf_text(&buf, "mine"));
    AUTO_FREE char *text = buf_take(&buf);
    ASSERT_STR(text, "mine");
    ASSERT(!buf.data);
    ASSERT(buf_text(&buf, "again"));
    ASSERT_STR(buf.data, "again");
}

TEST(an_empty_buffer_gives_an_empty_string)
{
    AUTO_BUF buf;

    buf_init(&buf, 0);
    AUTO_FREE char *text = buf_take(&buf);
    ASSERT_STR(text, "");
}

TEST(a_length_near_the_end_of_the_address_space_does_not_wrap)
{
    AUTO_BUF buf;

    buf_init(&buf, SIZE_MAX);
    ASSERT(buf_text(&buf, "ab"));
    ASSERT(!buf_reserve(&buf, SIZE_MAX - 2));
    ASSERT_STR(buf.data, "ab");
}

TEST(borrowed_bytes_are_used_until_they_do_not_suffice)
{
    char own[8];
    AUTO_BUF buf;

    buf_borrow(&buf, 100, own, sizeof own);
    ASSERT_STR(buf.data, "");
    ASSERT(buf_text(&buf, "1234567"));
    ASSERT(buf.data == own);
    ASSERT(buf_text(&buf, "89"));
    ASSERT(buf.data != own);
    ASSERT_STR(buf.data, "123456789");
    ASSERT_STR(own, "1234567");
}

TEST(what_is_taken_of_borrowed_bytes_is_a_copy)
{
    char own[8];
    AUTO_BUF buf;

    buf_borrow(&buf, 100, own, sizeof own);
    ASSERT(buf_text(&buf, "mine"));
    AUTO_FREE char *text = buf_take(&buf);
    ASSERT(text != own);
    ASSERT_STR(text, "mine");
    ASSERT(!buf.data);
    ASSERT(buf_text(&buf, "again"));
    ASSERT_STR(buf.data, "again");
}

TEST(a_borrowed_buffer_has_its_limit_too)
{
    char own[8];
    AUTO_BUF buf;

    buf_borrow(&buf, 4, own, sizeof own);
    ASSERT(!buf_text(&buf, "12345"));
    ASSERT(!buf_take(&buf));
}
