/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *buf, size_t max)
{
    *buf = (struct buf){.max = max};
}

void buf_borrow(struct buf *buf, size_t max, char *data, size_t room)
{
    *buf = (struct buf){.data = data, .room = room, .max = max, .is_borrowed = true};
    data[0] = '\0';
}

void buf_done(struct buf *buf)
{
    if (!buf->is_borrowed)
        free(buf->data);
    buf->data = NULL;
    buf->len = buf->room = 0;
    buf->is_borrowed = false;
}

/* realloc(), to which the caller's bytes are only copied. */
static char *resize(const struct buf *buf, size_t room)
{
    char *data = realloc(buf->is_borrowed ? NULL : buf->data, room);

    if (data && buf->is_borrowed && buf->data)
        memcpy(data, buf->data, buf->len + 1);
    return data;
}

bool buf_reserve(struct buf *buf, size_t len)
{
    if (buf->failed || len > buf->max - buf->len || len >= SIZE_MAX / 4 - buf->len) {
        buf->failed = true;
        return false;
    }
    if (buf->data && buf->room - buf->len > len)
        return true;

    size_t room = buf->room < 64 ? 64 : buf->room;
    while (room - buf->len <= len)
        room *= 2;
    char *data = resize(buf, room);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->room = room;
    buf->is_borrowed = false;
    return true;
}

bool buf_append(struct buf *buf, const void *data, size_t len)
{
    if (!buf_reserve(buf, len))
        return false;
    if (len)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    return true;
}

bool buf_text(struct buf *buf, const char *text)
{
    return buf_append(buf, text, strlen(text));
}

bool buf_format(struct buf *buf, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0 || !buf_reserve(buf, (size_t)len)) {
        buf->failed = true;
        return false;
    }
    va_start(args, format);
    vsnprintf(buf->data + buf->len, (size_t)len + 1, format, args);
    va_end(args);
    buf->len += (size_t)len;
    return true;
}

char *buf_take(struct buf *buf)
{
    if (!buf->failed && !buf->data && !buf_append(buf, "", 0))
        return NULL;
    if (buf->failed) {
        buf_done(buf);
        return NULL;
    }
    char *data = buf->is_borrowed ? resize(buf, buf->len + 1) : buf->data;
    buf->is_borrowed = false;
    buf->data = NULL;
    buf->len = buf->room = 0;
    return data;
}
