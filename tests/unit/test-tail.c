/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tail.h"

#include "harness.h"

/* A counter that is its own expectation: byte i of the stream is i % 251. */
static void add(struct tail *tail, uint64_t *end, size_t len)
{
    char piece[1024];

    ASSERT(len <= sizeof piece);
    for (size_t i = 0; i < len; i++)
        piece[i] = (char)((*end + i) % 251);
    ASSERT(tail_add(tail, piece, len));
    *end += len;
}

static void check(const char *data, size_t len, uint64_t from)
{
    for (size_t i = 0; i < len; i++)
        ASSERT_INT((unsigned char)data[i], (from + i) % 251);
}

TEST(the_last_bytes_are_kept_and_the_others_counted)
{
    struct tail tail;
    uint64_t end = 0;
    size_t len;

    tail_init(&tail, 10000);
    for (int i = 0; i < 100; i++)
        add(&tail, &end, 777);
    ASSERT_INT(tail.dropped, end - 10000);
    char *data = tail_take(&tail, &len);
    ASSERT_INT(len, 10000);
    check(data, len, end - 10000);
    free(data);
    tail_done(&tail);
}

TEST(what_is_read_makes_room)
{
    struct tail tail;
    uint64_t end = 0, read = 0;
    char piece[1500];
    unsigned seed = 1;
    size_t len;

    tail_init(&tail, 20000);
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1103515245u + 12345u;
        add(&tail, &end, seed >> 16 & 1023);
        seed = seed * 1103515245u + 12345u;
        /* Slower than the writer for a while, then faster. */
        len = tail_read(&tail, piece, (seed >> 16) % (i / 5000 % 2 ? 1500 : 900));
        check(piece, len, end - tail.len - len);
        read += len;
        ASSERT_INT(read + tail.dropped + tail.len, end);
    }
    ASSERT(tail.dropped > 0);
    char *data = tail_take(&tail, &len);
    check(data, len, end - len);
    free(data);
    tail_done(&tail);
}

TEST(nothing_is_something_too)
{
    struct tail tail;
    size_t len = 1;
    char byte;

    tail_init(&tail, 10);
    ASSERT_INT(tail_read(&tail, &byte, 1), 0);
    char *data = tail_take(&tail, &len);
    ASSERT_INT(len, 0);
    ASSERT_STR(data, "");
    free(data);
}
