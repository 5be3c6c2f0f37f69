/* SPDX-License-Identifier: Apache-2.0 */

/* MCP over HTTP: passes messages between clients and the processes of their sessions.
 *
 * The broker checks the key of each request, and starts the process of a session
 * (keeper/mcp.c), which is `cay mcp` with a socket instead of standard streams: a message
 * is a line.  Requests get numbers of the front's own as ids and progress tokens, so that
 * two requests of a process never have the same; the client sees its own.
 *
 * A client of revision 2026-07-28 has no session: the process is that of its tenant, and
 * the client cancels a request by leaving.  The other clients may leave: what they miss
 * waits in a bounded list of events until they return with Last-Event-ID. */
#include <errno.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "mcp/message.h"
#include "server/front/front.h"

enum {
    BATCH_MAX = 64,
    PENDING_MAX = 256,        /* requests of a session */
    EVENTS_MAX = 256,         /* that a session keeps for clients that return */
    EVENTS_BYTES = 1 << 20,   /* of them */
    UNREAD_MAX = 1 << 20,     /* of a stream, before its process has to wait */
    STREAM_MAX = 40 << 20,    /* of a stream: two of the largest messages */
    UNWRITTEN_MAX = 32 << 20, /* for a process that does not read */
    UNWRITTEN_OWN = 64 << 20, /* for those of a tenant */
    UNWRITTEN_ALL = 256 << 20,
    UNWRITTEN_FREE = 64 << 10, /* of a message, in any case */
    PARTIAL_MAX = 256 << 20,   /* of incomplete messages of all processes */
    READ_SIZE = 64 << 10,
    READS_AT_A_TIME = 16,
    KEEPALIVE_MS = 15000,
    HEAD_MS = 2000, /* until a response begins in any case */
    SESSION_ID = 33,
    NAME_MAX_LEN = 64 /* of Cay-Session */
};

#define MODERN "2026-07-28"
static const char modern_key[] = "io.modelcontextprotocol/protocolVersion";
static const char *const versions[] = {MODERN, "2025-11-25", "2025-06-18", "2025-03-26",
                                       "2024-11-05"};
static const char message_head[] = "{\"jsonrpc\":\"2.0\",\"id\":";
static const char progress_head[] =
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":"
    "{\"progressToken\":";

/* Part of a stream, as it was sent. */
struct event {
    uint64_t stream, number;
    char *text;
    size_t len;
};

/* A request that the process has not answered. */
struct pending {
    struct pending *next;
    uint64_t number;           /* its id for the process */
    uint64_t stream;           /* to which the answer belongs */
    json_t *id, *token;        /* of the client; token: NULL for none */
    struct exchange *exchange; /* NULL: the client has left */
};

struct mcp_session {
    struct mcp_session *next;
    struct front *front;
    uv_poll_t poll;
    int fd;
    char id[SESSION_ID]; /* "": of requests without a session */
    char name[NAME_MAX_LEN + 1];
    char tenant[TENANT_MAX];
    struct mcp_lines lines;
    struct buf output;
    size_t output_at;
    struct pending *pending;
    unsigned pending_count;
    struct exchange *listener; /* the stream of a GET */
    struct event events[EVENTS_MAX];
    unsigned first_event, event_count;
    size_t event_bytes;
    uint64_t used_ms;
    bool is_over;
};

/* The state of an exchange. */
struct mcp_call {
    json_t *message;
    struct mcp_session *session; /* while it has requests there, or listens */
    uint64_t stream;
    unsigned waiting; /* requests without an answer */
    bool is_modern, takes_json, takes_stream, is_batch, has_primer;
    bool is_new; /* the response names the session */
    bool is_checked;
    char name[NAME_MAX_LEN + 1];
    char session_id[SESSION_ID];
};

static uint64_t last_number; /* of requests, streams and events */

static struct mcp_call *call_of(const struct exchange *exchange)
{
    return exchange->state;
}

/* --- Writing to the process --- */

static void on_session(uv_poll_t *poll, int status, int events);
static void end_session(struct mcp_session *session, const char *message);

static size_t unwritten(const struct mcp_session *session)
{
    return session->output.len - session->output_at;
}

static bool is_unread(const struct exchange *exchange)
{
    return exchange && exchange->is_stream && !exchange->is_over &&
           exchange->out.len - exchange->out_at > UNREAD_MAX;
}

/* While a client does not read, nothing is read from the process. */
static bool is_blocked(const struct mcp_session *session)
{
    bool is_blocked = is_unread(session->listener);

    for (const struct pending *one = session->pending; one; one = one->next)
        is_blocked = is_blocked || is_unread(one->exchange);
    return is_blocked;
}

static void update_poll(struct mcp_session *session)
{
    int events =
        (is_blocked(session) ? 0 : UV_READABLE) | (unwritten(session) ? UV_WRITABLE : 0);

    if (session->is_over)
        return;
    if (!events)
        (void)uv_poll_stop(&session->poll);
    else if (uv_poll_start(&session->poll, events, on_session) != 0)
        end_session(session, "the server is overloaded");
}

static void write_out(struct mcp_session *session)
{
    while (!session->is_over && unwritten(session)) {
        ssize_t done = send(session->fd, session->output.data + session->output_at,
                            unwritten(session), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno != EAGAIN)
            end_session(session, "the session has ended");
        if (done < 0)
            return;
        session->output_at += (size_t)done;
    }
    buf_done(&session->output);
    buf_init(&session->output, 2 * (size_t)UNWRITTEN_MAX);
    session->output_at = 0;
}

/* Processes that do not read must not use up the memory of the front. */
static bool has_room(const struct mcp_session *session, size_t len)
{
    size_t own = len, all = len;

    for (const struct mcp_session *one = session->front->mcp; one; one = one->next) {
        all += unwritten(one);
        own += strcmp(one->tenant, session->tenant) == 0 ? unwritten(one) : 0;
    }
    return unwritten(session) <= UNWRITTEN_MAX &&
           (len <= UNWRITTEN_FREE || (own <= UNWRITTEN_OWN && all <= UNWRITTEN_ALL));
}

/* False if the process does not read, or would not read this, or memory is exhausted.
 * Numbers may have become longer. */
static bool write_message(struct mcp_session *session, const json_t *message)
{
    AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);
    size_t before = session->output.len, len = text ? strlen(text) : 0;

    if (!text || len > MCP_LINE_MAX || !has_room(session, len))
        return false;
    if (!buf_text(&session->output, text) || !buf_text(&session->output, "\n")) {
        session->output.len = before;
        session->output.failed = false;
        return false;
    }
    write_out(session);
    update_poll(session);
    return true;
}

/* --- Requests that wait --- */

static struct pending *find_pending(struct mcp_session *session, uint64_t number)
{
    struct pending *one = session->pending;

    while (one && one->number != number)
        one = one->next;
    return one;
}

static void free_pending(struct mcp_session *session, struct pending *pending)
{
    struct pending **link = &session->pending;

    while (*link != pending)
        link = &(*link)->next;
    *link = pending->next;
    session->pending_count--;
    json_decref(pending->id);
    json_decref(pending->token);
    free(pending);
}

static void cancel(struct mcp_session *session, uint64_t number)
{
    json_t *message =
        json_pack("{s:s, s:s, s:{s:I}}", "jsonrpc", "2.0", "method",
                  "notifications/cancelled", "params", "requestId", (json_int_t)number);

    (void)write_message(session, message);
    json_decref(message);
}

/* The exchange is about to be freed. */
static void call_done(struct exchange *exchange)
{
    struct mcp_call *call = call_of(exchange);
    struct mcp_session *session = call->session;
    struct pending *next = session ? session->pending : NULL;

    if (session && session->listener == exchange)
        session->listener = NULL;
    for (struct pending *one; (one = next);) {
        next = one->next;
        if (one->exchange != exchange)
            continue;
        one->exchange = NULL;
        if (!call->is_modern)
            continue;
        uint64_t number = one->number;
        free_pending(session, one);
        cancel(session, number);
        if (session->is_over)
            break;
    }
    if (session && !session->is_over) {
        session->used_ms = uv_now(&session->front->loop);
        update_poll(session);
    }
    json_decref(call->message);
    free(call);
}

/* --- Responses --- */

static void refuse(struct exchange *exchange, unsigned status, int code,
                   const char *message, const json_t *id)
{
    AUTO_BUF text = {.max = 64 << 10};
    AUTO_FREE char *shown = id ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
    struct json json;

    json_to_unicode(&json, &text);
    json_put_object(&json);
    json_set_text(&json, "jsonrpc", "2.0");
    json_put_key(&json, "id");
    json_put_raw(&json, shown && strlen(shown) < 1024 ? shown : "null");
    json_put_key(&json, "error");
    json_put_object(&json);
    json_set_int(&json, "code", code);
    json_set_text(&json, "message", message);
    json_put_end(&json);
    json_put_end(&json);
    cay_copy_text(exchange->reason, sizeof exchange->reason, message);
    exchange_close_channel(exchange);
    exchange_respond_text(exchange, status, "application/json", &text);
}

static void add_header(struct exchange *exchange, const char *name, const char *value)
{
    if (exchange->response)
        (void)MHD_add_response_header(exchange->response, name, value);
}

static void put_event(struct buf *text, uint64_t stream, uint64_t number,
                      const struct buf *data)
{
    if (number)
        (void)buf_format(text, "id: %llu-%llu\n", (unsigned long long)stream,
                         (unsigned long long)number);
    (void)buf_text(text, "data: ");
    (void)buf_append(text, data->data ? data->data : "", data->len);
    (void)buf_text(text, "\n\n");
}

/* A client that stays away costs no memory without bound: the stream is cut. */
static void send_text(struct exchange *exchange, const struct buf *text)
{
    if (exchange->is_over)
        return;
    if (text->failed || !text->data ||
        !buf_append(&exchange->out, text->data, text->len) ||
        !exchange_charge_client(exchange, exchange->out.len))
        exchange_end(exchange, true);
    else
        exchange_resume(exchange);
}

static void keep_alive(struct exchange *exchange)
{
    if (!exchange->out.len)
        (void)buf_text(&exchange->out, ": \n\n");
}

static void begin_stream(struct exchange *exchange)
{
    struct mcp_call *call = call_of(exchange);
    AUTO_BUF text = {.max = 256};

    exchange_stream(exchange, "text/event-stream", KEEPALIVE_MS, keep_alive);
    exchange->out.max = STREAM_MAX;
    add_header(exchange, "Cache-Control", "no-cache");
    if (call->is_new)
        add_header(exchange, "Mcp-Session-Id", call->session_id);
    if (!call->has_primer)
        return;
    put_event(&text, call->stream, ++last_number, &(const struct buf){0});
    send_text(exchange, &text);
}

static void drop_event(struct mcp_session *session)
{
    struct event *event = &session->events[session->first_event];

    session->event_bytes -= event->len;
    free(event->text);
    *event = (struct event){.text = NULL};
    session->first_event = (session->first_event + 1) % EVENTS_MAX;
    session->event_count--;
}

/* Takes over the text. */
static void keep_event(struct mcp_session *session, uint64_t stream, uint64_t number,
                       struct buf *text)
{
    size_t len = text->len;

    if (len > EVENTS_BYTES)
        return;
    while (session->event_count == EVENTS_MAX ||
           (session->event_count && session->event_bytes + len > EVENTS_BYTES))
        drop_event(session);
    char *kept = buf_take(text);
    if (!kept)
        return;
    session->events[(session->first_event + session->event_count++) % EVENTS_MAX] =
        (struct event){stream, number, kept, len};
    session->event_bytes += len;
}

/* In revision 2026-07-28 an error has a status of its own. */
static unsigned status_of(const struct mcp_call *call, const struct buf *data)
{
    static const char head[] = "\"error\":{\"code\":";
    const char *at =
        call->is_modern
            ? memmem(data->data, data->len < 4096 ? data->len : 4096, head, strlen(head))
            : NULL;
    long code = at ? strtol(at + strlen(head), NULL, 10) : 0;

    if (memmem(data->data, at ? (size_t)(at - data->data) : 0, "\"result\":", 9))
        return 200;
    return code == MCP_E_METHOD                          ? 404
           : code && code != MCP_E_INTERNAL && code < -1 ? 400
                                                         : 200;
}

static void respond_json(struct exchange *exchange, struct buf *data)
{
    struct mcp_call *call = call_of(exchange);
    unsigned status = status_of(call, data);

    if (!exchange_charge_client(exchange, data->len)) {
        exchange_refuse(exchange, 503, "the client has too many unread responses");
        return;
    }
    exchange_respond_text(exchange, status, "application/json", data);
    if (call->is_new)
        add_header(exchange, "Mcp-Session-Id", call->session_id);
    add_header(exchange, "Cache-Control", "no-store");
}

/* A message for the client of this stream; `exchange` NULL: it has left. */
static void deliver(struct mcp_session *session, struct exchange *exchange,
                    uint64_t stream, struct buf *data, bool is_last)
{
    struct mcp_call *call = exchange ? call_of(exchange) : NULL;
    AUTO_BUF text = {.max = STREAM_MAX};
    uint64_t number = *session->id ? ++last_number : 0;

    session->used_ms = uv_now(&session->front->loop);
    if (exchange && !exchange->is_stream && !exchange->is_over && is_last &&
        !call->is_batch && call->takes_json) {
        respond_json(exchange, data);
        return;
    }
    if (exchange && !exchange->is_stream && !exchange->is_over && call->takes_stream)
        begin_stream(exchange);
    put_event(&text, stream, number, data);
    if (exchange && exchange->is_stream)
        send_text(exchange, &text);
    if (number)
        keep_event(session, stream, number, &text);
}

/* The answer, with the client's own id. */
static void answer(struct mcp_session *session, struct pending *pending, const char *rest,
                   size_t len)
{
    AUTO_FREE char *id = json_dumps(pending->id, JSON_ENCODE_ANY);
    AUTO_BUF data = {.max = STREAM_MAX};
    struct exchange *exchange = pending->exchange;
    struct mcp_call *call = exchange ? call_of(exchange) : NULL;
    uint64_t stream = pending->stream;

    (void)buf_text(&data, message_head);
    (void)buf_text(&data, id ? id : "null");
    (void)buf_append(&data, rest, len);
    free_pending(session, pending);
    bool is_last = call && --call->waiting == 0;
    if (is_last)
        call->session = NULL;
    deliver(session, exchange, stream, &data, is_last);
    if (is_last && exchange->is_stream && !exchange->is_over)
        exchange_end(exchange, false);
}

static void answer_error(struct mcp_session *session, struct pending *pending,
                         const char *message)
{
    AUTO_BUF text = {.max = 1024};

    (void)buf_format(&text, ",\"error\":{\"code\":%d,\"message\":\"%s\"}}",
                     MCP_E_INTERNAL, message);
    if (text.data)
        answer(session, pending, text.data, text.len);
}

/* --- Messages of the process --- */

/* The process has written the message in this form: src/mcp/server.c. */
static bool starts_with(const char *text, size_t len, const char *head)
{
    return len > strlen(head) && memcmp(text, head, strlen(head)) == 0;
}

static void take_progress(struct mcp_session *session, const char *line, size_t len)
{
    char *end;
    const char *at = line + strlen(progress_head);
    struct pending *pending = find_pending(session, strtoull(at, &end, 10));
    AUTO_BUF data = {.max = STREAM_MAX};

    if (!pending || !pending->token)
        return;
    AUTO_FREE char *token = json_dumps(pending->token, JSON_ENCODE_ANY);
    (void)buf_text(&data, progress_head);
    (void)buf_text(&data, token ? token : "null");
    (void)buf_append(&data, end, len - (size_t)(end - line));
    if (pending->exchange && (!call_of(pending->exchange)->takes_stream))
        return;
    deliver(session, pending->exchange, pending->stream, &data, false);
}

/* A request of the process, "NAME-NUMBER-REQUEST", goes where the answer of that request
 * goes. */
static void take_request(struct mcp_session *session, const char *line, size_t len,
                         const char *id)
{
    AUTO_BUF data = {.max = STREAM_MAX};
    const char *end = memchr(id, '"', len - (size_t)(id - line));
    const char *dash = end ? memrchr(id, '-', (size_t)(end - id)) : NULL;
    struct pending *pending =
        dash ? find_pending(session, strtoull(dash + 1, NULL, 10)) : NULL;
    struct exchange *exchange = pending ? pending->exchange : session->listener;

    (void)buf_append(&data, line, len);
    if (exchange || pending)
        deliver(session, exchange, pending ? pending->stream : 0, &data, false);
}

static void take_line(struct mcp_session *session, const char *line, size_t len)
{
    const char *at = line + strlen(message_head);
    char *end;

    if (starts_with(line, len, progress_head)) {
        take_progress(session, line, len);
    } else if (starts_with(line, len, message_head) && *at >= '0' && *at <= '9') {
        struct pending *pending = find_pending(session, strtoull(at, &end, 10));
        if (pending)
            answer(session, pending, end, len - (size_t)(end - line));
    } else if (starts_with(line, len, message_head) && *at == '"') {
        take_request(session, line, len, at + 1);
    }
}

/* Another process needs the memory: this one has the largest message. */
static bool has_memory(const struct mcp_session *session)
{
    size_t all = 0;

    for (const struct mcp_session *one = session->front->mcp; one; one = one->next)
        all += one->lines.text.len;
    return all < PARTIAL_MAX || session->lines.text.len < 1 << 20;
}

static void take_lines(struct mcp_session *session)
{
    AUTO_FREE char *copy = NULL;
    const char *line;
    size_t len;
    int state;

    while (!session->is_over &&
           (state = mcp_lines_take(&session->lines, &line, &len)) != 0) {
        if (state < 0) {
            end_session(session, "a message of the session is too large");
            return;
        }
        free(TAKE_PTR(copy));
        copy = malloc(len + 1); /* with a NUL, for numbers */
        if (!copy) {
            end_session(session, "memory is exhausted");
            return;
        }
        memcpy(copy, line, len);
        copy[len] = '\0';
        take_line(session, copy, len);
    }
}

static void read_in(struct mcp_session *session)
{
    static char data[READ_SIZE];

    for (int i = 0; i < READS_AT_A_TIME && !session->is_over && !is_blocked(session);
         i++) {
        ssize_t got = recv(session->fd, data, sizeof data, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0 || !mcp_lines_add(&session->lines, data, (size_t)got) ||
            !has_memory(session)) {
            end_session(session, "the session has ended");
            return;
        }
        take_lines(session);
    }
}

static void on_session(uv_poll_t *poll, int status, int events)
{
    struct mcp_session *session = poll->data;

    if (status < 0)
        end_session(session, "the session has ended");
    if (!session->is_over && events & UV_WRITABLE)
        write_out(session);
    if (!session->is_over && events & UV_READABLE)
        read_in(session);
    if (!session->is_over)
        update_poll(session);
}

/* --- Sessions --- */

static void on_closed(uv_handle_t *handle)
{
    struct mcp_session *session = handle->data;

    mcp_lines_done(&session->lines);
    buf_done(&session->output);
    while (session->event_count)
        drop_event(session);
    free(session);
}

/* Closes the socket: the process removes its sandbox and exits. */
static void end_session(struct mcp_session *session, const char *message)
{
    struct mcp_session **link = &session->front->mcp;

    if (session->is_over)
        return;
    session->is_over = true;
    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    if (session->listener) {
        call_of(session->listener)->session = NULL;
        exchange_end(session->listener, false);
        session->listener = NULL;
    }
    while (session->pending)
        answer_error(session, session->pending, message);
    (void)uv_poll_stop(&session->poll);
    (void)close(session->fd);
    uv_close((uv_handle_t *)&session->poll, on_closed);
}

/* Takes over `fd`. */
static struct mcp_session *new_session(struct exchange *exchange, int fd)
{
    struct front *front = exchange->front;
    struct mcp_call *call = call_of(exchange);
    struct mcp_session *session = calloc(1, sizeof *session);
    unsigned char random[SESSION_ID / 2];

    if (!session || getrandom(random, sizeof random, 0) != sizeof random ||
        uv_poll_init(&front->loop, &session->poll, fd) != 0) {
        free(session);
        (void)close(fd);
        return NULL;
    }
    session->front = front;
    session->fd = fd;
    session->poll.data = session;
    memcpy(session->tenant, exchange->tenant, sizeof session->tenant);
    memcpy(session->name, call->name, sizeof session->name);
    for (size_t i = 0; i < sizeof random && !call->is_modern; i++)
        snprintf(session->id + 2 * i, 3, "%02x", random[i]);
    mcp_lines_init(&session->lines);
    buf_init(&session->output, 2 * (size_t)UNWRITTEN_MAX);
    session->used_ms = uv_now(&front->loop);
    session->next = front->mcp;
    front->mcp = session;
    return session;
}

/* The ids of other tenants are unknown. */
static struct mcp_session *find_session(struct exchange *exchange, const char *id)
{
    const struct mcp_call *call = call_of(exchange);
    struct mcp_session *session = exchange->front->mcp;

    while (session && (strcmp(session->tenant, exchange->tenant) != 0 ||
                       strcmp(session->id, id) != 0 ||
                       (!*id && strcmp(session->name, call->name) != 0)))
        session = session->next;
    return session;
}

/* Whether a client waits for an answer. */
static bool has_client(const struct mcp_session *session)
{
    const struct pending *one = session->pending;

    while (one && !one->exchange)
        one = one->next;
    return one != NULL;
}

void front_mcp_sweep(struct front *front)
{
    uint64_t now = uv_now(&front->loop);
    struct mcp_session *next = front->mcp;

    for (struct mcp_session *session; (session = next);) {
        next = session->next;
        if (session->listener || has_client(session))
            session->used_ms = now;
        else if (now - session->used_ms >= front->options->mcp_idle_ms)
            end_session(session, "the session was idle");
    }
}

void front_mcp_drain(struct front *front)
{
    struct mcp_session *next = front->mcp;

    for (struct mcp_session *session; (session = next);) {
        next = session->next;
        if (!has_client(session))
            end_session(session, "the server is shutting down");
    }
}

/* --- Messages of clients --- */

/* "=?base64?...?=" */
static bool is_name(const char *shown, const char *name)
{
    static const char head[] = "=?base64?", tail[] = "?=";
    size_t len = shown ? strlen(shown) : 0;
    struct base64_decode_ctx ctx;

    if (!shown || strncmp(shown, head, strlen(head)) != 0)
        return shown && strcmp(shown, name) == 0;
    if (len < strlen(head) + strlen(tail) || strcmp(shown + len - 2, tail) != 0)
        return false;
    len -= strlen(head) + strlen(tail);
    size_t done = BASE64_DECODE_LENGTH(len) + 1; /* nettle 4 reads it */
    AUTO_FREE uint8_t *text = malloc(done);
    base64_decode_init(&ctx);
    return text && base64_decode_update(&ctx, &done, text, len, shown + strlen(head)) &&
           base64_decode_final(&ctx) && done == strlen(name) &&
           memcmp(text, name, done) == 0;
}

/* Revision 2026-07-28: the headers say what the body says. */
static const char *check_headers(const struct exchange *exchange,
                                 const struct mcp_message *message)
{
    const json_t *meta = json_object_get(message->params, "_meta");
    const char *version = json_string_value(json_object_get(meta, modern_key));
    const char *shown = exchange_header(exchange, "MCP-Protocol-Version");
    const char *method = exchange_header(exchange, "Mcp-Method");
    bool is_resource = strcmp(message->method, "resources/read") == 0;
    const char *name =
        json_string_value(is_resource ? json_object_get(message->params, "uri")
                          : strcmp(message->method, "tools/call") == 0
                              ? json_object_get(message->params, "name")
                              : NULL);

    if (!shown || !version || strcmp(shown, version) != 0)
        return "the header MCP-Protocol-Version is not that of the message";
    if (!method || strcmp(method, message->method) != 0)
        return "the header Mcp-Method is not that of the message";
    if (name && !is_name(exchange_header(exchange, "Mcp-Name"), name))
        return "the header Mcp-Name is not that of the message";
    return NULL;
}

/* The message with the front's number as id and token. */
static bool send_request(struct mcp_session *session, struct exchange *exchange,
                         json_t *item)
{
    struct mcp_call *call = call_of(exchange);
    struct pending *pending = calloc(1, sizeof *pending);
    json_t *meta = json_object_get(json_object_get(item, "params"), "_meta");
    json_t *token = json_object_get(meta, "progressToken");
    bool is_asking = json_is_string(token) || json_is_integer(token);

    if (!pending || session->pending_count >= PENDING_MAX) {
        free(pending);
        return false;
    }
    *pending = (struct pending){.next = session->pending,
                                .number = ++last_number,
                                .stream = call->stream,
                                .id = json_incref(json_object_get(item, "id")),
                                .token = is_asking ? json_incref(token) : NULL,
                                .exchange = exchange};
    session->pending = pending;
    session->pending_count++;
    call->session = session;
    call->waiting++;
    json_t *number = json_integer((json_int_t)pending->number);
    if (json_object_set(item, "id", number) == 0 &&
        (!is_asking || json_object_set(meta, "progressToken", number) == 0) &&
        write_message(session, item)) {
        json_decref(number);
        return true;
    }
    json_decref(number);
    if (session->is_over) /* which has answered */
        return true;
    if (--call->waiting == 0)
        call->session = NULL;
    free_pending(session, pending);
    return false;
}

/* The process answers no cancelled request. */
static bool send_cancel(struct mcp_session *session, const json_t *params)
{
    const json_t *id = json_object_get(params, "requestId");
    struct pending *pending = session->pending;

    while (pending && !json_equal(pending->id, id))
        pending = pending->next;
    if (!pending)
        return true;
    cancel(session, pending->number);
    if (!session->is_over)
        answer_error(session, pending, "the request was cancelled");
    return true;
}

/* False if the process cannot take it. */
static bool send_item(struct mcp_session *session, struct exchange *exchange,
                      json_t *item)
{
    struct mcp_message message;

    mcp_message(item, &message);
    if (message.kind == MCP_REQUEST)
        return send_request(session, exchange, item);
    if (message.kind == MCP_NOTIFICATION &&
        strcmp(message.method, "notifications/cancelled") == 0)
        return send_cancel(session, message.params);
    return write_message(session, item);
}

/* In the order of the message, which may be a batch. */
static void send_to(struct mcp_session *session, struct exchange *exchange)
{
    struct mcp_call *call = call_of(exchange);
    size_t count = call->is_batch ? json_array_size(call->message) : 1;
    bool is_sent = true;

    call->stream = ++last_number;
    session->used_ms = uv_now(&session->front->loop);
    if (*session->id)
        cay_copy_text(call->session_id, sizeof call->session_id, session->id);
    exchange_close_channel(exchange);
    for (size_t i = 0; i < count && is_sent && !session->is_over; i++) {
        json_t *item = call->is_batch ? json_array_get(call->message, i) : call->message;
        is_sent = send_item(session, exchange, item);
    }
    json_decref(call->message);
    call->message = NULL;
    if (exchange->response || exchange->is_stream)
        return;
    if (!is_sent && !call->waiting)
        exchange_refuse(exchange, 503,
                        "the session has too many requests, or this is too large");
    else if (!call->waiting)
        exchange_respond_empty(exchange, 202);
    else
        exchange_watch_client(exchange);
}

static const char *check_items(const struct mcp_call *call)
{
    struct mcp_message message;
    json_t *item;
    size_t i;

    if (!call->is_batch) {
        mcp_message(call->message, &message);
        return message.kind == MCP_MALFORMED ? "the message is not JSON-RPC 2.0" : NULL;
    }
    if (!call->takes_stream)
        return "the answers to a batch are text/event-stream: accept it";
    if (!json_array_size(call->message) || json_array_size(call->message) > BATCH_MAX)
        return "a batch has 1 to 64 messages";
    json_array_foreach(call->message, i, item)
    {
        mcp_message(item, &message);
        if (message.kind == MCP_MALFORMED ||
            (message.kind == MCP_REQUEST && strcmp(message.method, "initialize") == 0))
            return "the batch has a message that is not allowed there";
    }
    return NULL;
}

/* False if the body was refused. */
static bool parse(struct exchange *exchange)
{
    struct mcp_call *call = call_of(exchange);
    const char *wrong = "";

    if (!exchange_charge_client(exchange, exchange->body.len)) {
        exchange_refuse(exchange, 503, "the client has too many open requests");
        return false;
    }
    call->message = mcp_parse(exchange->body.data ? exchange->body.data : "",
                              exchange->body.len, &wrong);
    buf_done(&exchange->body);
    (void)exchange_charge_body(exchange, 0);
    call->is_batch = json_is_array(call->message);
    if (!call->message) {
        refuse(exchange, 400, MCP_E_PARSE, wrong, NULL);
        return false;
    }
    wrong = check_items(call);
    if (wrong)
        refuse(exchange, 400, MCP_E_REQUEST, wrong, NULL);
    return !wrong;
}

static void start_session(struct exchange *exchange)
{
    struct request request;

    exchange_init_request(exchange, OP_MCP, &request);
    exchange_send(exchange, &request, NO_STRINGS);
}

static void refuse_session(struct exchange *exchange, unsigned status)
{
    refuse(exchange, status, MCP_E_REQUEST,
           status == 404 ? "unknown session: initialize a new one"
                         : "the header Mcp-Session-Id is missing: send initialize first",
           json_object_get(call_of(exchange)->message, "id"));
}

/* Without a session: the first message of one, or one of revision 2026-07-28. */
static void post_alone(struct exchange *exchange)
{
    struct mcp_call *call = call_of(exchange);
    const char *version = exchange_header(exchange, "MCP-Protocol-Version");
    struct mcp_message message = {.kind = MCP_MALFORMED};

    if (!call->is_batch)
        mcp_message(call->message, &message);
    call->is_modern =
        json_object_get(json_object_get(message.params, "_meta"), modern_key) ||
        (version && strcmp(version, MODERN) == 0);
    if (message.kind == MCP_REQUEST && call->is_modern) {
        const char *wrong = check_headers(exchange, &message);
        struct mcp_session *session = find_session(exchange, "");
        if (wrong)
            refuse(exchange, 400, MCP_E_HEADERS, wrong, message.id);
        else if (session)
            send_to(session, exchange);
        else
            start_session(exchange);
    } else if (message.kind == MCP_REQUEST && strcmp(message.method, "initialize") == 0) {
        call->is_new = true;
        start_session(exchange);
    } else if (call->is_modern && message.kind != MCP_MALFORMED) {
        exchange_close_channel(exchange);
        exchange_respond_empty(exchange, 202); /* that revision has no such messages */
    } else {
        refuse_session(exchange, 400);
    }
}

static void post(struct exchange *exchange)
{
    const char *id = exchange_header(exchange, "Mcp-Session-Id");

    if (!parse(exchange))
        return;
    struct mcp_session *session = id && *id ? find_session(exchange, id) : NULL;
    if (session)
        send_to(session, exchange);
    else if (id)
        refuse_session(exchange, 404);
    else
        post_alone(exchange);
}

/* --- GET and DELETE --- */

/* The stream of an event is that of a request, which may wait, or of a GET. */
static void resume(struct mcp_session *session, struct exchange *exchange, const char *id)
{
    struct mcp_call *call = call_of(exchange);
    AUTO_BUF text = {.max = 2 * EVENTS_BYTES};
    char *end;
    uint64_t stream = strtoull(id, &end, 10);
    uint64_t number = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;
    bool is_waiting = false;

    call->stream = stream;
    begin_stream(exchange);
    for (unsigned i = 0; i < session->event_count; i++) {
        const struct event *event =
            &session->events[(session->first_event + i) % EVENTS_MAX];
        if (event->stream == stream && event->number > number)
            (void)buf_append(&text, event->text, event->len);
    }
    if (text.len)
        send_text(exchange, &text);
    for (struct pending *one = session->pending; one; one = one->next) {
        if (one->stream != stream || !stream)
            continue;
        if (one->exchange) {
            call_of(one->exchange)->session = NULL;
            exchange_end(one->exchange, true);
        }
        one->exchange = exchange;
        call->waiting++;
        call->session = session;
        is_waiting = true;
    }
    if (stream && !is_waiting)
        exchange_end(exchange, false);
}

static void listen_to(struct mcp_session *session, struct exchange *exchange)
{
    const char *last = exchange_header(exchange, "Last-Event-ID");
    struct mcp_call *call = call_of(exchange);

    exchange_close_channel(exchange);
    session->used_ms = uv_now(&session->front->loop);
    if (!last || !strtoull(last, NULL, 10)) { /* one listener: the latest */
        if (session->listener) {
            call_of(session->listener)->session = NULL;
            exchange_end(session->listener, false);
        }
        session->listener = exchange;
        call->session = session;
    }
    if (last) {
        resume(session, exchange, last);
        return;
    }
    begin_stream(exchange);
}

static void with_session(struct exchange *exchange)
{
    const char *id = exchange_header(exchange, "Mcp-Session-Id");
    struct mcp_session *session = id && *id ? find_session(exchange, id) : NULL;

    if (!session) {
        refuse_session(exchange, id ? 404 : 400);
    } else if (strcmp(exchange->method, "GET") == 0) {
        listen_to(session, exchange);
    } else {
        exchange_close_channel(exchange);
        end_session(session, "the session was ended");
        exchange_respond_empty(exchange, 204);
    }
}

/* --- Requests --- */

static bool accepts(const struct exchange *exchange, const char *type)
{
    const char *accept = exchange_header(exchange, "Accept");

    return !accept || strstr(accept, type) || strstr(accept, "*/*");
}

/* The header Cay-Session, for clients of one tenant that shall not share a sandbox. */
static bool take_name(const struct exchange *exchange, struct mcp_call *call)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *name = exchange_header(exchange, "Cay-Session");

    if (!name)
        return true;
    if (!*name || strlen(name) > NAME_MAX_LEN || strspn(name, letters) != strlen(name))
        return false;
    cay_copy_text(call->name, sizeof call->name, name);
    return true;
}

static bool is_version(const char *version)
{
    bool is_known = !version;

    for (size_t i = 0; i < sizeof versions / sizeof *versions && version; i++)
        is_known = is_known || strcmp(versions[i], version) == 0;
    return is_known;
}

/* The error of the headers, or NULL. */
static const char *check(struct exchange *exchange, struct mcp_call *call,
                         unsigned *ret_status)
{
    const char *type = exchange_header(exchange, "Content-Type");
    const char *version = exchange_header(exchange, "MCP-Protocol-Version");
    bool is_post = strcmp(exchange->method, "POST") == 0;
    bool is_get = strcmp(exchange->method, "GET") == 0;

    call->takes_json = accepts(exchange, "application/json");
    call->takes_stream = accepts(exchange, "text/event-stream");
    call->has_primer = version && strcmp(version, "2025-11-25") == 0;
    *ret_status = 406;
    if (is_get && !call->takes_stream)
        return "a stream of events is text/event-stream: accept it";
    if (is_post && !call->takes_stream && !call->takes_json)
        return "accept application/json and text/event-stream";
    *ret_status = 415;
    if (is_post && (!type || strncasecmp(type, "application/json", 16) != 0))
        return "the body has to be application/json";
    *ret_status = 400;
    /* A request of an unknown revision has it in its body, too, and gets a list. */
    if (!is_version(version) && !exchange_header(exchange, "Mcp-Method"))
        return "unsupported MCP-Protocol-Version";
    return take_name(exchange, call) ? NULL
                                     : "Cay-Session: use up to 64 letters and digits";
}

static void act(struct exchange *exchange)
{
    struct mcp_call *call = calloc(1, sizeof *call);
    struct request request;
    unsigned status;

    if (!call) {
        exchange_refuse(exchange, 500, "out of memory");
        return;
    }
    exchange->state = call;
    exchange->state_done = call_done;
    const char *wrong = check(exchange, call, &status);
    if (wrong) {
        exchange_refuse(exchange, status, wrong);
        return;
    }
    exchange_init_request(exchange, OP_CHECK, &request);
    exchange_send(exchange, &request, NO_STRINGS);
}

static void on_reply(struct exchange *exchange, struct reply_packet *reply)
{
    struct mcp_call *call = call_of(exchange);

    if (!exchange->front->options->mcp_idle_ms) {
        exchange_refuse(exchange, 404, "no MCP here: start the server with --mcp");
    } else if (!call->is_checked) {
        call->is_checked = true;
        (strcmp(exchange->method, "POST") == 0 ? post : with_session)(exchange);
    } else if (reply->head.kind == REPLY_SOCKET && reply->fd >= 0 && call->message) {
        /* Another request may have started it meanwhile. */
        struct mcp_session *session = call->is_modern ? find_session(exchange, "") : NULL;
        if (!session)
            session = new_session(exchange, TAKE_FD(reply->fd));
        if (session)
            send_to(session, exchange);
        else
            exchange_refuse(exchange, 503, "the server is overloaded");
    } else {
        exchange_refuse(exchange, 500, "internal error");
    }
}

/* The client has read everything. */
static bool pull(struct exchange *exchange)
{
    struct mcp_session *session = call_of(exchange)->session;

    if (session)
        update_poll(session);
    return false;
}

/* A request that takes long has the head of its response, so that its client waits. */
static void overdue(struct exchange *exchange)
{
    struct mcp_call *call = call_of(exchange);

    if (call->waiting && call->takes_stream &&
        uv_now(&exchange->front->loop) - exchange->began_ms >= HEAD_MS)
        begin_stream(exchange);
}

#define ON(name, route, ...)                                                             \
    {                                                                                    \
        .method = (name), .path = (route), .act = act, .on_error = exchange_refuse_with, \
        .on_reply = on_reply, .pull = pull, .overdue = overdue, .op = OP_MCP,            \
        __VA_ARGS__                                                                      \
    }

const struct handler mcp_handlers[] = {
    ON("POST", "/mcp", .body_max = MCP_LINE_MAX, .is_read = true),
    ON("GET", "/mcp", .is_read = true),
    ON("DELETE", "/mcp", .is_read = true),
    {0},
};
