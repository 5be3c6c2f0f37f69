/* SPDX-License-Identifier: Apache-2.0 */

/* Short texts: joined, hashed and read line by line. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/join.h"
#include "harness.h"
#include "sys/io.h"

TEST(texts_are_joined_up_to_the_room)
{
    static const char *const none[] = {NULL};
    char text[8];

    ASSERT(JOIN(text, sizeof text, "/a", "/", "bcde"));
    ASSERT_STR(text, "/a/bcde");
    ASSERT(!JOIN(text, sizeof text, "/a", "/", "bcdef"));
    ASSERT_STR(text, "");
    ASSERT(!JOIN(text, sizeof text, "12345678", ""));
    ASSERT(join_texts(text, sizeof text, none));
    ASSERT_STR(text, "");
}

/* Byte by byte, as FNV-1a is defined. */
static uint64_t plain_hash(const unsigned char *bytes, size_t len)
{
    uint64_t hash = HASH_STABLE;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    return hash;
}

TEST(a_stable_hash_skips_zeros_and_stays_fnv)
{
    unsigned char bytes[64];

    for (size_t len = 0; len <= sizeof bytes; len++)
        for (size_t set = 0; set < sizeof bytes; set++) {
            memset(bytes, 0, sizeof bytes);
            bytes[set] = (unsigned char)(set + 1);
            ASSERT(hash_stable(HASH_STABLE, bytes, len) == plain_hash(bytes, len));
        }
}

struct lines {
    unsigned count;
    size_t len;
    char last[8];
};

static void note(void *cookie, char *line)
{
    struct lines *lines = cookie;

    lines->count++;
    lines->len += strlen(line);
    snprintf(lines->last, sizeof lines->last, "%s", line);
}

static void read_lines(const char *text, size_t len, struct lines *ret_lines)
{
    char path[] = "/tmp/cay-lines-XXXXXX";
    int fd = mkstemp(path);

    memset(ret_lines, 0, sizeof *ret_lines);
    ASSERT(fd >= 0 && write(fd, text, len) == (ssize_t)len);
    close(fd);
    ASSERT_INT(io_each_line(path, note, ret_lines), 0);
    unlink(path);
}

TEST(each_line_of_a_file_is_read_wherever_a_read_ends)
{
    static char text[3 * 4096 + 16];
    struct lines lines;

    read_lines("", 0, &lines);
    ASSERT_INT(lines.count, 0);
    read_lines("one\n\nthree", 10, &lines);
    ASSERT_INT(lines.count, 3);
    ASSERT_STR(lines.last, "three");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 7 == 6 ? '\n' : 'x';
    read_lines(text, sizeof text, &lines);
    ASSERT_INT(lines.count, sizeof text / 7 + (sizeof text % 7 != 0));
    ASSERT_INT(lines.len, sizeof text - sizeof text / 7);
}

TEST(a_long_line_comes_in_pieces)
{
    static char text[4096 + 10];
    struct lines lines;

    memset(text, 'x', sizeof text);
    read_lines(text, sizeof text, &lines);
    ASSERT_INT(lines.count, 2);
    ASSERT_INT(lines.len, sizeof text);
    ASSERT_INT(io_each_line("/nonexistent", note, &lines), -ENOENT);
}
