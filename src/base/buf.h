/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

/* A growing byte buffer with a limit set at initialization: there is no unbounded append.
 * `data` is NUL-terminated whenever it is not NULL.  A failed append leaves the content
 * unchanged and makes every later one fail too, so a caller may check once at the end. */
struct buf {
    char *data;
    size_t len;
    size_t room;
    size_t max;
    bool failed;
    bool is_borrowed; /* `data` belongs to the caller of buf_borrow() */
};

void buf_init(struct buf *buf, size_t max);

/* An empty buffer that uses `room` bytes of the caller until they do not suffice. */
void buf_borrow(struct buf *buf, size_t max, char *data, size_t room);
void buf_done(struct buf *buf);
bool buf_append(struct buf *buf, const void *data, size_t len);
bool buf_text(struct buf *buf, const char *text);
bool buf_format(struct buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Room for `len` more bytes at buf->data + buf->len; the caller adds to len itself. */
bool buf_reserve(struct buf *buf, size_t len);

/* The content as a malloc'ed, NUL-terminated string, leaving the buffer empty; NULL if an
 * append failed. */
char *buf_take(struct buf *buf);

#endif
