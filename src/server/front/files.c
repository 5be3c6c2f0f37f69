/* SPDX-License-Identifier: Apache-2.0 */

/* /files of E2B's envd: the keeper opens the file and passes the descriptor to the front,
 * which copies between the client's socket and the file. */
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
#include "base/error.h"
#include "server/front/front.h"

const char *front_file_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool front_file_init_request(struct exchange *exchange, enum op op,
                             struct request *request)
{
    const char *user = exchange_query(exchange, "username");
    const char *signature = exchange_query(exchange, "signature");
    const char *expires = exchange_query(exchange, "signature_expiration");

    exchange_init_request(exchange, op, request);
    request->numbers[FILE_EXPIRES] = -1;
    if (user && strlen(user) >= USER_MAX) {
        exchange_refuse(exchange, 401, "unknown user");
        return false;
    }
    if (user) {
        cay_copy_text(request->user, USER_MAX, user);
    } else if (!connect_user(exchange, request->user)) {
        exchange_refuse(exchange, 401, "Authorization must be Basic");
        return false;
    }
    if (exchange_header(exchange, "X-Access-Token") || *exchange->session)
        return true;
    if (!signature) {
        exchange_refuse(exchange, 401, "missing signature query parameter");
        return false;
    }
    request->flags |= FILE_SIGNED;
    if (strlen(signature) < CREDENTIAL_MAX)
        cay_copy_text(request->credential, CREDENTIAL_MAX, signature);
    if (expires && *expires &&
        !front_parse_number(expires, 0, INT64_MAX, &request->numbers[FILE_EXPIRES])) {
        exchange_refuse(exchange, 401, "invalid signature expiration");
        return false;
    }
    return true;
}

enum { GZIP_PIECE = 32 << 10, READ_PIECE = 64 << 10 };

static void download(struct exchange *exchange)
{
    const char *path = exchange_query(exchange, "path");
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    if (!front_file_init_request(exchange, OP_READ_FILE, &request))
        return;
    strings_add(&strings, path ? path : "");
    request.count = 1;
    exchange_send(exchange, &request, &strings);
}

/* "bytes=a-b", "bytes=a-", "bytes=-n": returns 1, 0 if there is no range, -1 if it is not
 * satisfiable.  Several ranges are ignored. */
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

/* --- Compression --- */

/* A file that is compressed while the client reads it. */
struct gzip {
    int fd;
    z_stream stream;
    bool has_ended; /* at the end of the file */
    uint64_t *sent; /* counts the packed bytes */
    unsigned char piece[GZIP_PIECE];
};

static ssize_t read_gzip(void *cls, uint64_t position, char *data, size_t room)
{
    struct gzip *gzip = cls;
    z_stream *stream = &gzip->stream;

    (void)position;
    stream->next_out = (unsigned char *)data;
    stream->avail_out = (unsigned)(room < UINT_MAX ? room : UINT_MAX);
    unsigned all = stream->avail_out;
    while (stream->avail_out == all) {
        if (!stream->avail_in && !gzip->has_ended) {
            ssize_t got = read(gzip->fd, gzip->piece, sizeof gzip->piece);
            if (got < 0)
                return MHD_CONTENT_READER_END_WITH_ERROR;
            gzip->has_ended = got == 0;
            stream->next_in = gzip->piece;
            stream->avail_in = (unsigned)got;
        }
        int result = deflate(stream, gzip->has_ended ? Z_FINISH : Z_NO_FLUSH);
        if (result == Z_STREAM_END && stream->avail_out == all)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (result == Z_STREAM_ERROR)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    *gzip->sent += all - stream->avail_out;
    return (ssize_t)(all - stream->avail_out);
}

static void gzip_done(void *cls)
{
    struct gzip *gzip = cls;

    (void)deflateEnd(&gzip->stream);
    (void)close(gzip->fd);
    free(gzip);
}

/* Takes over the descriptor.  libmicrohttpd reads the response only while the exchange
 * exists. */
static struct MHD_Response *gzip_response(int *fd, uint64_t *sent)
{
    struct gzip *gzip = calloc(1, sizeof *gzip);

    if (!gzip || deflateInit2(&gzip->stream, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8,
                              Z_DEFAULT_STRATEGY) != Z_OK) {
        free(gzip);
        return NULL;
    }
    gzip->fd = TAKE_FD(*fd);
    gzip->sent = sent;
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, GZIP_PIECE, read_gzip, gzip, gzip_done);
    if (!response) {
        gzip_done(gzip);
        return NULL;
    }
    (void)MHD_add_response_header(response, "Content-Encoding", "gzip");
    return response;
}

/* --- Content coding --- */

/* Whether an element of Accept-Encoding is for `name`; *ret_takes: whether it accepts it.
 */
static bool names_coding(const char *element, size_t len, const char *name,
                         bool *ret_takes)
{
    size_t word = strcspn(element, "; \t,");
    const char *weight = memmem(element, len, "q=", 2);

    if (word != strlen(name) || strncasecmp(element, name, word) != 0)
        return false;
    *ret_takes = !weight || strspn(weight + 2, "0.") < strcspn(weight + 2, "; \t,");
    return true;
}

/* A coding that is not listed is treated like "*", or else as `otherwise`. */
static bool takes_coding(const char *accepted, const char *name, bool otherwise)
{
    bool takes = otherwise, is_named = false;

    for (const char *at = accepted; *at; at += strspn(at, ", \t")) {
        size_t len = strcspn(at, ",");
        if (!is_named)
            (void)names_coding(at, len, "*", &takes);
        is_named |= names_coding(at, len, name, &takes);
        at += len;
    }
    return takes;
}

/* Most clients send Accept-Encoding without a need for it, and the network is not the
 * bottleneck here: compress only if the client accepts nothing else. */
struct coding {
    bool may_be_plain, is_gzip;
};

static struct coding choose_coding(const struct exchange *exchange)
{
    const char *accepted = exchange_header(exchange, "Accept-Encoding");

    if (!accepted)
        return (struct coding){.may_be_plain = true};
    bool plain = takes_coding(accepted, "identity", true);
    bool prefers_gzip = !plain || strcasecmp(accepted, "gzip") == 0;
    return (struct coding){plain, prefers_gzip && takes_coding(accepted, "gzip", false)};
}

/* Seconds since 1970, or -1. */
static int64_t parse_date(const char *text)
{
    struct tm tm = {0};
    const char *end = text ? strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm) : NULL;

    return end && !*end ? (int64_t)timegm(&tm) : -1;
}

/* 304 or 412 if a precondition fails, else 0.  There are no ETags, so only "*" matches.
 */
static unsigned check_conditions(const struct exchange *exchange, int64_t changed)
{
    const char *match = exchange_header(exchange, "If-Match");
    const char *other = exchange_header(exchange, "If-None-Match");
    int64_t until = parse_date(exchange_header(exchange, "If-Unmodified-Since"));
    int64_t since = parse_date(exchange_header(exchange, "If-Modified-Since"));

    if (match ? strcmp(match, "*") != 0 : until >= 0 && changed > until)
        return 412;
    if (other ? strcmp(other, "*") == 0 : since >= 0 && changed <= since)
        return 304;
    return 0;
}

/* --- Plain files --- */

struct part {
    int fd;
    uint64_t from;
};

/* A file that became shorter ends the response with an error. */
static ssize_t read_part(void *cls, uint64_t position, char *data, size_t room)
{
    const struct part *part = cls;
    ssize_t got = pread(part->fd, data, room, (off_t)(part->from + position));

    return got > 0 ? got : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void part_done(void *cls)
{
    struct part *part = cls;

    (void)close(part->fd);
    free(part);
}

/* Takes over the descriptor. */
static struct MHD_Response *part_response(int *fd, uint64_t from, uint64_t len)
{
    struct part *part = malloc(sizeof *part);

    if (!part)
        return NULL;
    *part = (struct part){TAKE_FD(*fd), from};
    struct MHD_Response *response =
        MHD_create_response_from_callback(len, READ_PIECE, read_part, part, part_done);
    if (!response)
        part_done(part);
    return response;
}

static void add_headers(struct MHD_Response *response, const struct reply_packet *reply)
{
    const char *name = front_file_base_name(reply_next(reply, NULL));
    time_t changed = (time_t)reply->head.numbers[FILE_MTIME];
    char text[400];
    struct tm tm;

    (void)MHD_add_response_header(response, "Content-Type", "application/octet-stream");
    (void)MHD_add_response_header(response, "Accept-Ranges", "bytes");
    (void)MHD_add_response_header(response, "Vary", "Accept-Encoding");
    /* Programs inside control the mtime, and the year may not fit into a header. */
    if (gmtime_r(&changed, &tm) && tm.tm_year >= 1000 - 1900 &&
        tm.tm_year <= 9999 - 1900 &&
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm) > 0)
        (void)MHD_add_response_header(response, "Last-Modified", text);
    for (const char *at = name; *at; at++) /* a name that is not valid is omitted */
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            name = "";
    bool is_named = *name && strlen(name) < 256;
    snprintf(text, sizeof text, "inline%s%s%s", is_named ? "; filename=\"" : "",
             is_named ? name : "", is_named ? "\"" : "");
    (void)MHD_add_response_header(response, "Content-Disposition", text);
}

static void send_file(struct exchange *exchange, struct reply_packet *reply,
                      struct coding coding)
{
    uint64_t size = (uint64_t)reply->head.numbers[FILE_SIZE], from = 0, len = size;
    const char *range =
        exchange_header(exchange, "If-Range") ? NULL : exchange_header(exchange, "Range");
    char text[96];
    int ranged = coding.may_be_plain ? parse_range(range, size, &from, &len) : 0;

    if (ranged < 0) {
        exchange_refuse(exchange, 416, "range not satisfiable");
        snprintf(text, sizeof text, "bytes */%llu", (unsigned long long)size);
        if (exchange->response)
            (void)MHD_add_response_header(exchange->response, "Content-Range", text);
        return;
    }
    /* An empty file needs no callback. */
    bool is_packed = coding.is_gzip && !ranged && (len || !coding.may_be_plain);
    struct MHD_Response *response =
        is_packed ? gzip_response(&reply->fd, &exchange->sent)
        : len     ? part_response(&reply->fd, from, len)
                  : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return;
    exchange->sent = is_packed ? 0 : len;
    add_headers(response, reply);
    if (ranged) {
        snprintf(text, sizeof text, "bytes %llu-%llu/%llu", (unsigned long long)from,
                 (unsigned long long)(from + len - 1), (unsigned long long)size);
        (void)MHD_add_response_header(response, "Content-Range", text);
    }
    exchange_respond(exchange, ranged ? 206 : 200, response);
}

void front_file_on_download(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind != REPLY_FILE || reply->fd < 0) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    unsigned status = check_conditions(exchange, reply->head.numbers[FILE_MTIME]);
    struct coding coding = choose_coding(exchange);
    if (status == 304)
        exchange_respond_empty(exchange, 304);
    else if (status)
        exchange_refuse(exchange, status, "precondition failed");
    else if (!coding.may_be_plain && !coding.is_gzip)
        exchange_refuse(exchange, 406, "only identity and gzip encodings are available");
    else
        send_file(exchange, reply, coding);
}

const struct handler file_handlers[] = {
    {.method = "GET",
     .path = "/files",
     .kind = FRONT_FILE,
     .act = download,
     .on_reply = front_file_on_download},
    {.method = "HEAD",
     .path = "/files",
     .kind = FRONT_FILE,
     .act = download,
     .on_reply = front_file_on_download},
    {.method = "POST",
     .path = "/files",
     .kind = FRONT_FILE,
     .begin = front_file_upload_begin,
     .feed = front_file_upload_feed,
     .act = front_file_upload_finish,
     .on_reply = front_file_on_upload},
    {0},
};
