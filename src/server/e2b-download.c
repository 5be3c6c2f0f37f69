/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/auto.h"
#include "server/e2b-files.h"

enum { SQUEEZE_PIECE = 32 << 10 };

void front_file_download(struct exchange *exchange)
{
    const char *path = exchange_query(exchange, "path");
    AUTO_BUF strings = {0};
    struct ask ask;

    if (!front_file_begin_ask(exchange, OP_READ_FILE, &ask))
        return;
    buf_init(&strings, CHANNEL_PACKET);
    strings_add(&strings, path ? path : "");
    ask.count = 1;
    exchange_ask(exchange, &ask, &strings);
}

/* "bytes=a-b", "bytes=a-", "bytes=-n": 1, 0 if there is none, -1 if it cannot be had.
 * More than one range is as good as none. */
static int parse_range(const char *text, uint64_t size, uint64_t *ret_from,
                       uint64_t *ret_len)
{
    char *end;

    if (!text || strncasecmp(text, "bytes=", 6) != 0 || strchr(text, ','))
        return 0;
    text += 6;
    if (*text == '-') {
        uint64_t last = strtoull(text + 1, &end, 10);
        if (*end || end == text + 1)
            return 0;
        *ret_len = last < size ? last : size;
        *ret_from = size - *ret_len;
        return last && size ? 1 : -1;
    }
    if (!isdigit((unsigned char)*text))
        return 0;
    uint64_t from = strtoull(text, &end, 10), to = size ? size - 1 : 0;
    if (*end != '-')
        return 0;
    if (end[1]) {
        if (!isdigit((unsigned char)end[1]))
            return 0;
        uint64_t wanted = strtoull(end + 1, &end, 10);
        if (*end || wanted < from)
            return 0;
        to = wanted < to ? wanted : to;
    }
    if (from >= size)
        return -1;
    *ret_from = from;
    *ret_len = to - from + 1;
    return 1;
}

static void http_date(int64_t seconds, char *text, size_t room)
{
    time_t when = (time_t)seconds;
    struct tm tm;

    gmtime_r(&when, &tm);
    strftime(text, room, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

/* A name that a header can carry; others are left out. */
static void add_disposition(struct MHD_Response *response, const char *path)
{
    const char *name = front_file_base_name(path);
    char text[400];

    for (const char *at = name; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            name = "";
    if (*name && strlen(name) < 256)
        snprintf(text, sizeof text, "inline; filename=\"%s\"", name);
    else
        snprintf(text, sizeof text, "inline");
    (void)MHD_add_response_header(response, "Content-Disposition", text);
}

/* --- Compressed --- */

/* A file that is compressed as the client takes it. */
struct squeeze {
    int fd;
    z_stream stream;
    bool has_ended; /* the file has */
    unsigned char piece[SQUEEZE_PIECE];
};

static ssize_t squeeze(void *cls, uint64_t position, char *data, size_t room)
{
    struct squeeze *squeeze = cls;
    z_stream *stream = &squeeze->stream;

    (void)position;
    stream->next_out = (unsigned char *)data;
    stream->avail_out = (unsigned)(room < UINT_MAX ? room : UINT_MAX);
    unsigned all = stream->avail_out;
    while (stream->avail_out == all) {
        if (!stream->avail_in && !squeeze->has_ended) {
            ssize_t got = read(squeeze->fd, squeeze->piece, sizeof squeeze->piece);
            if (got < 0)
                return MHD_CONTENT_READER_END_WITH_ERROR;
            squeeze->has_ended = got == 0;
            stream->next_in = squeeze->piece;
            stream->avail_in = (unsigned)got;
        }
        int result = deflate(stream, squeeze->has_ended ? Z_FINISH : Z_NO_FLUSH);
        if (result == Z_STREAM_END && stream->avail_out == all)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (result == Z_STREAM_ERROR)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    return (ssize_t)(all - stream->avail_out);
}

static void squeeze_done(void *cls)
{
    struct squeeze *squeeze = cls;

    (void)deflateEnd(&squeeze->stream);
    (void)close(squeeze->fd);
    free(squeeze);
}

/* Takes the descriptor. */
static struct MHD_Response *squeeze_response(int *fd)
{
    struct squeeze *squeezed = calloc(1, sizeof *squeezed);

    if (!squeezed || deflateInit2(&squeezed->stream, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8,
                                  Z_DEFAULT_STRATEGY) != Z_OK) {
        free(squeezed);
        return NULL;
    }
    squeezed->fd = TAKE_FD(*fd);
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, SQUEEZE_PIECE, squeeze, squeezed, squeeze_done);
    if (!response) {
        squeeze_done(squeezed);
        return NULL;
    }
    (void)MHD_add_response_header(response, "Content-Encoding", "gzip");
    return response;
}

/* Who takes anything, as most clients do without being asked to, is better served with
 * the file as it is: here the network is not what is slow. */
static bool wants_gzip(const struct exchange *exchange)
{
    const char *accepted = exchange_header(exchange, "Accept-Encoding");

    return accepted && strcasecmp(accepted, "gzip") == 0;
}

/* --- Ranges --- */

static void refuse_range(struct exchange *exchange, uint64_t size)
{
    char text[64];

    exchange_refuse(exchange, 416, "there are no such bytes in the file");
    snprintf(text, sizeof text, "bytes */%llu", (unsigned long long)size);
    if (exchange->response)
        (void)MHD_add_response_header(exchange->response, "Content-Range", text);
}

static void send_file(struct exchange *exchange, struct told *told)
{
    uint64_t size = (uint64_t)told->head.numbers[FILE_SIZE], from = 0, len = size;
    const char *range =
        exchange_header(exchange, "If-Range") ? NULL : exchange_header(exchange, "Range");
    const char *since = exchange_header(exchange, "If-Modified-Since");
    char date[64], text[96];
    int ranged = parse_range(range, size, &from, &len);

    http_date(told->head.numbers[FILE_MTIME], date, sizeof date);
    if (since && !range && strcmp(since, date) == 0) {
        exchange_reply_empty(exchange, 304);
        return;
    }
    if (ranged < 0) {
        refuse_range(exchange, size);
        return;
    }
    /* Of an empty file there is nothing that could be sent from it. */
    struct MHD_Response *response =
        len && !ranged && wants_gzip(exchange) ? squeeze_response(&told->fd)
        : len ? MHD_create_response_from_fd_at_offset64(len, TAKE_FD(told->fd), from)
              : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return;
    (void)MHD_add_response_header(response, "Content-Type", "application/octet-stream");
    (void)MHD_add_response_header(response, "Accept-Ranges", "bytes");
    (void)MHD_add_response_header(response, "Vary", "Accept-Encoding");
    (void)MHD_add_response_header(response, "Last-Modified", date);
    add_disposition(response, told_next(told, NULL));
    if (ranged) {
        snprintf(text, sizeof text, "bytes %llu-%llu/%llu", (unsigned long long)from,
                 (unsigned long long)(from + len - 1), (unsigned long long)size);
        (void)MHD_add_response_header(response, "Content-Range", text);
    }
    exchange_reply(exchange, ranged ? 206 : 200, response);
}

void front_file_told_download(struct exchange *exchange, struct told *told)
{
    if (told->head.kind == TELL_FILE && told->fd >= 0)
        send_file(exchange, told);
    else
        front_file_refuse(exchange, told);
}
