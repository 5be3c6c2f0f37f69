/* SPDX-License-Identifier: Apache-2.0 */

/* Several add to one file, and for one of them there is not enough room.  The kernel's
 * write(2) is replaced by one that takes a few bytes at a time, and before each of which
 * somebody else may write. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "policies.h"

enum { WRITES_MAX = 4 };

static struct world {
    bool is_on;
    int number;
    const char *theirs[WRITES_MAX]; /* added before this one, or NULL */
    size_t room[WRITES_MAX];        /* as many bytes as it takes; 0: no space */
} world;

static void add_theirs(const char *text)
{
    int fd = open(scratch_path("data/a"), O_WRONLY | O_APPEND | O_CLOEXEC);

    ASSERT(fd >= 0);
    ASSERT(syscall(SYS_write, fd, text, strlen(text)) == (long)strlen(text));
    (void)close(fd);
}

ssize_t write(int fd, const void *buf, size_t n)
{
    if (!world.is_on)
        return syscall(SYS_write, fd, buf, n);
    world.is_on = false;
    int number = world.number++;
    ASSERT(number < WRITES_MAX);
    if (world.theirs[number])
        add_theirs(world.theirs[number]);
    world.is_on = true;
    size_t room = world.room[number];
    if (room > 0)
        return syscall(SYS_write, fd, buf, n < room ? n : room);
    errno = ENOSPC;
    return -1;
}

static void add_ours(int code)
{
    AUTO(cay_files) files = open_data();
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_APPEND};

    put_file("data/a", "old,");
    world.is_on = true;
    ASSERT_CODE(cay_files_write(files, "data/a", "abcdefgh", 8, &options, &err), code);
    world.is_on = false;
}

TEST(what_was_added_is_taken_back_when_there_is_no_room_for_the_rest)
{
    world = (struct world){.room = {3, 2}};
    add_ours(CAY_E_NO_SPACE);
    ASSERT_STR(get_file("data/a"), "old,");
    ASSERT(!strstr(err.hint, "stay"));
}

TEST(what_others_added_before_stays_when_what_was_added_is_taken_back)
{
    world = (struct world){.theirs = {"theirs,"}, .room = {3}};
    add_ours(CAY_E_NO_SPACE);
    ASSERT_STR(get_file("data/a"), "old,theirs,");
}

TEST(what_others_added_after_stays_and_the_failure_says_what_else_does)
{
    world = (struct world){.theirs = {NULL, "theirs,"}, .room = {3}};
    add_ours(CAY_E_NO_SPACE);
    ASSERT_STR(get_file("data/a"), "old,abctheirs,");
    ASSERT(strstr(err.hint, "3 of the 8 bytes were appended and stay"));
}

TEST(what_others_added_between_stays_and_what_came_after_it_is_taken_back)
{
    world = (struct world){.theirs = {NULL, "theirs,"}, .room = {3, 2}};
    add_ours(CAY_E_NO_SPACE);
    ASSERT_STR(get_file("data/a"), "old,abctheirs,");
    ASSERT(strstr(err.hint, "3 of the 8 bytes were appended and stay"));
}

TEST(an_append_in_pieces_with_others_between_them_is_done)
{
    world = (struct world){.theirs = {NULL, "theirs,"}, .room = {3, 9}};
    add_ours(CAY_OK);
    ASSERT_STR(get_file("data/a"), "old,abctheirs,defgh");
}
