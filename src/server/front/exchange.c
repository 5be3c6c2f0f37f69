/* SPDX-License-Identifier: Apache-2.0 */

/* An HTTP request from its first header to the last byte of its response.
 *
 * While an exchange waits, its connection is suspended, and libmicrohttpd ignores the
 * connection until it is resumed.  libmicrohttpd then does not detect that the client
 * disconnected, so the front polls the sockets of long waits, such as streams, itself. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/hash.h"
#include "server/front/front.h"
#include "sys/rights.h"

enum { WAKES = 64 };

const char *exchange_header(const struct exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

bool exchange_is_secure(const struct exchange *exchange)
{
    const char *proto = exchange_header(exchange, "X-Forwarded-Proto");

    return exchange->front->options->tls_cert ||
           (proto && strcasecmp(proto, "https") == 0);
}

int64_t exchange_number(const struct exchange *exchange, const char *name,
                        int64_t unless_given)
{
    const char *text = exchange_header(exchange, name);
    char *end;

    if (!text || !*text || strlen(text) > 12)
        return unless_given;
    long long number = strtoll(text, &end, 10);
    return *end || number < 0 ? unless_given : number;
}

const char *exchange_query(const struct exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* --- Waiting --- */

void exchange_suspend(struct exchange *exchange)
{
    if (exchange->is_suspended)
        return;
    exchange->is_suspended = true;
    MHD_suspend_connection(exchange->connection);
}

void exchange_resume(struct exchange *exchange)
{
    if (!exchange->is_suspended)
        return;
    exchange->is_suspended = false;
    MHD_resume_connection(exchange->connection);
    exchange->front->has_resumed = true;
}

bool exchange_wait_for(struct exchange *exchange, int fd, unsigned events,
                       struct wake *wake,
                       void (*ready)(struct exchange *exchange, unsigned events))
{
    struct epoll_event event = {.events = events | EPOLLET, .data.ptr = wake};

    *wake = (struct wake){exchange, ready};
    return epoll_ctl(exchange->front->wakes, EPOLL_CTL_ADD, fd, &event) == 0;
}

void exchange_stop_waiting(const struct exchange *exchange, int fd)
{
    (void)epoll_ctl(exchange->front->wakes, EPOLL_CTL_DEL, fd, NULL);
}

/* No callback frees an exchange, so the later events stay valid. */
void exchange_on_wakes(uv_poll_t *poll, int status, int events)
{
    const struct front *front = poll->data;
    struct epoll_event ready[WAKES];

    (void)status;
    (void)events;
    int count = epoll_wait(front->wakes, ready, WAKES, 0);
    for (int i = 0; i < count; i++) {
        const struct wake *wake = ready[i].data.ptr;
        wake->ready(wake->exchange, ready[i].events);
    }
}

void exchange_forget_client(struct exchange *exchange)
{
    if (exchange->has_client)
        exchange_stop_waiting(exchange, exchange->socket);
    exchange->has_client = false;
}

/* A connection to a code service may be on its way, and in its queue descriptors of a
 * hostile service: see rights_hang_up(). */
static void hang_up_replies(int channel)
{
    static struct reply_packet reply;

    (void)shutdown(channel, SHUT_RDWR);
    while (reply_receive(channel, &reply) == 1)
        if (reply.fd >= 0)
            rights_hang_up(reply.fd);
}

/* Closing the channel also removes it from the epoll set. */
void exchange_close_channel(struct exchange *exchange)
{
    if (exchange->channel >= 0 && exchange->route.plane == PLANE_CODE)
        hang_up_replies(exchange->channel);
    if (exchange->channel >= 0)
        (void)close(exchange->channel);
    exchange->channel = -1;
}

void exchange_free_state(struct exchange *exchange)
{
    free(exchange->state);
}

int exchange_take_channel(struct exchange *exchange)
{
    if (exchange->channel >= 0)
        exchange_stop_waiting(exchange, exchange->channel);
    return TAKE_FD(exchange->channel);
}

void exchange_free(void *cls)
{
    struct exchange *exchange = cls;

    if (--exchange->references > 0)
        return;
    exchange_close_channel(exchange);
    exchange_forget_client(exchange);
    if (exchange->state_done)
        exchange->state_done(exchange);
    if (exchange->response)
        MHD_destroy_response(exchange->response);
    if (exchange->link) {
        *exchange->link = exchange->next;
        if (exchange->next)
            exchange->next->link = exchange->link;
    }
    (void)exchange_charge_body(exchange, 0);
    buf_done(&exchange->body);
    buf_done(&exchange->out);
    free(exchange->target);
    free(exchange);
}

/* --- Replies --- */

void exchange_respond(struct exchange *exchange, unsigned status,
                      struct MHD_Response *response)
{
    if (!response)
        return;
    if (exchange->response)
        MHD_destroy_response(exchange->response);
    exchange->response = response;
    exchange->status = status;
    exchange_resume(exchange);
}

struct json *exchange_json(struct exchange *exchange, size_t max)
{
    buf_done(&exchange->out);
    buf_init(&exchange->out, max);
    json_to_unicode(&exchange->json, &exchange->out);
    return &exchange->json;
}

void exchange_end_json(struct exchange *exchange, unsigned status)
{
    json_put_end(&exchange->json);
    exchange_respond_text(exchange, status, "application/json", &exchange->out);
}

void exchange_respond_text(struct exchange *exchange, unsigned status, const char *type,
                           struct buf *text)
{
    size_t len = text->len;
    char *data = buf_take(text);

    if (!data) {
        exchange_respond_empty(exchange, 500);
        return;
    }
    exchange->sent = len;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(data);
        return;
    }
    (void)MHD_add_response_header(response, "Content-Type", type);
    exchange_respond(exchange, status, response);
}

void exchange_on_done(struct exchange *exchange, struct reply_packet *reply)
{
    (void)reply;
    exchange_respond_empty(exchange, 204);
}

void exchange_respond_empty(struct exchange *exchange, unsigned status)
{
    exchange_respond(exchange, status,
                     MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

/* `reason`: why the sandbox ended, or NULL. */
static bool put_refusal(const struct exchange *exchange, unsigned status,
                        const char *message, const char *reason, struct buf *text)
{
    struct json json;
    char code[16];

    json_to_unicode(&json, text);
    json_put_object(&json);
    if (status == 502 && *exchange->route.sandbox)
        json_set_text(&json, "sandboxId", exchange->route.sandbox);
    json_set_text(&json, "message", message);
    if (exchange->route.plane == PLANE_PORT)
        json_set_int(&json, "port", exchange->route.port);
    if (reason)
        json_set_text(&json, "reason", reason);
    if (exchange->handler &&
        request_credential(exchange->handler->op) == CREDENTIAL_VOLUME) {
        snprintf(code, sizeof code, "%u", status); /* text in this part of the API */
        json_set_text(&json, "code", code);
    } else {
        json_set_int(&json, "code", status);
    }
    json_put_end(&json);
    return json_finish(&json) && !text->failed;
}

static void put_page(unsigned status, const char *message, struct buf *text)
{
    buf_format(text, "<!DOCTYPE html>\n<title>%u</title>\n<h1>%s</h1>\n<p>", status,
               MHD_get_reason_phrase_for(status));
    for (; *message; message++) {
        if (*message == '<' || *message == '&')
            buf_text(text, *message == '<' ? "&lt;" : "&amp;");
        else
            (void)buf_append(text, message, 1);
    }
    buf_text(text, "</p>\n");
}

static bool send_refusal(struct exchange *exchange, unsigned status, const char *phrase,
                         const char *message);

/* Some SDKs report only the status line of a response, so the reason phrase of a 501
 * names the feature.  libmicrohttpd cannot set the phrase (over TLS it stays "Not
 * Implemented"). */
static bool refuse_by_phrase(struct exchange *exchange, const char *message)
{
    enum { PHRASE_MAX = 200 };
    const char *at = message;

    while (*at >= ' ' && *at <= '~')
        at++;
    if (*at || at - message > PHRASE_MAX || exchange->front->options->tls_cert ||
        strcmp(exchange->method, "HEAD") == 0)
        return false;
    exchange_close_channel(exchange);
    (void)send_refusal(exchange, 501, message, message);
    exchange_resume(exchange);
    return true;
}

static void refuse(struct exchange *exchange, unsigned status, const char *message,
                   const char *reason)
{
    const char *accept = exchange_header(exchange, "Accept");
    /* Browsers get HTML instead of JSON. */
    bool is_page =
        exchange->route.plane == PLANE_PORT && accept && strstr(accept, "text/html");
    AUTO_BUF text = {.max = 16 << 10};

    cay_copy_text(exchange->reason, sizeof exchange->reason, message);
    if (status == 501 && !is_page && refuse_by_phrase(exchange, message))
        return;
    if (is_page)
        put_page(status, message, &text);
    else
        (void)put_refusal(exchange, status, message, reason, &text);
    exchange_respond_text(exchange, status,
                          is_page ? "text/html; charset=utf-8" : "application/json",
                          &text);
    if (exchange->response && (status == 429 || status == 503))
        (void)MHD_add_response_header(exchange->response, "Retry-After", "1");
}

void exchange_refuse(struct exchange *exchange, unsigned status, const char *message)
{
    refuse(exchange, status, message, NULL);
}

void exchange_refuse_and_close(struct exchange *exchange, unsigned status,
                               const char *message)
{
    exchange_refuse(exchange, status, message);
    if (exchange->response)
        (void)MHD_add_response_header(exchange->response, "Connection", "close");
}

/* Bypasses libmicrohttpd; the connection ends afterwards. */
static bool send_refusal(struct exchange *exchange, unsigned status, const char *phrase,
                         const char *message)
{
    AUTO_BUF text = {0}, raw = {0};

    char name[REQUEST_NAME];

    buf_init(&text, 4096);
    buf_init(&raw, 8192);
    request_name(exchange->id, name);
    cay_copy_text(exchange->reason, sizeof exchange->reason, message);
    exchange->is_refused = true;
    exchange->status = status;
    exchange->front->status[status / 100]++;
    if (exchange->front->options->tls_cert || /* TLS records cannot be bypassed */
        !put_refusal(exchange, status, message, NULL, &text))
        return false;
    buf_format(&raw,
               "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\nX-Request-Id: %s\r\nConnection: close\r\n\r\n%s",
               status, phrase, text.len, name, text.data);
    return !raw.failed &&
           send(exchange->socket, raw.data, raw.len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
               (ssize_t)raw.len &&
           shutdown(exchange->socket, SHUT_WR) == 0;
}

bool exchange_refuse_now(struct exchange *exchange, unsigned status, const char *message)
{
    return send_refusal(exchange, status, MHD_get_reason_phrase_for(status), message);
}

void exchange_refuse_with(struct exchange *exchange, const struct reply_packet *reply)
{
    const char *message = reply_next(reply, NULL);
    const char *hint = message ? reply_next(reply, message) : NULL;
    int status = reply->head.status;

    if (!status)
        status = reply_status_of(reply->head.code);
    if (status < 400 || status >= 600)
        status = 500;
    refuse(exchange, (unsigned)status, message ? message : "failed",
           reply->head.code == CAY_E_KILLED ? hint : NULL);
}

/* --- Requests to the broker --- */

void exchange_init_request(const struct exchange *exchange, enum op op,
                           struct request *ret_request)
{
    enum credential kind = request_credential(op);
    const char *bearer = exchange_header(exchange, "Authorization");
    const char *shown = NULL;

    *ret_request = (struct request){.version = CHANNEL_VERSION, .op = (uint32_t)op};
    if (kind == CREDENTIAL_KEY || kind == CREDENTIAL_VOLUME) {
        shown = kind == CREDENTIAL_KEY ? exchange_header(exchange, "X-API-KEY") : NULL;
        if (!shown && bearer && strncasecmp(bearer, "Bearer ", 7) == 0)
            shown = bearer + 7;
        if (!shown && kind == CREDENTIAL_KEY)
            shown = exchange->session;
    } else if (kind == CREDENTIAL_PORT) {
        shown = exchange_header(exchange, "E2B-Traffic-Access-Token");
    } else { /* without a credential, the token selects the sandbox */
        shown = exchange_header(exchange, "X-Access-Token");
    }
    const char *id = exchange->route.plane == PLANE_CONTROL ? exchange->route.part
                                                            : exchange->route.sandbox;
    if (strlen(id) < SANDBOX_ID_MAX)
        cay_copy_text(ret_request->sandbox, SANDBOX_ID_MAX, id);
    else
        cay_copy_text(ret_request->sandbox, SANDBOX_ID_MAX, "-"); /* an invalid id */
    if (!shown && kind != CREDENTIAL_VOLUME && kind != CREDENTIAL_PORT && *id)
        shown = exchange->session; /* it does not select the sandbox */
    /* A credential that is too long cannot be valid. */
    if (shown && strlen(shown) < CREDENTIAL_MAX)
        cay_copy_text(ret_request->credential, CREDENTIAL_MAX, shown);
}

static void note_tenant(struct exchange *exchange, const struct reply_packet *reply)
{
    if (*reply->head.tenant)
        memcpy(exchange->tenant, reply->head.tenant, sizeof exchange->tenant);
}

/* The channel was closed early: see "Lost replies". */
static void on_loss(struct exchange *exchange, int got);
static void on_loss_reply(struct exchange *exchange, const struct reply_packet *reply);
static void end_lost_stream(struct exchange *exchange, const struct reply_packet *reply);

static void on_replies(struct exchange *exchange, unsigned events)
{
    struct reply_packet *reply = &exchange->front->reply;

    (void)events;
    if (exchange->is_stream) { /* read_stream() reads it when the client is ready */
        exchange_resume(exchange);
        return;
    }
    while (!exchange->response && !exchange->is_stream && exchange->channel >= 0) {
        int got = reply_receive(exchange->channel, reply);
        if (got == -EAGAIN)
            return;
        if (got != 1) {
            on_loss(exchange, got);
            return;
        }
        note_tenant(exchange, reply);
        if (exchange->losses)
            on_loss_reply(exchange, reply);
        else if (reply->head.kind == REPLY_FAILED && exchange->handler->on_error)
            exchange->handler->on_error(exchange, reply);
        else
            exchange->handler->on_reply(exchange, reply);
        if (reply->fd >= 0)
            rights_dismiss(reply->fd); /* the handler did not take it */
    }
    if (exchange->response && !exchange->is_stream)
        exchange_close_channel(exchange);
}

/* 0 or a negative errno. */
static int try_send(struct exchange *exchange, struct request *request,
                    const struct buf *strings)
{
    int ends[2];

    exchange_close_channel(exchange);
    request->strings_len = (uint32_t)strings->len;
    request->id = exchange->id;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -EMFILE;
    /* A memfd stays in memory until the keeper reads it, which may take a while. */
    int error =
        strings->len > CHANNEL_PACKET && !exchange_charge_client(exchange, strings->len)
            ? -EAGAIN
            : request_send(exchange->front->options->broker, request, strings, ends[1]);
    (void)close(ends[1]);
    exchange->channel = ends[0];
    if (!error &&
        exchange_wait_for(exchange, ends[0], EPOLLIN, &exchange->reply_wake, on_replies))
        return 0;
    exchange_close_channel(exchange);
    return error ? error : -EAGAIN;
}

int exchange_try_send(struct exchange *exchange, struct request *request,
                      const struct buf *strings)
{
    int error = try_send(exchange, request, strings);

    if (!error)
        exchange_suspend(exchange);
    return error;
}

void exchange_send(struct exchange *exchange, struct request *request,
                   const struct buf *strings)
{
    int error = exchange_try_send(exchange, request, strings);

    if (error)
        exchange_refuse(exchange, error == -EMSGSIZE ? 413 : 503,
                        error == -EMSGSIZE ? "the request is too large"
                        : error == -EMFILE ? "the server has too many connections"
                                           : "the server is overloaded");
}

void exchange_send_plain(struct exchange *exchange)
{
    struct request request;

    exchange_init_request(exchange, exchange->handler->op, &request);
    exchange_send(exchange, &request, NO_STRINGS);
}

void exchange_await_reply(struct exchange *exchange, int channel)
{
    exchange_close_channel(exchange);
    exchange->channel = channel;
    if (exchange_wait_for(exchange, channel, EPOLLIN, &exchange->reply_wake,
                          on_replies)) {
        exchange_suspend(exchange);
        return;
    }
    exchange_close_channel(exchange);
    exchange_refuse_and_close(exchange, 503, "the server is overloaded");
}

/* --- Streams --- */

void exchange_end(struct exchange *exchange, bool cut)
{
    exchange->is_over = true;
    exchange->is_cut = cut;
    exchange_close_channel(exchange);
    exchange_resume(exchange);
}

static ssize_t take_out(struct exchange *exchange, char *data, size_t room)
{
    size_t left = exchange->out.len - exchange->out_at;
    size_t len = left < room ? left : room;

    memcpy(data, exchange->out.data + exchange->out_at, len);
    exchange->sent += len;
    exchange->out_at += len;
    if (len == left) { /* an idle stream needs no memory */
        size_t max = exchange->out.max;
        buf_done(&exchange->out);
        buf_init(&exchange->out, max);
        exchange->out_at = 0;
    }
    return (ssize_t)len;
}

/* False if there is no reply yet. */
static bool pull_reply(struct exchange *exchange)
{
    struct reply_packet *reply = &exchange->front->reply;
    int got = reply_receive(exchange->channel, reply);

    if (got == -EAGAIN)
        return false;
    exchange->heard_ms = uv_now(&exchange->front->loop);
    if (got != 1) {
        on_loss(exchange, got);
        return true;
    }
    if (exchange->losses)
        end_lost_stream(exchange, reply);
    else
        exchange->handler->on_reply(exchange, reply);
    if (reply->fd >= 0)
        rights_dismiss(reply->fd);
    return true;
}

/* Called by libmicrohttpd when the client accepts more data. */
static ssize_t read_stream(void *cls, uint64_t position, char *data, size_t room)
{
    struct exchange *exchange = cls;
    bool (*pull)(struct exchange *) =
        exchange->handler->pull ? exchange->handler->pull : pull_reply;

    (void)position;
    while (!exchange->out.len && !exchange->is_over) {
        if (pull(exchange))
            continue;
        exchange_suspend(exchange);
        if (exchange->has_more) /* after other connections */
            exchange_resume(exchange);
        exchange->has_more = false;
        return 0;
    }
    if (exchange->out.len)
        return take_out(exchange, data, room);
    return exchange->is_cut ? MHD_CONTENT_READER_END_WITH_ERROR
                            : MHD_CONTENT_READER_END_OF_STREAM;
}

/* A client that closed or half-closed its side of the connection does not wait for more.
 */
static void on_client(struct exchange *exchange, unsigned events)
{
    if (!(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        return;
    exchange_forget_client(exchange);
    exchange_end(exchange, true);
}

void exchange_watch_client(struct exchange *exchange)
{
    if (!exchange->has_client)
        exchange->has_client = exchange_wait_for(exchange, exchange->socket, EPOLLRDHUP,
                                                 &exchange->client, on_client);
}

void exchange_stream(struct exchange *exchange, const char *content_type,
                     uint64_t keepalive_ms, void (*keepalive)(struct exchange *exchange))
{
    /* The block size matters only for HTTP/1.0; others get as much as the connection
     * accepts. */
    enum { BLOCK = 4 << 10, OUT_MAX = 512 << 10 };
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK, read_stream, exchange, exchange_free);

    if (!response)
        return;
    exchange->references++;
    exchange->is_stream = true;
    exchange->charged = 0;
    exchange->front->streams++;
    exchange->keepalive_ms = keepalive_ms;
    exchange->keepalive = keepalive;
    exchange->heard_ms = uv_now(&exchange->front->loop);
    exchange->out.max = OUT_MAX;
    exchange_watch_client(exchange);
    (void)MHD_add_response_header(response, "Content-Type", content_type);
    exchange_respond(exchange, 200, response);
}

/* --- Memory --- */

/* Limits of the memory that requests use in the front. */

enum {
    CHARGE_FREE = 64 << 10,        /* per request, in any case */
    BODIES_CHARGE_MAX = 512 << 20, /* of all requests above that */
    CHARGE_STEP = 1 << 20,         /* granularity of the charge */
    CLIENTS_CHARGE_MAX = 512 << 20
};

bool exchange_charge_body(struct exchange *exchange, size_t len)
{
    size_t others = exchange->front->body_charged - exchange->body_charged;

    if (len > CHARGE_FREE && len > exchange->body_charged &&
        others + len > BODIES_CHARGE_MAX)
        return false;
    exchange->front->body_charged = others + len;
    exchange->body_charged = len;
    return true;
}

/* What the request is allowed by.  Other headers do not count: a client could send a new
 * one with each request. */
static const char *find_credential(const struct exchange *exchange)
{
    static const char *const by_key[] = {"X-API-KEY", "Authorization", NULL};
    static const char *const by_token[] = {"X-Access-Token", "Authorization", NULL};
    bool is_volume = exchange->handler &&
                     request_credential(exchange->handler->op) == CREDENTIAL_VOLUME;
    const char *const *names = is_volume                                ? &by_key[1]
                               : exchange->route.plane == PLANE_CONTROL ? by_key
                                                                        : by_token;
    const char *shown = NULL;

    for (; *names && !shown; names++)
        shown = exchange_header(exchange, *names);
    return !shown && *exchange->session ? exchange->session : shown;
}

bool exchange_charge_client(struct exchange *exchange, size_t len)
{
    size_t own = 0, all = 0;

    if (len <= exchange->charged || len <= CHARGE_FREE)
        return true;
    const char *shown = find_credential(exchange);
    uint64_t client = shown ? hash_bytes(shown, strlen(shown)) : 0;
    for (const struct exchange *other = exchange->front->exchanges; other;
         other = other->next) {
        all += other == exchange ? 0 : other->charged;
        own += other == exchange || other->charged_to != client ? 0 : other->charged;
    }
    len += CHARGE_STEP - len % CHARGE_STEP;
    if (own + len > CLIENT_CHARGE_MAX || all + len > CLIENTS_CHARGE_MAX)
        return false;
    exchange->charged = len;
    exchange->charged_to = client;
    return true;
}

/* --- Lost replies --- */

/* Requests whose channel was closed before the reply. */

enum { LOSSES_MAX = 5, RETRIES_MAX = 3 };

bool exchange_is_read(const struct exchange *exchange)
{
    return exchange->handler->is_read || (exchange->route.plane != PLANE_PORT &&
                                          (strcmp(exchange->method, "GET") == 0 ||
                                           strcmp(exchange->method, "HEAD") == 0));
}

/* Requests that change nothing are repeated; others are refused, since only the client
 * knows whether to repeat them. */
static void end_loss(struct exchange *exchange)
{
    if (!exchange_is_read(exchange) || exchange->retries >= RETRIES_MAX) {
        exchange_refuse_and_close(exchange, 503, "the request was lost; try again");
        return;
    }
    exchange->retries++;
    exchange->losses = 0;
    exchange->charged = 0;
    exchange->front->retried++;
    if (exchange->state_done)
        exchange->state_done(exchange);
    exchange->state = NULL;
    exchange->state_done = NULL;
    buf_done(&exchange->out);
    exchange->json = (struct json){0};
    exchange->handler->act(exchange);
    if (!exchange->response && !exchange->is_refused && exchange->channel < 0)
        exchange_refuse_and_close(exchange, 503, "the request was lost; try again");
}

static void count_loss(const struct exchange *exchange, int got)
{
    static const char *const reasons[] = {"its channel was closed before the reply",
                                          "the reply was malformed",
                                          "its channel could not be read"};
    enum loss loss = got == 0         ? LOSS_CLOSED
                     : got == -EPROTO ? LOSS_MALFORMED
                                      : LOSS_ERROR;
    struct front *front = exchange->front;

    front->lost[loss]++;
    warn_line(&front->loss_warn, "a request was lost: %s %.64s%s%s: %s%s%s",
              exchange->method, exchange->url, *exchange->route.sandbox ? " of " : "",
              exchange->route.sandbox, reasons[loss], loss == LOSS_ERROR ? ": " : "",
              loss == LOSS_ERROR ? cay_errno_words(-got) : "");
}

static void end_lost_stream(struct exchange *exchange, const struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_FAILED && reply->head.status == 502) {
        /* SDKs look for this message of E2B's proxy.  The response ends normally, since
         * one SDK version reports a connection that is cut within a chunk as a network
         * failure. */
        connect_end_with(exchange, "unavailable", reply_next(reply, NULL));
        return;
    }
    count_loss(exchange, 0);
    exchange_end(exchange, true);
}

/* The channel was closed before the reply: either the sandbox ended, which its row says
 * once the keeper was reaped, or only its keeper exited, and the next request starts
 * another.  So ask for the health of the sandbox.  With only a signature that is not
 * possible before a file is open. */
static void on_loss(struct exchange *exchange, int got)
{
    struct request request;
    bool is_volume = request_credential(exchange->handler->op) == CREDENTIAL_VOLUME;

    if (!exchange->is_stream)
        count_loss(exchange, got);
    exchange_close_channel(exchange);
    exchange->losses++;
    exchange_init_request(exchange, OP_HEALTH, &request);
    if (exchange->is_stream) {
        /* If only the keeper was lost, the stream is aborted, and the client checks the
         * sandbox. */
        if (exchange->losses > 1 || try_send(exchange, &request, NO_STRINGS) != 0) {
            count_loss(exchange, got);
            exchange_end(exchange, true);
        }
    } else if (exchange->losses > LOSSES_MAX || is_volume ||
               !(*request.sandbox || *request.credential)) {
        end_loss(exchange);
    } else {
        exchange_send(exchange, &request, NO_STRINGS);
    }
}

static void on_loss_reply(struct exchange *exchange, const struct reply_packet *reply)
{
    if (reply->head.kind != REPLY_FAILED)
        end_loss(exchange);
    else if (exchange->route.plane == PLANE_CONTROL && reply->head.status == 502)
        exchange_refuse(exchange, 404, "the sandbox has ended");
    else
        exchange_refuse_with(exchange, reply);
}
