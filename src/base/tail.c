/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tail.h"

#include <stdlib.h>
#include <string.h>

void tail_init(struct tail *tail, size_t limit)
{
    *tail = (struct tail){.limit = limit};
}

void tail_done(struct tail *tail)
{
    free(tail->data);
    tail->data = NULL;
}

static void copy_out(const struct tail *tail, char *data, size_t len)
{
    size_t first = tail->room - tail->start < len ? tail->room - tail->start : len;

    memcpy(data, tail->data + tail->start, first);
    memcpy(data + first, tail->data, len - first);
}

/* While nothing was read or dropped it grows like any buffer; later it is a ring. */
static bool grow(struct tail *tail, size_t len)
{
    size_t want = tail->len + len < tail->limit ? tail->len + len : tail->limit;

    if (want <= tail->room)
        return true;
    size_t room = tail->room ? tail->room : 4096;
    while (room < want)
        room *= 2;
    if (room > tail->limit)
        room = tail->limit;
    char *data = tail->start ? malloc(room + 1) : realloc(tail->data, room + 1);
    if (!data)
        return false;
    if (tail->start) {
        copy_out(tail, data, tail->len);
        free(tail->data);
        tail->start = 0;
    }
    tail->data = data;
    tail->room = room;
    return true;
}

bool tail_add(struct tail *tail, const char *data, size_t len)
{
    if (len > tail->limit) {
        tail->dropped += len - tail->limit;
        data += len - tail->limit;
        len = tail->limit;
    }
    if (len == 0)
        return true;
    if (!grow(tail, len) || !tail->room)
        return false;
    size_t over = tail->len + len > tail->limit ? tail->len + len - tail->limit : 0;
    tail->dropped += over;
    tail->len -= over;
    if (tail->room)
        tail->start = (tail->start + over) % tail->room;
    while (len > 0) {
        size_t at = (tail->start + tail->len) % tail->room;
        size_t piece = tail->room - at < len ? tail->room - at : len;
        memcpy(tail->data + at, data, piece);
        tail->len += piece;
        data += piece;
        len -= piece;
    }
    return true;
}

size_t tail_read(struct tail *tail, char *data, size_t room)
{
    size_t len = tail->len < room ? tail->len : room;

    if (len == 0)
        return 0;
    copy_out(tail, data, len);
    tail->len -= len;
    tail->start = tail->len ? (tail->start + len) % tail->room : 0;
    return len;
}

char *tail_take(struct tail *tail, size_t *ret_len)
{
    if (tail->start == 0) {
        char *data = tail->data ? tail->data : malloc(1);
        if (data)
            data[tail->len] = '\0';
        *ret_len = tail->len;
        tail->data = NULL;
        return data;
    }
    char *data = malloc(tail->len + 1);
    if (!data)
        return NULL;
    copy_out(tail, data, tail->len);
    data[tail->len] = '\0';
    *ret_len = tail->len;
    return data;
}
