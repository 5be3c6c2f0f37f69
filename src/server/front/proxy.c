/* SPDX-License-Identifier: Apache-2.0 */

/* Proxy for ports of sandboxes.
 *
 * A keeper opens a connection to the port inside and passes the socket.  The request is
 * written anew from what was parsed, never copied, and with "Connection: close": with one
 * request per connection, two parsers cannot disagree about where a request ends.  The
 * head of the response is parsed here, and its body copied as the client reads it.  After
 * an upgrade bytes are copied in both directions. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "server/front/front.h"
#include "sys/rights.h"

enum {
    HEAD_MAX =
        16 << 10, /* must fit into the memory of a connection, next to the request */
    AROUND_MAX = 16 << 10,   /* interim heads, or the framing of a chunk */
    WAITING_MAX = 128 << 10, /* of a body that the sandbox has not read */
    PIECE = 32 << 10,
    HEADERS_MAX = 100
};

/* --- Relay --- */

/* Copies bytes between two sockets: it reads from one only if the other accepts them. */

enum { RELAY_PIECE = 16 << 10, CLIENT = 0, UPSTREAM = 1 };

struct side {
    int fd;
    uv_poll_t *watch;
    bool has_ended; /* end of file */
    size_t len, at; /* bytes to be written to it */
    char data[RELAY_PIECE];
};

struct relay {
    struct front *front;
    struct MHD_UpgradeResponseHandle *upgrade;
    struct relay **owner; /* until the relay begins */
    struct side sides[2];
};

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static void watch_free(uv_poll_t **watch)
{
    if (!*watch)
        return;
    (void)uv_poll_stop(*watch);
    uv_close((uv_handle_t *)*watch, free_handle);
    *watch = NULL;
}

static uv_poll_t *watch_new(struct front *front, int fd, void *data)
{
    uv_poll_t *watch = malloc(sizeof *watch);

    if (!watch || uv_poll_init(&front->loop, watch, fd) != 0) {
        free(watch);
        return NULL;
    }
    watch->data = data;
    return watch;
}

static void relay_free(struct relay *relay)
{
    watch_free(&relay->sides[CLIENT].watch);
    watch_free(&relay->sides[UPSTREAM].watch);
    if (relay->sides[UPSTREAM].fd >= 0)
        rights_dismiss(relay->sides[UPSTREAM].fd);
    if (relay->upgrade) {
        (void)MHD_upgrade_action(relay->upgrade, MHD_UPGRADE_ACTION_CLOSE);
        relay->front->has_resumed = true;
    }
    free(relay);
}

/* Copies in both directions as far as possible.  False if a socket failed. */
static bool relay_flush(struct side *to)
{
    while (to->at < to->len) {
        ssize_t put = send(to->fd, to->data + to->at, to->len - to->at,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return errno == EAGAIN;
        to->at += (size_t)put;
    }
    to->at = to->len = 0;
    return true;
}

static bool relay_fill(struct side *from, struct side *to)
{
    if (from->has_ended || to->len > 0)
        return true;
    ssize_t got = recv(from->fd, to->data, RELAY_PIECE, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got == 0) {
        from->has_ended = true;
        (void)shutdown(to->fd, SHUT_WR);
        return true;
    }
    to->len = (size_t)got;
    return relay_flush(to);
}

static void relay_on_ready(uv_poll_t *watch, int status, int events);

static void relay_wait(struct relay *relay, int which)
{
    struct side *side = &relay->sides[which], *other = &relay->sides[!which];
    int events = (side->len ? UV_WRITABLE : 0) |
                 (!side->has_ended && !other->len ? UV_READABLE : 0);

    if (events)
        (void)uv_poll_start(side->watch, events, relay_on_ready);
    else
        (void)uv_poll_stop(side->watch);
}

static void relay_on_ready(uv_poll_t *watch, int status, int events)
{
    struct relay *relay = watch->data;
    struct side *sides = relay->sides;

    (void)events;
    bool fine = status == 0 && relay_flush(&sides[CLIENT]) &&
                relay_flush(&sides[UPSTREAM]) &&
                relay_fill(&sides[CLIENT], &sides[UPSTREAM]) &&
                relay_fill(&sides[UPSTREAM], &sides[CLIENT]);
    bool over = sides[CLIENT].has_ended && sides[UPSTREAM].has_ended &&
                !sides[CLIENT].len && !sides[UPSTREAM].len;
    if (!fine || over) {
        relay_free(relay);
        return;
    }
    relay_wait(relay, CLIENT);
    relay_wait(relay, UPSTREAM);
}

/* The client got the 101; data that it sent since comes first. */
static void relay_begin(void *cls, struct MHD_Connection *connection, void *request,
                        const char *extra, size_t extra_len, MHD_socket socket,
                        struct MHD_UpgradeResponseHandle *upgrade)
{
    struct relay *relay = cls;
    struct side *sides = relay->sides;

    (void)connection;
    (void)request;
    relay->upgrade = upgrade;
    *relay->owner = NULL;
    sides[CLIENT].fd = socket;
    for (int i = CLIENT; i <= UPSTREAM; i++)
        sides[i].watch = watch_new(relay->front, sides[i].fd, relay);
    if (extra_len > RELAY_PIECE || !sides[CLIENT].watch || !sides[UPSTREAM].watch) {
        relay_free(relay);
        return;
    }
    memcpy(sides[UPSTREAM].data, extra, extra_len);
    sides[UPSTREAM].len = extra_len;
    relay_on_ready(sides[CLIENT].watch, 0, 0);
}

/* A 101 response, after which bytes are copied between the client and *upstream, which is
 * taken over.  `first` was already read from there.  The caller owns the relay in
 * *ret_relay until it begins; then *ret_relay becomes NULL. */
static struct MHD_Response *relay_response(struct front *front, int *upstream,
                                           const char *first, size_t len,
                                           struct relay **ret_relay)
{
    struct relay *relay = calloc(1, sizeof *relay);

    if (!relay || len > RELAY_PIECE) {
        free(relay);
        return NULL;
    }
    relay->front = front;
    relay->sides[CLIENT].fd = -1;
    relay->sides[CLIENT].len = len;
    memcpy(relay->sides[CLIENT].data, first, len);
    struct MHD_Response *response = MHD_create_response_for_upgrade(relay_begin, relay);
    if (!response) {
        free(relay);
        return NULL;
    }
    relay->sides[UPSTREAM].fd = TAKE_FD(*upstream);
    relay->owner = ret_relay;
    *ret_relay = relay;
    return response;
}

/* --- Proxy --- */

enum body { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_UNTIL_CLOSE };

struct proxy {
    int upstream;
    uv_poll_t *watch;
    struct buf to; /* bytes not written yet */
    struct buf
        head;  /* head of the response, and the part of the body that came with it */
    size_t at; /* in head: bytes already copied */
    bool is_chunked; /* the body of the request */
    bool wants_upgrade, is_sent;
    bool is_deaf;        /* write failed; it may have responded anyway */
    struct relay *relay; /* a relay that has not begun */

    size_t host_at, host_len; /* of the line with the host, in `to` */
    unsigned status;
    enum body body;
    uint64_t left; /* of the body or chunk */
    size_t around; /* bytes since the last useful one */
    enum { SIZE, DATA, DATA_END, TRAILER, OVER } chunk;
    char line[256];
    size_t line_len;
};

static void proxy_done(struct exchange *exchange)
{
    struct proxy *proxy = exchange->state;

    watch_free(&proxy->watch);
    if (proxy->relay)
        relay_free(proxy->relay);
    if (proxy->upstream >= 0)
        rights_dismiss(proxy->upstream);
    buf_done(&proxy->to);
    buf_done(&proxy->head);
    free(proxy);
}

static const char too_many_headers[] = "The port responded with too many headers";

static void refuse(struct exchange *exchange, const char *message)
{
    exchange_refuse_and_close(exchange, 502, message);
}

/* --- The request --- */

/* Hop-by-hop headers, and credentials for this server. */
static bool is_ours(const char *name)
{
    static const char hop[] = {'T', 'E', '\0'}; /* a spelling exception */
    static const char *const names[] = {
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authorization",
        "Transfer-Encoding",
        "Upgrade",
        hop,
        "Trailer",
        "Content-Length",
        "Expect",
        "X-API-KEY",
        "E2B-Traffic-Access-Token",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

static enum MHD_Result copy_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    struct proxy *proxy = cls;

    (void)kind;
    if (strcasecmp(key, "Cookie") == 0)
        front_session_copy_cookies(value ? value : "", &proxy->to);
    else if (!is_ours(key) && strcasecmp(key, "Host") != 0)
        buf_format(&proxy->to, "%s: %s\r\n", key, value ? value : "");
    return MHD_YES;
}

static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);

    for (; text && *text; text++)
        if (strncasecmp(text, word, len) == 0 && !isalnum((unsigned char)text[len]))
            return true;
    return false;
}

static void write_head(struct exchange *exchange, struct proxy *proxy)
{
    const char *length = exchange_header(exchange, "Content-Length");
    const char *upgrade = exchange_header(exchange, "Upgrade");
    const char *host = exchange_header(exchange, "Host");
    struct buf *to = &proxy->to;

    proxy->is_chunked = exchange_header(exchange, "Transfer-Encoding") != NULL;
    proxy->wants_upgrade =
        upgrade && has_word(exchange_header(exchange, "Connection"), "upgrade");
    buf_format(to, "%s %s HTTP/1.1\r\n", exchange->method, exchange->target);
    proxy->host_at = to->len;
    if (host)
        buf_format(to, "Host: %s\r\n", host);
    proxy->host_len = to->len - proxy->host_at;
    (void)MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, copy_header,
                                    proxy);
    if (length)
        buf_format(to, "Content-Length: %s\r\n", length);
    if (proxy->is_chunked)
        buf_text(to, "Transfer-Encoding: chunked\r\n");
    if (proxy->wants_upgrade)
        buf_format(to, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade);
    else
        buf_text(to, "Connection: close\r\n\r\n");
}

static void on_upstream(uv_poll_t *watch, int status, int events);

static void watch_upstream(struct exchange *exchange, int events)
{
    struct proxy *proxy = exchange->state;

    if (!proxy->watch)
        proxy->watch = watch_new(exchange->front, proxy->upstream, exchange);
    if (proxy->watch)
        (void)uv_poll_start(proxy->watch, events, on_upstream);
}

/* Writes as much as the socket accepts. */
static void push(struct proxy *proxy)
{
    size_t done = 0;

    while (done < proxy->to.len && !proxy->is_deaf) {
        ssize_t put = send(proxy->upstream, proxy->to.data + done, proxy->to.len - done,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && (errno == EAGAIN || errno == ENOTCONN))
            break;
        if (put < 0)
            proxy->is_deaf = true;
        else
            done += (size_t)put;
    }
    if (proxy->is_deaf) {
        proxy->to.len = 0;
    } else if (done) {
        memmove(proxy->to.data, proxy->to.data + done, proxy->to.len - done);
        proxy->to.len -= done;
    }
}

/* The host that the sandbox sees instead, before anything is sent. */
static void mask_host(struct exchange *exchange, const char *mask)
{
    struct proxy *proxy = exchange->state;
    struct buf *to = &proxy->to, masked;
    size_t after = proxy->host_at + proxy->host_len;

    buf_init(&masked, to->max);
    (void)buf_append(&masked, to->data, proxy->host_at);
    buf_text(&masked, "Host: ");
    front_put_mask(mask, exchange->route.port, &masked);
    buf_text(&masked, "\r\n");
    (void)buf_append(&masked, to->data + after, to->len - after);
    buf_done(to);
    *to = masked;
}

static bool begin(struct exchange *exchange)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    struct request request;

    if (!proxy)
        return false;
    proxy->upstream = -1;
    buf_init(&proxy->to, WAITING_MAX + HEAD_MAX);
    buf_init(&proxy->head, HEAD_MAX);
    exchange->state = proxy;
    exchange->state_done = proxy_done;
    write_head(exchange, proxy);
    exchange_init_request(exchange, OP_DIAL, &request);
    request.numbers[DIAL_PORT] = exchange->route.port;
    exchange_send(exchange, &request, NO_STRINGS);
    return true;
}

static void on_reply(struct exchange *exchange, struct reply_packet *reply)
{
    struct proxy *proxy = exchange->state;

    if (reply->head.kind == REPLY_FAILED && reply->head.code == CAY_E_NOT_FOUND &&
        !reply->head.status) {
        refuse(exchange, "The sandbox is running but port is not open");
        return;
    }
    if (reply->head.kind != REPLY_SOCKET || reply->fd < 0) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    const char *mask = reply->head.count ? reply_next(reply, NULL) : NULL;
    if (mask)
        mask_host(exchange, mask);
    proxy->upstream = TAKE_FD(reply->fd);
    exchange_close_channel(exchange);
    watch_upstream(exchange, UV_WRITABLE);
}

/* A piece of the request's body: suspends the connection if the sandbox is slow. */
static bool feed(struct exchange *exchange, const char *data, size_t len)
{
    struct proxy *proxy = exchange->state;

    if (proxy->is_chunked)
        buf_format(&proxy->to, "%zx\r\n", len);
    (void)buf_append(&proxy->to, data, len);
    if (proxy->is_chunked)
        buf_text(&proxy->to, "\r\n");
    push(proxy);
    if (proxy->to.failed) {
        refuse(exchange, "The sandbox closed the connection");
        return false;
    }
    if (proxy->to.len > WAITING_MAX / 2) {
        watch_upstream(exchange, UV_WRITABLE);
        exchange_watch_client(exchange);
        exchange_suspend(exchange);
    }
    return true;
}

static void act(struct exchange *exchange)
{
    struct proxy *proxy = exchange->state;

    if (proxy->is_chunked)
        buf_text(&proxy->to, "0\r\n\r\n");
    proxy->is_sent = true;
    push(proxy);
    watch_upstream(exchange, UV_READABLE | (proxy->to.len ? UV_WRITABLE : 0));
    exchange_watch_client(exchange); /* the response may take hours */
    exchange_suspend(exchange);
}

/* --- Body of the response --- */

static ssize_t take_raw(struct proxy *proxy, char *data, size_t room)
{
    size_t left = proxy->head.len - proxy->at;

    if (left > 0) {
        size_t len = left < room ? left : room;
        memcpy(data, proxy->head.data + proxy->at, len);
        proxy->at += len;
        return (ssize_t)len;
    }
    ssize_t got;
    do
        got = recv(proxy->upstream, data, room, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

/* One byte of chunk framing; false if it is invalid. */
static bool take_frame(struct proxy *proxy, char byte)
{
    char *end;

    if (++proxy->around > AROUND_MAX)
        return false;
    if (byte != '\n') {
        if (proxy->line_len < sizeof proxy->line - 1 && byte != '\r')
            proxy->line[proxy->line_len++] = byte;
        return true;
    }
    proxy->line[proxy->line_len] = '\0';
    size_t len = proxy->line_len;
    proxy->line_len = 0;
    if (proxy->chunk == TRAILER) {
        if (len == 0)
            proxy->chunk = OVER;
        return true;
    }
    if (proxy->chunk == DATA_END) {
        proxy->chunk = SIZE;
        return len == 0;
    }
    if (!isxdigit((unsigned char)proxy->line[0]) || strcspn(proxy->line, "; \t") > 15)
        return false;
    proxy->left = strtoull(proxy->line, &end, 16);
    proxy->chunk = proxy->left ? DATA : TRAILER;
    return *end == '\0' || *end == ';' || *end == ' ' || *end == '\t';
}

static ssize_t take_chunked(struct proxy *proxy, char *data, size_t room)
{
    for (;;) {
        if (proxy->chunk == OVER)
            return 0;
        if (proxy->chunk == DATA) {
            ssize_t got =
                take_raw(proxy, data, proxy->left < room ? (size_t)proxy->left : room);
            if (got <= 0)
                return got == 0 ? -ECONNRESET : got;
            proxy->left -= (uint64_t)got;
            proxy->around = 0;
            if (proxy->left == 0)
                proxy->chunk = DATA_END;
            return got;
        }
        char byte;
        ssize_t got = take_raw(proxy, &byte, 1);
        if (got <= 0)
            return got == 0 ? -ECONNRESET : got;
        if (!take_frame(proxy, byte))
            return -EPROTO;
    }
}

static ssize_t read_body(void *cls, uint64_t position, char *data, size_t room)
{
    struct exchange *exchange = cls;
    struct proxy *proxy = exchange->state;

    (void)position;
    if (exchange->is_over)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    ssize_t got = 0; /* or a negative errno */
    if (proxy->body == BODY_CHUNKED) {
        got = take_chunked(proxy, data, room);
    } else if (proxy->body == BODY_UNTIL_CLOSE) {
        got = take_raw(proxy, data, room);
    } else if (proxy->left > 0) {
        got = take_raw(proxy, data, proxy->left < room ? (size_t)proxy->left : room);
        proxy->left -= got > 0 ? (uint64_t)got : 0;
        got = got == 0 ? -ECONNRESET : got;
    }
    if (got == -EAGAIN) {
        watch_upstream(exchange, UV_READABLE);
        exchange_suspend(exchange);
        return 0;
    }
    exchange->sent += got > 0 ? (uint64_t)got : 0;
    return got > 0    ? got
           : got == 0 ? MHD_CONTENT_READER_END_OF_STREAM
                      : MHD_CONTENT_READER_END_WITH_ERROR;
}

/* --- Head of the response --- */

/* "HTTP/1.1 200 OK" */
static bool parse_status(const char *line, struct proxy *proxy)
{
    if (strncmp(line, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)line[7]) ||
        line[8] != ' ')
        return false;
    for (int i = 9; i < 12; i++)
        if (!isdigit((unsigned char)line[i]))
            return false;
    proxy->status = (unsigned)strtoul(line + 9, NULL, 10);
    return proxy->status >= 100 && proxy->status < 600 &&
           (line[12] == ' ' || line[12] == '\0');
}

/* Of responses: "cookies" of Clear-Site-Data clears those of the whole registrable
 * domain, also those of the dashboard and of all other sandboxes. */
static bool is_dropped(const char *name)
{
    return is_ours(name) || strcasecmp(name, "Clear-Site-Data") == 0;
}

/* One header line; false if it is invalid, or if the length of the body is ambiguous. */
static bool parse_header(struct proxy *proxy, char *line, struct MHD_Response *response)
{
    char *colon = strchr(line, ':'), *end;

    if (!colon || !route_is_token(line, (size_t)(colon - line)))
        return false;
    *colon = '\0';
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t len = strlen(value);
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        value[--len] = '\0';
    if (response && len > 0 && !is_dropped(line))
        (void)MHD_add_response_header(response, line, value);
    if (response)
        return true;
    bool is_first = proxy->body == BODY_UNTIL_CLOSE;
    if (strcasecmp(line, "Transfer-Encoding") == 0) {
        proxy->body = BODY_CHUNKED;
        return is_first && strcasecmp(value, "chunked") == 0;
    }
    if (strcasecmp(line, "Content-Length") == 0) {
        proxy->body = BODY_LENGTH;
        proxy->left = strtoull(value, &end, 10);
        return is_first && isdigit((unsigned char)*value) && *end == '\0';
    }
    return true;
}

/* Parses the header lines; with a response, copies them to it. */
static bool parse_headers(struct proxy *proxy, char *head, struct MHD_Response *response)
{
    unsigned count = 0;
    AUTO_FREE char *copy = strdup(head);
    char *line = copy ? strstr(copy, "\r\n") : NULL;

    while (line && line[2]) {
        line += 2;
        char *end = strstr(line, "\r\n");
        if (end)
            *end = '\0';
        if (++count > HEADERS_MAX || !parse_header(proxy, line, response))
            return false;
        line = end;
    }
    return copy != NULL;
}

static struct MHD_Response *make_response(struct exchange *exchange, struct proxy *proxy)
{
    if (proxy->status == 101)
        return relay_response(exchange->front, &proxy->upstream,
                              proxy->head.data + proxy->at, proxy->head.len - proxy->at,
                              &proxy->relay);
    if (proxy->status == 204 || proxy->status == 304)
        return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    exchange->references++;
    struct MHD_Response *response = MHD_create_response_from_callback(
        proxy->body == BODY_LENGTH ? proxy->left : MHD_SIZE_UNKNOWN, PIECE, read_body,
        exchange, exchange_free);
    if (!response)
        exchange->references--;
    return response;
}

static void respond(struct exchange *exchange, char *head)
{
    struct proxy *proxy = exchange->state;

    proxy->body = BODY_UNTIL_CLOSE;
    if (!parse_headers(proxy, head, NULL) ||
        (proxy->status == 101 && !proxy->wants_upgrade)) {
        refuse(exchange, "The port does not speak HTTP");
        return;
    }
    watch_free(&proxy->watch);
    if (proxy->status == 101)
        exchange_forget_client(exchange);
    struct MHD_Response *response = make_response(exchange, proxy);
    if (!response) {
        refuse(exchange, "out of memory");
        return;
    }
    (void)parse_headers(proxy, head, response);
    const char *upgrade = exchange_header(exchange, "Upgrade");
    if (proxy->status == 101)
        (void)MHD_add_response_header(response, "Upgrade", upgrade);
    exchange_respond(exchange, proxy->status, response);
}

/* A complete head: of the response, or an interim one, whose total size is limited. */
static void take_head(struct exchange *exchange, struct proxy *proxy, char *end)
{
    struct buf *head = &proxy->head;

    *end = '\0';
    proxy->at = (size_t)(end - head->data) + 4;
    proxy->around += proxy->at;
    if (!parse_status(head->data, proxy)) {
        refuse(exchange, "The port does not speak HTTP");
    } else if (proxy->status >= 200 || proxy->status == 101) {
        proxy->around = 0;
        respond(exchange, head->data);
    } else if (proxy->around > AROUND_MAX) {
        refuse(exchange, too_many_headers);
    } else {
        memmove(head->data, end + 4, head->len - proxy->at);
        head->len -= proxy->at; /* an interim head: another follows */
    }
}

/* Collects the head; data behind it stays in the same buffer. */
static void read_head(struct exchange *exchange, struct proxy *proxy)
{
    struct buf *head = &proxy->head;

    while (!exchange->response) {
        char *end = head->len ? memmem(head->data, head->len, "\r\n\r\n", 4) : NULL;
        if (end) {
            take_head(exchange, proxy, end);
            continue;
        }
        if (!buf_reserve(head, 4096)) {
            refuse(exchange, too_many_headers);
            return;
        }
        ssize_t got = recv(proxy->upstream, head->data + head->len, 4095, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            refuse(exchange, "The sandbox closed the connection");
            return;
        }
        head->len += (size_t)got;
        head->data[head->len] = '\0';
    }
}

static void on_upstream(uv_poll_t *watch, int status, int events)
{
    struct exchange *exchange = watch->data;
    struct proxy *proxy = exchange->state;

    if (status < 0)
        events = UV_READABLE | UV_WRITABLE; /* the next call gets the error */
    if (exchange->is_queued) { /* the body is read when the client is ready */
        (void)uv_poll_stop(watch);
        exchange_resume(exchange);
        return;
    }
    if (events & UV_WRITABLE)
        push(proxy);
    if (proxy->is_sent) {
        watch_upstream(exchange, UV_READABLE | (proxy->to.len ? UV_WRITABLE : 0));
        if (events & UV_READABLE)
            read_head(exchange, proxy);
    } else if (proxy->to.len <= WAITING_MAX / 2) {
        (void)uv_poll_stop(watch);
        exchange_resume(exchange);
    }
}

const struct handler port_handler = {.method = "*",
                                     .path = "*",
                                     .begin = begin,
                                     .feed = feed,
                                     .act = act,
                                     .on_reply = on_reply};
