/* SPDX-License-Identifier: Apache-2.0 */

/* The processes of sessions: writes messages of clients to them, and reads theirs.
 *
 * Requests get numbers of the front's own as ids and progress tokens, so that two
 * requests of a process never have the same; the client sees its own. */
#include "server/front/mcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

enum {
    PENDING_MAX = 256,        /* requests of a session */
    UNREAD_MAX = 1 << 20,     /* of a stream, before its process has to wait */
    UNWRITTEN_MAX = 32 << 20, /* for a process that does not read */
    UNWRITTEN_OWN = 64 << 20, /* for those of a tenant */
    UNWRITTEN_ALL = 256 << 20,
    UNWRITTEN_FREE = 64 << 10, /* of a message, in any case */
    PARTIAL_MAX = 256 << 20,   /* of incomplete messages of all processes */
    READ_SIZE = 64 << 10,
    READS_AT_A_TIME = 16
};

static const char message_head[] = "{\"jsonrpc\":\"2.0\",\"id\":";
static const char progress_head[] =
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":"
    "{\"progressToken\":";

uint64_t front_mcp_last;

/* --- Writing to the process --- */

static void on_session(uv_poll_t *poll, int status, int events);

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

void front_mcp_update(struct mcp_session *session)
{
    int events =
        (is_blocked(session) ? 0 : UV_READABLE) | (unwritten(session) ? UV_WRITABLE : 0);

    if (session->is_over)
        return;
    if (!events)
        (void)uv_poll_stop(&session->poll);
    else if (uv_poll_start(&session->poll, events, on_session) != 0)
        front_mcp_end(session, "the server is overloaded");
}

static void write_out(struct mcp_session *session)
{
    while (!session->is_over && unwritten(session)) {
        ssize_t done = send(session->fd, session->output.data + session->output_at,
                            unwritten(session), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno != EAGAIN)
            front_mcp_end(session, "the session has ended");
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
    front_mcp_update(session);
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

void front_mcp_call_done(struct exchange *exchange)
{
    struct mcp_call *call = front_mcp_call(exchange);
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
        front_mcp_update(session);
    }
    json_decref(call->message);
    free(call);
}

/* --- Answers --- */

/* The answer, with the client's own id. */
static void answer(struct mcp_session *session, struct pending *pending, const char *rest,
                   size_t len)
{
    AUTO_FREE char *id = json_dumps(pending->id, JSON_ENCODE_ANY);
    AUTO_BUF data = {.max = MCP_STREAM_MAX};
    struct exchange *exchange = pending->exchange;
    struct mcp_call *call = exchange ? front_mcp_call(exchange) : NULL;
    uint64_t stream = pending->stream;

    (void)buf_text(&data, message_head);
    (void)buf_text(&data, id ? id : "null");
    (void)buf_append(&data, rest, len);
    free_pending(session, pending);
    bool is_last = call && --call->waiting == 0;
    if (is_last)
        call->session = NULL;
    front_mcp_deliver(session, exchange, stream, &data, is_last);
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

/* The process has written the message in this form: src/mcp/reply.c. */
static bool starts_with(const char *text, size_t len, const char *head)
{
    return len > strlen(head) && memcmp(text, head, strlen(head)) == 0;
}

static void take_progress(struct mcp_session *session, const char *line, size_t len)
{
    char *end;
    const char *at = line + strlen(progress_head);
    struct pending *pending = find_pending(session, strtoull(at, &end, 10));
    AUTO_BUF data = {.max = MCP_STREAM_MAX};

    if (!pending || !pending->token)
        return;
    AUTO_FREE char *token = json_dumps(pending->token, JSON_ENCODE_ANY);
    (void)buf_text(&data, progress_head);
    (void)buf_text(&data, token ? token : "null");
    (void)buf_append(&data, end, len - (size_t)(end - line));
    if (pending->exchange && (!front_mcp_call(pending->exchange)->takes_stream))
        return;
    front_mcp_deliver(session, pending->exchange, pending->stream, &data, false);
}

/* A request of the process, "NAME-NUMBER-REQUEST", goes where the answer of that request
 * goes. */
static void take_request(struct mcp_session *session, const char *line, size_t len,
                         const char *id)
{
    AUTO_BUF data = {.max = MCP_STREAM_MAX};
    const char *end = memchr(id, '"', len - (size_t)(id - line));
    const char *dash = end ? memrchr(id, '-', (size_t)(end - id)) : NULL;
    struct pending *pending =
        dash ? find_pending(session, strtoull(dash + 1, NULL, 10)) : NULL;
    struct exchange *exchange = pending ? pending->exchange : session->listener;

    (void)buf_append(&data, line, len);
    if (exchange || pending)
        front_mcp_deliver(session, exchange, pending ? pending->stream : 0, &data, false);
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
            front_mcp_end(session, "a message of the session is too large");
            return;
        }
        free(TAKE_PTR(copy));
        copy = malloc(len + 1); /* with a NUL, for numbers */
        if (!copy) {
            front_mcp_end(session, "memory is exhausted");
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
            front_mcp_end(session, "the session has ended");
            return;
        }
        take_lines(session);
    }
}

static void on_session(uv_poll_t *poll, int status, int events)
{
    struct mcp_session *session = poll->data;

    if (status < 0)
        front_mcp_end(session, "the session has ended");
    if (!session->is_over && events & UV_WRITABLE)
        write_out(session);
    if (!session->is_over && events & UV_READABLE)
        read_in(session);
    if (!session->is_over)
        front_mcp_update(session);
}

/* --- Messages of clients --- */

/* The message with the front's number as id and token. */
static bool send_request(struct mcp_session *session, struct exchange *exchange,
                         json_t *item)
{
    struct mcp_call *call = front_mcp_call(exchange);
    struct pending *pending = calloc(1, sizeof *pending);
    json_t *meta = json_object_get(json_object_get(item, "params"), "_meta");
    json_t *token = json_object_get(meta, "progressToken");
    bool is_asking = json_is_string(token) || json_is_integer(token);

    if (!pending || session->pending_count >= PENDING_MAX) {
        free(pending);
        return false;
    }
    *pending = (struct pending){.next = session->pending,
                                .number = ++front_mcp_last,
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
    (void)json_object_set(item, "id", pending->id);
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

bool front_mcp_send(struct mcp_session *session, struct exchange *exchange, json_t *item)
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

/* --- Sessions --- */

static void on_closed(uv_handle_t *handle)
{
    struct mcp_session *session = handle->data;

    mcp_lines_done(&session->lines);
    buf_done(&session->output);
    while (session->event_count)
        front_mcp_drop_event(session);
    free(session);
}

void front_mcp_end(struct mcp_session *session, const char *message)
{
    struct mcp_session **link = &session->front->mcp;

    if (session->is_over)
        return;
    session->is_over = true;
    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    if (session->listener) {
        front_mcp_call(session->listener)->session = NULL;
        exchange_end(session->listener, false);
        session->listener = NULL;
    }
    while (session->pending)
        answer_error(session, session->pending, message);
    (void)uv_poll_stop(&session->poll);
    (void)close(session->fd);
    uv_close((uv_handle_t *)&session->poll, on_closed);
}

struct mcp_session *front_mcp_new(struct exchange *exchange, int fd)
{
    struct front *front = exchange->front;
    struct mcp_call *call = front_mcp_call(exchange);
    struct mcp_session *session = calloc(1, sizeof *session);
    unsigned char random[MCP_SESSION_ID / 2];

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
    memcpy(session->kept, call->kept, sizeof session->kept);
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
struct mcp_session *front_mcp_find(struct exchange *exchange, const char *id)
{
    const struct mcp_call *call = front_mcp_call(exchange);
    struct mcp_session *session = exchange->front->mcp;

    while (session && (strcmp(session->tenant, exchange->tenant) != 0 ||
                       strcmp(session->id, id) != 0 ||
                       (!*id && (strcmp(session->name, call->name) != 0 ||
                                 strcmp(session->kept, call->kept) != 0))))
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
            front_mcp_end(session, "the session was idle");
    }
}

void front_mcp_drain(struct front *front)
{
    struct mcp_session *next = front->mcp;

    for (struct mcp_session *session; (session = next);) {
        next = session->next;
        if (!has_client(session))
            front_mcp_end(session, "the server is shutting down");
    }
}
