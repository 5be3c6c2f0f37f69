/* SPDX-License-Identifier: Apache-2.0 */

/* An upload is one file or a form with several, and may be compressed.  The keeper opens
 * each file, and meanwhile the connection is suspended, with at most one piece of the
 * part in memory; the same happens while the keeper reserves space.  Compressed data is
 * therefore inflated in pieces, and other requests are served in between. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/form.h"
#include "server/front/front.h"
#include "sys/io.h"

enum {
    INFLATE_PIECE = 64 << 10,
    INFLATE_TURN = 1 << 20, /* bytes until other requests are served */
    FIELDS_MAX = 64 << 10,  /* total of the form fields that are not files */
    TARGETS_MAX = 1024,
    METADATA_PAIRS = 64,
    METADATA_KEY = 246,
    METADATA_TOTAL = 4096,
    PATH_MOST = 4096
};

/* A file that is being written. */
struct target {
    struct target *next;
    char *request; /* path from the client */
    char *path;    /* absolute path, once it is open */
    int fd;
    int channel;           /* to the keeper, which removes an incomplete file */
    uint64_t offset, room; /* bytes written, and reserved */
    struct buf held;       /* data until it is open and space is reserved */
};

struct upload {
    struct target *targets, **end;
    struct target *pending; /* the keeper opens it, or reserves space */
    struct target *current; /* of a form: the file of the current part */
    size_t count;
    bool is_form;
    struct form form;
    size_t fields; /* bytes of other form fields */
    z_stream inflate;
    bool is_gzip, gzip_ended;
    size_t eaten;  /* bytes of the next piece that were already handled */
    bool is_late;  /* data was written after the file was opened */
    bool is_asked; /* the check of the sandbox was sent */
    char sandbox[SANDBOX_ID_MAX];
    struct buf metadata; /* pairs */
    uint32_t pairs;
    size_t metadata_len; /* of keys and values, without NULs */
    bool is_done;        /* the body is complete */
};

static void close_target(struct target *target)
{
    if (target->fd >= 0)
        (void)close(TAKE_FD(target->fd));
    if (target->channel >= 0)
        (void)close(TAKE_FD(target->channel));
}

/* The content is complete. */
static void finish_target(struct target *target)
{
    const struct upload_step whole = {.offset = target->offset};

    if (target->channel >= 0)
        (void)!send(target->channel, &whole, sizeof whole, MSG_NOSIGNAL | MSG_DONTWAIT);
    close_target(target);
}

/* The keeper removes incomplete files before the client gets the response. */
static void abandon_targets(struct exchange *exchange)
{
    const struct upload *upload = exchange->state;

    for (struct target *target = upload->targets; target; target = target->next)
        close_target(target);
}

static void upload_done(struct exchange *exchange)
{
    struct upload *upload = exchange->state;

    form_done(&upload->form);
    if (upload->is_gzip)
        (void)inflateEnd(&upload->inflate);
    while (upload->targets) {
        struct target *target = upload->targets;
        upload->targets = target->next;
        close_target(target);
        buf_done(&target->held);
        free(target->request);
        free(target->path);
        free(target);
    }
    buf_done(&upload->metadata);
    free(upload);
}

static void respond_uploaded(struct exchange *exchange)
{
    struct upload *upload = exchange->state;
    struct json *json = exchange_json(exchange, 16 << 20);

    json_put_array(json);
    for (const struct target *target = upload->targets; target; target = target->next) {
        json_put_object(json);
        json_put_key(json, "path");
        json_put_bytes(json, target->path, strlen(target->path));
        json_put_key(json, "name");
        json_put_bytes(json, front_file_base_name(target->path),
                       strlen(front_file_base_name(target->path)));
        json_set_text(json, "type", "file");
        if (upload->pairs) {
            json_put_key(json, "metadata");
            json_put_object(json);
            const char *at = upload->metadata.data;
            for (uint32_t i = 0; i < upload->pairs; i++) {
                const char *value = at + strlen(at) + 1;
                json_set_text(json, at, value);
                at = value + strlen(value) + 1;
            }
            json_put_end(json);
        }
        json_put_end(json);
    }
    exchange_end_json(exchange, 200);
}

static bool write_all(struct exchange *exchange, struct target *target, const char *data,
                      size_t len)
{
    int error = io_write(target->fd, data, len);
    bool full = error == -ENOSPC || error == -EDQUOT;

    target->offset += len;
    if (error)
        exchange_refuse_and_close(exchange, full ? 507 : 500,
                                  full ? "Not enough disk space available"
                                       : "the file cannot be written");
    return !error;
}

static bool write_target(struct exchange *exchange, struct target *target,
                         const char *data, size_t len)
{
    struct upload *upload = exchange->state;

    if (target->fd >= 0 && !target->held.len && len <= target->room - target->offset) {
        upload->is_late = true;
        return write_all(exchange, target, data, len);
    }
    if (buf_append(&target->held, data, len))
        return true;
    exchange_refuse_and_close(exchange, 500, "out of memory");
    return false;
}

static struct target *first_pending(const struct upload *upload)
{
    struct target *target = upload->targets;

    while (target && target->path && !target->held.len)
        target = target->next;
    return target;
}

static bool is_for_volume(const struct exchange *exchange)
{
    return exchange->handler->op == OP_CONTENT_WRITE;
}

static bool init_request(struct exchange *exchange, const struct target *target,
                         struct request *request, struct buf *strings)
{
    const struct upload *upload = exchange->state;
    const char *path = exchange_query(exchange, "path");

    if (is_for_volume(exchange))
        return front_content_init(exchange, OP_CONTENT_WRITE, request, strings);
    if (!front_file_init_request(exchange, OP_WRITE_FILE, request))
        return false;
    (void)buf_append(strings, upload->metadata.data, upload->metadata.len);
    strings_add(strings, target->request);
    strings_add(strings, path ? path : "");
    request->numbers[FILE_METADATA] = upload->pairs;
    request->count = 2 * upload->pairs + 2;
    return true;
}

static void request_file(struct exchange *exchange, const struct target *target)
{
    const struct upload *upload = exchange->state;
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    if (!init_request(exchange, target, &request, &strings))
        return;
    if (!upload->is_gzip)
        request.numbers[upload->is_form ? FILE_BOUND : FILE_LENGTH] =
            exchange_number(exchange, "Content-Length", 0);
    exchange_send(exchange, &request, &strings);
}

/* If the keeper exited, the channel is closed, which on_replies() handles. */
static void request_space(struct exchange *exchange, struct target *target)
{
    const struct upload_step step = {target->offset, target->held.len};

    (void)!send(target->channel, &step, sizeof step, MSG_NOSIGNAL | MSG_DONTWAIT);
    exchange_await_reply(exchange, TAKE_FD(target->channel));
}

/* Requests the first file that is not open or needs space; one at a time. */
static void request_next(struct exchange *exchange)
{
    struct upload *upload = exchange->state;
    struct target *target = first_pending(upload);

    upload->pending = target;
    if (!target || exchange->response)
        return;
    if (target->path)
        request_space(exchange, target);
    else
        request_file(exchange, target);
}

static void refuse_same(struct exchange *exchange)
{
    exchange_refuse_and_close(exchange, 400,
                              "you cannot upload multiple files to the same path");
}

static struct target *add_target(struct exchange *exchange, const char *path)
{
    struct upload *upload = exchange->state;

    for (const struct target *other = upload->targets; other; other = other->next)
        if (strcmp(other->request, path) == 0) {
            refuse_same(exchange);
            return NULL;
        }
    struct target *target = calloc(1, sizeof *target);
    if (!target || strlen(path) >= PATH_MOST || ++upload->count > TARGETS_MAX ||
        !(target->request = strdup(path))) {
        free(target);
        exchange_refuse_and_close(exchange, 400,
                                  "too many files, or the path is too long");
        return NULL;
    }
    target->fd = target->channel = -1;
    buf_init(&target->held, UPLOAD_STEP);
    *upload->end = target;
    upload->end = &target->next;
    return target;
}

static bool begin_part(void *cookie, const char *name, const char *filename)
{
    struct exchange *exchange = cookie;
    struct upload *upload = exchange->state;
    const char *path = exchange_query(exchange, "path");

    /* The previous file is complete; data in memory is written before it is closed. */
    if (upload->current && upload->current->fd >= 0 && !upload->current->held.len)
        finish_target(upload->current);
    upload->current = NULL;
    if (strcmp(name, "file") != 0)
        return true;
    upload->current = add_target(exchange, path && *path ? path
                                           : filename    ? filename
                                                         : "");
    return upload->current;
}

static bool take_part(void *cookie, const char *data, size_t len)
{
    struct exchange *exchange = cookie;
    struct upload *upload = exchange->state;

    if (upload->current)
        return write_target(exchange, upload->current, data, len);
    upload->fields += len;
    if (upload->fields <= FIELDS_MAX)
        return true;
    exchange_refuse_and_close(exchange, 413,
                              "the form fields that are not files exceed 64 KiB");
    return false;
}

/* Decompressed bytes of the body. */
static void take_plain(struct exchange *exchange, const char *data, size_t len)
{
    struct upload *upload = exchange->state;

    if (!upload->is_form)
        (void)write_target(exchange, upload->targets, data, len);
    else if (!form_feed(&upload->form, data, len) && !exchange->response)
        exchange_refuse_and_close(exchange, 400, "the form is malformed");
}

/* Any number of gzip members. */
static void take_gzip(struct exchange *exchange, const char *data, size_t len)
{
    static unsigned char piece[INFLATE_PIECE];
    struct upload *upload = exchange->state;
    z_stream *stream = &upload->inflate;
    bool has_more = true;

    stream->next_in = (unsigned char *)(uintptr_t)data + upload->eaten;
    stream->avail_in = (unsigned)(len - upload->eaten);
    upload->eaten = 0;
    for (size_t made = 0; has_more && !exchange->response;) {
        if (upload->gzip_ended && !stream->avail_in)
            return;
        if (upload->gzip_ended)
            (void)inflateReset(stream);
        stream->next_out = piece;
        stream->avail_out = sizeof piece;
        int result = inflate(stream, Z_NO_FLUSH);
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
            exchange_refuse_and_close(exchange, 400, "the body is not gzip");
            return;
        }
        size_t got = sizeof piece - stream->avail_out;
        upload->gzip_ended = result == Z_STREAM_END;
        if (got)
            take_plain(exchange, (char *)piece, got);
        made += got;
        has_more = stream->avail_in || !stream->avail_out;
        if (has_more && !exchange->response &&
            (made >= INFLATE_TURN || first_pending(upload))) {
            /* More output is available than can be handled now.  If zlib has consumed all
             * input, the last byte is passed again, so that libmicrohttpd calls again. */
            upload->eaten = stream->avail_in == 0;
            exchange->body_left = stream->avail_in + upload->eaten;
            exchange->body_ms =
                uv_now(&exchange->front->loop); /* not the client's delay */
            if (!first_pending(upload)) {
                exchange_suspend(exchange);
                exchange_resume(exchange);
            }
            return;
        }
    }
}

bool front_file_upload_feed(struct exchange *exchange, const char *data, size_t len)
{
    struct upload *upload = exchange->state;

    if (upload->is_gzip)
        take_gzip(exchange, data, len);
    else
        take_plain(exchange, data, len);
    if (!exchange->response && !upload->pending)
        request_next(exchange);
    if (exchange->response)
        abandon_targets(exchange);
    return !exchange->response;
}

/* --- Metadata --- */

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    struct exchange *exchange = cls;
    struct upload *upload = exchange->state;
    char name[METADATA_KEY + 1];
    size_t len = strlen(key);

    (void)kind;
    if (strncasecmp(key, "X-Metadata-", 11) != 0 || exchange->response)
        return MHD_YES;
    key += 11;
    len -= 11;
    upload->metadata_len += len + (value ? strlen(value) : 0);
    bool fine = len > 0 && len <= METADATA_KEY && upload->pairs < METADATA_PAIRS &&
                upload->metadata_len <= METADATA_TOTAL;
    for (const char *at = value ? value : ""; *at; at++)
        fine = fine && *at >= ' ' && *at <= '~';
    for (size_t i = 0; i < len && fine; i++)
        name[i] = (char)tolower((unsigned char)key[i]);
    if (fine) {
        name[len] = '\0';
        strings_add(&upload->metadata, name);
        strings_add(&upload->metadata, value ? value : "");
        upload->pairs++;
    }
    if (!fine || upload->metadata.failed)
        exchange_refuse_and_close(
            exchange, 400, "metadata must be printable ASCII of at most 4096 bytes");
    return MHD_YES;
}

/* --- Begin and end of an upload --- */

static bool has_type(const char *type, const char *wanted)
{
    size_t len = strlen(wanted);

    return type && strncasecmp(type, wanted, len) == 0 &&
           (type[len] == '\0' || type[len] == ';' || type[len] == ' ');
}

static void begin_body(struct exchange *exchange, struct upload *upload)
{
    const char *type = exchange_header(exchange, "Content-Type");
    const char *encoding = exchange_header(exchange, "Content-Encoding");
    const char *path = exchange_query(exchange, "path");

    if (encoding && strcasecmp(encoding, "identity") != 0) {
        upload->is_gzip = strcasecmp(encoding, "gzip") == 0 &&
                          inflateInit2(&upload->inflate, 15 + 16) == Z_OK;
        if (!upload->is_gzip) {
            exchange_refuse_and_close(exchange, 415, "Content-Encoding must be gzip");
            return;
        }
    }
    upload->form =
        (struct form){.begin = begin_part, .bytes = take_part, .cookie = exchange};
    if (has_type(type, "multipart/form-data") && !is_for_volume(exchange))
        upload->is_form = form_init(&upload->form, type);
    else if (has_type(type, "application/octet-stream") && path && *path)
        (void)add_target(exchange, path);
    else
        exchange_refuse_and_close(
            exchange, 400,
            has_type(type, "application/octet-stream") ? "path is missing"
            : is_for_volume(exchange)
                ? "Content-Type must be application/octet-stream"
                : "Content-Type must be multipart/form-data or application/octet-stream");
    if (!exchange->response && !upload->is_form && !upload->targets)
        exchange_refuse_and_close(exchange, 400, "the form is malformed");
}

bool front_file_upload_begin(struct exchange *exchange)
{
    struct upload *upload = calloc(1, sizeof *upload);
    struct request request;

    if (!upload)
        return false;
    upload->end = &upload->targets;
    buf_init(&upload->metadata, METADATA_TOTAL + METADATA_PAIRS * 2);
    exchange->state = upload;
    exchange->state_done = upload_done;
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    if (is_for_volume(exchange)
            ? !front_content_init(exchange, OP_CONTENT_WRITE, &request, &strings)
            : !front_file_init_request(exchange, OP_WRITE_FILE, &request))
        return false;
    if (!is_for_volume(exchange))
        (void)MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND,
                                        take_header, exchange);
    if (!exchange->response)
        begin_body(exchange, upload);
    return !exchange->response;
}

/* An open file outlives its sandbox, so data written late may be lost: check the sandbox
 * before the response. */
static void finish(struct exchange *exchange)
{
    struct upload *upload = exchange->state;
    struct request request;

    for (struct target *target = upload->targets; target; target = target->next)
        finish_target(target);
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    if (is_for_volume(exchange)) {
        if (!front_content_init(exchange, OP_CONTENT_STAT, &request, &strings))
            return;
    } else if (!upload->is_late || upload->is_asked) {
        respond_uploaded(exchange);
        return;
    } else {
        exchange_init_request(exchange, OP_HEALTH, &request);
        memcpy(request.sandbox, upload->sandbox, sizeof request.sandbox);
    }
    upload->is_asked = true;
    exchange_send(exchange, &request, &strings);
}

/* The body is complete; some files may still have to be opened. */
void front_file_upload_finish(struct exchange *exchange)
{
    struct upload *upload = exchange->state;

    upload->is_done = true;
    if (upload->is_gzip && !upload->gzip_ended)
        exchange_refuse(exchange, 400, "the body is incomplete");
    else if (upload->is_form && !form_is_whole(&upload->form) && !exchange->response)
        exchange_refuse(exchange, 400, "the form is incomplete");
    if (exchange->response)
        abandon_targets(exchange);
    if (exchange->response || upload->pending)
        return;
    request_next(exchange);
    if (!upload->pending && !exchange->response)
        finish(exchange);
}

/* False if the request was refused. */
static bool take_file(struct exchange *exchange, struct target *target,
                      struct reply_packet *reply)
{
    struct upload *upload = exchange->state;
    const char *path = reply_next(reply, NULL), *id = reply_next(reply, path);

    target->fd = TAKE_FD(reply->fd);
    cay_copy_text(upload->sandbox, sizeof upload->sandbox, id ? id : "");
    if (!*exchange->route
              .sandbox) /* a signed URL: a loss is checked with it from here on */
        memcpy(exchange->route.sandbox, upload->sandbox, sizeof upload->sandbox);
    for (const struct target *other = upload->targets; other; other = other->next)
        if (other->path && strcmp(other->path, path) == 0) {
            refuse_same(exchange); /* several paths may mean the same file */
            return false;
        }
    target->path = strdup(path);
    if (!target->path)
        exchange_refuse_and_close(exchange, 500, "out of memory");
    return target->path;
}

/* Writes the data in memory, if enough space is reserved. */
static bool write_held(struct exchange *exchange, struct target *target, int64_t room)
{
    target->room = room > (int64_t)target->offset ? (uint64_t)room : target->offset;
    if (target->held.len > target->room - target->offset)
        return true;
    bool written = write_all(exchange, target, target->held.data, target->held.len);
    buf_done(&target->held);
    buf_init(&target->held, UPLOAD_STEP);
    if (written && target->next) /* complete: the next part has begun */
        finish_target(target);
    return written;
}

static void take_reply(struct exchange *exchange, struct reply_packet *reply)
{
    struct upload *upload = exchange->state;
    struct target *target = upload->pending;
    bool is_file = reply->head.kind == REPLY_FILE && reply->fd >= 0;

    if (upload->is_asked && is_for_volume(exchange)) {
        front_content_respond(exchange, reply);
        return;
    }
    if (reply->head.kind == REPLY_DONE && upload->is_asked) {
        finish(exchange);
        return;
    }
    if (!target || (target->path ? reply->head.kind != REPLY_RESERVED : !is_file)) {
        exchange_refuse_with(exchange, reply);
        if (exchange->response && !upload->is_done)
            (void)MHD_add_response_header(exchange->response, "Connection", "close");
        return;
    }
    target->channel = exchange_take_channel(exchange);
    upload->pending = NULL;
    upload->is_late |= !is_file;
    if ((is_file && !take_file(exchange, target, reply)) ||
        !write_held(exchange, target,
                    reply->head.numbers[is_file ? FILE_RESERVED : RESERVED_END]))
        return;
    request_next(exchange);
    if (upload->pending || exchange->response)
        return;
    if (upload->is_done)
        finish(exchange);
    else
        exchange_resume(exchange);
}

void front_file_on_upload(struct exchange *exchange, struct reply_packet *reply)
{
    take_reply(exchange, reply);
    if (exchange->response)
        abandon_targets(exchange); /* after success they are finished */
}
