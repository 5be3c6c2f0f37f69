/* SPDX-License-Identifier: Apache-2.0 */

/* An exchange is one connection whose requests are read.  Each request is complete and
 * checked before its first byte leaves, also the later ones of a connection; what follows
 * its head is passed on as far as its body goes.  Replies are passed on as they come.
 *
 * A request that is refused may follow others whose replies are on their way: the server
 * then gets the end of the connection, and the client the refusal after all it replies.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "tls/opener.h"

enum {
    ROUNDS = 64,          /* before other exchanges have their turn */
    PIECE = 16 << 10,     /* of a reply */
    UP_MAX = 64 << 10,    /* a head as it leaves, and a piece of the body */
    BEGIN_MS = 20000,     /* for the handshakes */
    REFUSE_MS = 2000,     /* for earlier replies, before a refusal is sent */
    HOLD_MS = 50,         /* the last bytes of a reply, which may begin a value */
    HOLD_LONG_MS = 10000, /* the same if they are several */
    DRAIN_MS = 2000       /* until a client has read the last bytes */
};

enum state { OPEN, REFUSED, DRAINING, DEAD };

struct exchange {
    struct exchange *next;
    enum state state;
    bool is_waiting; /* more to do without an event */
    char name[NETWORK_NAME_MAX];
    uint16_t port;
    uint64_t tag; /* of cay-net */
    struct end client, server;
    uint64_t deadline_ms;        /* 0: none */
    struct http_framing framing; /* of the request whose body is on its way */
    size_t request_count;
    size_t in_len;
    char in[HTTP_HEAD_MAX]; /* from the client */
    struct buf up;          /* to the server */
    size_t up_sent;
    struct buf down; /* to the client */
    size_t down_sent;
    struct buf refusal;
    bool is_tls;
    struct secret_mask mask;
    struct secret_tail tail; /* of a reply */
    bool is_tail_due;        /* it has waited long enough */
};

/* --- Life --- */

static void set_deadline(struct exchange *exchange, uint64_t ms)
{
    exchange->deadline_ms = clock_ms() + ms;
}

static int watch(const struct opener *opener, int fd, struct exchange *exchange)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = exchange};

    return epoll_ctl(opener->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static void end_exchange(struct exchange *exchange)
{
    exchange->state = DEAD;
    end_done(&exchange->client);
    end_done(&exchange->server);
}

void exchange_free_dead(struct opener *opener)
{
    for (struct exchange **at = &opener->exchanges, *exchange; (exchange = *at);) {
        if (exchange->state != DEAD) {
            at = &exchange->next;
            continue;
        }
        *at = exchange->next;
        buf_done(&exchange->up);
        buf_done(&exchange->down);
        buf_done(&exchange->refusal);
        secret_tail_done(&exchange->tail);
        secret_mask_done(&exchange->mask);
        free(exchange);
    }
}

/* The host may reply with any value that it gets. */
static bool add_values(const struct opener *opener, struct exchange *exchange)
{
    const struct secrets *secrets = opener->secrets;

    for (size_t i = 0; i < secrets->count; i++)
        for (size_t j = 0; j < secrets->at[i].use_count; j++)
            if (strcmp(secrets->at[i].uses[j].host, exchange->name) == 0 &&
                !secret_mask_add(&exchange->mask, secrets->at[i].value,
                                 strlen(secrets->at[i].value)))
                return false;
    return true;
}

void exchange_new(struct opener *opener, const struct tls_order_head *head,
                  const int fds[2])
{
    struct exchange *exchange = calloc(1, sizeof *exchange);

    if (!exchange) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return;
    }
    exchange->client.fd = fds[0];
    exchange->server.fd = fds[1];
    exchange->port = head->port;
    exchange->tag = head->tag;
    exchange->framing.is_done = true;
    cay_copy_text(exchange->name, sizeof exchange->name, head->name);
    buf_init(&exchange->up, UP_MAX);
    buf_init(&exchange->down, UP_MAX);
    buf_init(&exchange->refusal, UP_MAX);
    secret_tail_init(&exchange->tail);
    exchange->is_tls = head->is_tls;
    exchange->next = opener->exchanges;
    opener->exchanges = exchange;
    set_deadline(exchange, BEGIN_MS);
    if (!add_values(opener, exchange) || watch(opener, fds[0], exchange) != 0 ||
        watch(opener, fds[1], exchange) != 0 ||
        (head->is_tls &&
         (end_init_client(opener, exchange->name, &exchange->client) < 0 ||
          end_init_server(opener, exchange->name, &exchange->server) < 0)))
        end_exchange(exchange);
    else
        exchange_continue(opener, exchange);
}

/* --- Refusals --- */

static void report(const struct opener *opener, const struct exchange *exchange,
                   enum network_verdict verdict, const char *rule)
{
    struct tls_event event = {.version = TLS_VERSION,
                              .port = exchange->port,
                              .verdict = (uint8_t)verdict,
                              .tag = exchange->tag};

    cay_copy_text(event.name, sizeof event.name, exchange->name);
    cay_copy_text(event.rule, sizeof event.rule, rule);
    (void)!send(opener->links, &event, sizeof event, MSG_DONTWAIT | MSG_NOSIGNAL);
}

__attribute__((format(printf, 3, 4))) static void
refuse(struct exchange *exchange, const char *status, const char *format, ...)
{
    char why[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(why, sizeof why, format, values);
    va_end(values);
    exchange->state = REFUSED;
    exchange->refusal.len = 0;
    buf_format(&exchange->refusal,
               "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
               "Connection: close\r\n\r\n%s\n",
               status, strlen(why) + 1, why);
    set_deadline(exchange, REFUSE_MS);
    if (exchange->request_count)
        end_shut(&exchange->server);
    else
        exchange->server.has_ended = true; /* no reply is on its way */
}

/* --- Requests --- */

/* Headers that would lead to another protocol on this connection. */
static bool is_dropped(const struct http_header *header)
{
    return http_is_name(&header->name, "upgrade") ||
           http_is_name(&header->name, "http2-settings");
}

/* A value could not be masked in a compressed reply, nor in a part of one. */
static bool hides_values(const struct http_header *header)
{
    return http_is_like(&header->name, "accept-encoding") ||
           http_is_like(&header->name, "te") || http_is_like(&header->name, "range");
}

/* False if it must be refused, with edit->fault, or memory is exhausted. */
static bool write_head(struct exchange *exchange, const struct http_request *request,
                       struct secret_edit *edit)
{
    struct buf *up = &exchange->up;

    if (!secret_begin(edit))
        return false;
    buf_append(up, request->method.at, request->method.len);
    buf_text(up, " ");
    if (!secret_put_target(edit, &request->target, up))
        return false;
    buf_text(up, " HTTP/1.1\r\n");
    for (size_t i = 0; i < request->header_count; i++) {
        const struct http_header *header = &request->headers[i];
        if (is_dropped(header) || (hides_values(header) && exchange->mask.count) ||
            secret_is_replaced(edit, header))
            continue;
        buf_append(up, header->name.at, header->name.len);
        buf_text(up, ": ");
        if (!secret_put_value(edit, header, up))
            return false;
        buf_text(up, "\r\n");
    }
    secret_put_headers(edit, up);
    return buf_text(up, "\r\n");
}

/* Into the buffer for the server; false if it is refused. */
static bool pass_head(struct opener *opener, struct exchange *exchange,
                      const struct http_request *request)
{
    struct secret_edit edit = {.secrets = opener->secrets,
                               .headers = opener->headers,
                               .host = exchange->name,
                               .is_tls = exchange->is_tls,
                               .mask = &exchange->mask};
    char rule[SECRET_NAME_MAX + 8];

    if (!write_head(exchange, request, &edit)) {
        exchange->up.len = 0;
        refuse(exchange, "403 Forbidden", "cay: %s",
               edit.fault[0] ? edit.fault : "the head of the request is too large");
        report(opener, exchange, NETWORK_DENY, "default");
        return false;
    }
    snprintf(rule, sizeof rule, "secret %s", edit.used ? edit.used->name : "");
    if (edit.used)
        report(opener, exchange, NETWORK_ALLOW, rule);
    return true;
}

/* Some servers take the method or the path from such a header. */
static bool is_replaced(const struct http_header *header, bool is_path)
{
    static const char *const names[][3] = {
        {"x-http-method-override", "x-http-method", "x-method-override"},
        {"x-original-url", "x-rewrite-url", "x-forwarded-uri"}};

    for (size_t i = 0; i < 3; i++)
        if (http_is_like(&header->name, names[is_path][i]))
            return true;
    return false;
}

static void copy_text(char *to, size_t room, const struct http_text *text)
{
    snprintf(to, room, "%.*s", (int)text->len, text->at);
}

/* By the rules: as it is, and as such servers take it. */
static void check_rules(const struct opener *opener, const struct exchange *exchange,
                        const struct http_request *request,
                        struct network_answer *ret_answer)
{
    char method[40], target[HTTP_HEAD_MAX];

    copy_text(method, sizeof method, &request->method);
    copy_text(target, sizeof target, &request->target);
    network_check_request(opener->rules, exchange->name, exchange->port, method, target,
                          ret_answer);
    for (size_t i = 0; i < request->header_count; i++) {
        const struct http_header *header = &request->headers[i];
        if (is_replaced(header, false))
            copy_text(method, sizeof method, &header->value);
        else if (is_replaced(header, true))
            copy_text(target, sizeof target, &header->value);
        else
            continue;
        for (char *at = method; *at; at++)
            *at = (char)toupper((unsigned char)*at);
        if (ret_answer->verdict == NETWORK_ALLOW)
            network_check_request(opener->rules, exchange->name, exchange->port, method,
                                  target, ret_answer);
    }
}

/* False if it is refused. */
static bool check_request(struct opener *opener, struct exchange *exchange,
                          const struct http_request *request)
{
    struct network_answer answer;

    if (strcmp(request->host, exchange->name) != 0 ||
        (request->port && request->port != exchange->port)) {
        refuse(exchange, "421 Misdirected Request",
               "cay: a request to %s names another host, %s (Host must match)",
               exchange->name, request->host);
        report(opener, exchange, NETWORK_DENY, "default");
        return false;
    }
    check_rules(opener, exchange, request, &answer);
    if (answer.verdict == NETWORK_ALLOW)
        return true;
    refuse(exchange, "403 Forbidden", "cay: %s", answer.why);
    report(opener, exchange, NETWORK_DENY, answer.rule);
    return false;
}

static void drop_input(struct exchange *exchange, size_t len)
{
    exchange->in_len -= len;
    memmove(exchange->in, exchange->in + len, exchange->in_len);
}

/* True if something was taken from the input. */
static bool take_head(struct opener *opener, struct exchange *exchange)
{
    static struct http_request request;
    const char *fault;

    switch (http_read_request(exchange->in, exchange->in_len, &request, &fault)) {
    case HTTP_MORE:
        return false;
    case HTTP_BAD:
        refuse(exchange, "400 Bad Request",
               "cay: requests to %s are inspected, and this one is not accepted: %s",
               exchange->name, fault);
        report(opener, exchange, NETWORK_DENY, "default");
        return true;
    case HTTP_DONE:
        break;
    }
    if (!check_request(opener, exchange, &request) ||
        !pass_head(opener, exchange, &request))
        return true;
    exchange->request_count++;
    http_framing_init(&request, &exchange->framing);
    drop_input(exchange, request.head_len);
    return true;
}

static bool take_input(struct opener *opener, struct exchange *exchange)
{
    if (!exchange->in_len)
        return false;
    if (exchange->framing.is_done)
        return take_head(opener, exchange);
    ssize_t taken = http_framing_take(&exchange->framing, exchange->in, exchange->in_len);
    if (taken < 0 || !buf_append(&exchange->up, exchange->in, (size_t)taken)) {
        end_exchange(exchange); /* a part of the request has left */
        return true;
    }
    drop_input(exchange, (size_t)taken);
    return true;
}

/* --- Bytes --- */

/* Sends what is in the buffer: true if it is empty then. */
static bool flush(struct exchange *exchange, struct end *end, struct buf *bytes,
                  size_t *sent, bool *progress)
{
    while (*sent < bytes->len) {
        ssize_t more = end_send(end, bytes->data + *sent, bytes->len - *sent);
        if (more < 0) {
            if (more != -EAGAIN)
                end_exchange(exchange);
            return false;
        }
        *sent += (size_t)more;
        *progress = true;
    }
    bytes->len = *sent = 0;
    return true;
}

static bool read_client(struct exchange *exchange)
{
    ssize_t got = end_receive(&exchange->client, exchange->in + exchange->in_len,
                              sizeof exchange->in - exchange->in_len);

    if (got == -EAGAIN)
        return false;
    if (got > 0) {
        exchange->in_len += (size_t)got;
        return true;
    }
    exchange->client.has_ended = true;
    if (got < 0 || exchange->in_len || !exchange->framing.is_done)
        end_exchange(exchange); /* within a request */
    else
        end_shut(&exchange->server);
    return true;
}

static bool move_up(struct opener *opener, struct exchange *exchange)
{
    bool progress = false;

    if (exchange->state != OPEN || exchange->client.has_ended ||
        !exchange->client.is_ready)
        return false;
    if (exchange->up.len && !exchange->server.is_ready)
        return false;
    if (!flush(exchange, &exchange->server, &exchange->up, &exchange->up_sent, &progress))
        return progress;
    return take_input(opener, exchange) || read_client(exchange) || progress;
}

/* After the last byte for the client: what it still sends would turn it into a reset. */
static void begin_draining(struct exchange *exchange)
{
    exchange->state = DRAINING;
    end_shut(&exchange->client);
    set_deadline(exchange, DRAIN_MS);
}

static void take_reply(struct exchange *exchange, const char *bytes, size_t len)
{
    if (!exchange->mask.count)
        buf_append(&exchange->down, bytes, len);
    else if (!secret_mask_feed(&exchange->mask, bytes, len, &exchange->tail,
                               &exchange->down))
        end_exchange(exchange);
    exchange->is_tail_due = false;
    if (exchange->state == OPEN)
        exchange->deadline_ms = 0;
}

/* The server has sent no more.  Only then does the time of the tail pass: a client that
 * does not read, or a sandbox whose processor time is used up, must not part a value.
 * True if there is something to send. */
static bool wait_for_rest(struct exchange *exchange)
{
    if (exchange->state != OPEN || !secret_tail_waiting(&exchange->tail))
        return false;
    if (exchange->is_tail_due) {
        secret_tail_release(&exchange->tail, false, &exchange->down);
        exchange->is_tail_due = false;
        return true;
    }
    if (!exchange->deadline_ms)
        set_deadline(exchange, exchange->tail.bytes.len < SECRET_TAIL_LONG
                                   ? HOLD_MS
                                   : HOLD_LONG_MS);
    return false;
}

static bool finish(struct exchange *exchange)
{
    if (secret_tail_waiting(&exchange->tail)) {
        secret_tail_release(&exchange->tail, true, &exchange->down);
        return true;
    }
    if (exchange->state == REFUSED && exchange->refusal.len) {
        buf_append(&exchange->down, exchange->refusal.data, exchange->refusal.len);
        exchange->refusal.len = 0;
        return true;
    }
    begin_draining(exchange);
    return true;
}

static bool move_down(struct exchange *exchange)
{
    char bytes[PIECE];
    bool progress = false;

    if (!exchange->client.is_ready || exchange->state > REFUSED)
        return false;
    if (!flush(exchange, &exchange->client, &exchange->down, &exchange->down_sent,
               &progress))
        return progress;
    if (exchange->server.has_ended)
        return finish(exchange);
    if (!exchange->server.is_ready)
        return progress;
    ssize_t got = end_receive(&exchange->server, bytes, sizeof bytes);
    if (got == -EAGAIN)
        return wait_for_rest(exchange) || progress;
    if (got > 0)
        take_reply(exchange, bytes, (size_t)got);
    else
        exchange->server.has_ended = true;
    if (got < 0 && exchange->state == OPEN)
        end_exchange(exchange); /* the client must not take it for the end of a reply */
    return true;
}

/* --- Continuing --- */

static void shake_server_hands(struct opener *opener, struct exchange *exchange)
{
    char text[512];
    int code = 0;
    int error = end_handshake(&exchange->server, &code);

    if (!error || error == -EAGAIN)
        return;
    refuse(exchange, "502 Bad Gateway", "cay: no verified connection to %s: %s",
           exchange->name, end_fault(&exchange->server, code, text, sizeof text));
    exchange->server.has_ended = true;
    report(opener, exchange, NETWORK_DENY, "default");
}

/* Both at the same time: the server may be far away. */
static void shake_hands(struct opener *opener, struct exchange *exchange)
{
    const struct end *client = &exchange->client, *server = &exchange->server;
    int code = 0;

    if (client->is_ready && (server->is_ready || exchange->state != OPEN))
        return;
    if (!server->is_ready && exchange->state == OPEN)
        shake_server_hands(opener, exchange);
    int error = end_handshake(&exchange->client, &code);
    if (error && error != -EAGAIN)
        end_exchange(exchange);
    else if (!error && server->is_ready)
        exchange->deadline_ms = 0;
}

static bool drain(struct exchange *exchange)
{
    char bytes[4096];
    ssize_t got = recv(exchange->client.fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN))
        end_exchange(exchange);
    return got > 0;
}

void exchange_continue(struct opener *opener, struct exchange *exchange)
{
    bool progress = true;

    exchange->is_waiting = false;
    for (int i = 0; i < ROUNDS && progress && exchange->state != DEAD; i++) {
        if (exchange->state == DRAINING) {
            progress = drain(exchange);
            continue;
        }
        shake_hands(opener, exchange);
        progress = exchange->state != DEAD && move_up(opener, exchange);
        progress |= exchange->state != DEAD && move_down(exchange);
    }
    exchange->is_waiting = progress && exchange->state != DEAD;
    opener->has_waiting |= exchange->is_waiting;
}

/* --- Time --- */

static void on_deadline(struct exchange *exchange)
{
    exchange->deadline_ms = 0;
    if (exchange->state == OPEN && secret_tail_waiting(&exchange->tail)) {
        exchange->is_tail_due = exchange->is_waiting = true; /* unless more is here now */
        return;
    }
    if (exchange->state != REFUSED || exchange->server.has_ended) {
        end_exchange(exchange);
        return;
    }
    exchange->server.has_ended = true;
    set_deadline(exchange, DRAIN_MS);
    exchange->is_waiting = true;
}

void exchange_continue_waiting(struct opener *opener, uint64_t now_ms)
{
    opener->has_waiting = false;
    for (struct exchange *each = opener->exchanges; each; each = each->next) {
        if (each->state != DEAD && each->deadline_ms && each->deadline_ms <= now_ms)
            on_deadline(each);
        if (each->state != DEAD && each->is_waiting)
            exchange_continue(opener, each);
    }
}

int exchange_timeout(const struct opener *opener, uint64_t now_ms)
{
    uint64_t next = UINT64_MAX;

    for (const struct exchange *each = opener->exchanges; each; each = each->next)
        if (each->deadline_ms && each->deadline_ms < next)
            next = each->deadline_ms;
    if (opener->has_waiting || next <= now_ms)
        return 0;
    return next == UINT64_MAX ? -1 : (int)(next - now_ms) + 1;
}
