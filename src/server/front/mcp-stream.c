/* SPDX-License-Identifier: Apache-2.0 */

/* Responses and streams of events.  A client of a session may leave: what it misses waits
 * in a bounded list of events until it returns with Last-Event-ID. */
#include "server/front/mcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/rights.h"

enum {
    EVENTS_BYTES = 1 << 20, /* that a session keeps for clients that return */
    KEEPALIVE_MS = 5000
};

void front_mcp_add_header(struct exchange *exchange, const char *name, const char *value)
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

/* The key may have been removed since the stream began: front_mcp_is_refused() reads the
 * reply. */
static void keep_alive(struct exchange *exchange)
{
    struct request request;

    if (!exchange->out.len)
        (void)buf_text(&exchange->out, ": \n\n");
    exchange_init_request(exchange, OP_CHECK, &request);
    (void)exchange_try_send(exchange, &request, NO_STRINGS);
}

bool front_mcp_is_refused(struct exchange *exchange)
{
    struct reply_packet *reply = &exchange->front->reply;
    int got = exchange->channel >= 0 ? reply_receive(exchange->channel, reply) : -EAGAIN;

    if (got == -EAGAIN)
        return false;
    exchange_close_channel(exchange);
    if (got == 1 && reply->fd >= 0)
        rights_dismiss(reply->fd);
    return got == 1 && reply->head.kind == REPLY_FAILED && reply->head.status == 401;
}

void front_mcp_stream_begin(struct exchange *exchange)
{
    struct mcp_call *call = front_mcp_call(exchange);
    AUTO_BUF text = {.max = 256};

    exchange_stream(exchange, "text/event-stream", KEEPALIVE_MS, keep_alive);
    exchange->out.max = MCP_STREAM_MAX;
    front_mcp_add_header(exchange, "Cache-Control", "no-cache");
    if (call->is_new)
        front_mcp_add_header(exchange, "Mcp-Session-Id", call->session_id);
    if (!call->has_primer)
        return;
    put_event(&text, call->stream, ++front_mcp_last, &(const struct buf){0});
    send_text(exchange, &text);
}

void front_mcp_drop_event(struct mcp_session *session)
{
    struct event *event = &session->events[session->first_event];

    session->event_bytes -= event->len;
    free(event->text);
    *event = (struct event){.text = NULL};
    session->first_event = (session->first_event + 1) % MCP_EVENTS_MAX;
    session->event_count--;
}

/* Takes over the text. */
static void keep_event(struct mcp_session *session, uint64_t stream, uint64_t number,
                       struct buf *text)
{
    size_t len = text->len;

    if (len > EVENTS_BYTES)
        return;
    while (session->event_count == MCP_EVENTS_MAX ||
           (session->event_count && session->event_bytes + len > EVENTS_BYTES))
        front_mcp_drop_event(session);
    char *kept = buf_take(text);
    if (!kept)
        return;
    session->events[(session->first_event + session->event_count++) % MCP_EVENTS_MAX] =
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
    struct mcp_call *call = front_mcp_call(exchange);
    unsigned status = status_of(call, data);

    if (!exchange_charge_client(exchange, data->len)) {
        exchange_refuse(exchange, 503, "the client has too many unread responses");
        return;
    }
    exchange_respond_text(exchange, status, "application/json", data);
    if (call->is_new)
        front_mcp_add_header(exchange, "Mcp-Session-Id", call->session_id);
    front_mcp_add_header(exchange, "Cache-Control", "no-store");
}

void front_mcp_deliver(struct mcp_session *session, struct exchange *exchange,
                       uint64_t stream, struct buf *data, bool is_last)
{
    struct mcp_call *call = exchange ? front_mcp_call(exchange) : NULL;
    AUTO_BUF text = {.max = MCP_STREAM_MAX};
    uint64_t number = *session->id ? ++front_mcp_last : 0;

    session->used_ms = uv_now(&session->front->loop);
    if (exchange && !exchange->is_stream && !exchange->is_over && is_last &&
        !call->is_batch && call->takes_json) {
        respond_json(exchange, data);
        return;
    }
    if (exchange && !exchange->is_stream && !exchange->is_over && call->takes_stream)
        front_mcp_stream_begin(exchange);
    put_event(&text, stream, number, data);
    if (exchange && exchange->is_stream)
        send_text(exchange, &text);
    if (number)
        keep_event(session, stream, number, &text);
}

/* The stream of an event is that of a request, which may wait, or of a GET. */
void front_mcp_stream_resume(struct mcp_session *session, struct exchange *exchange,
                             const char *id)
{
    struct mcp_call *call = front_mcp_call(exchange);
    AUTO_BUF text = {.max = 2 * EVENTS_BYTES};
    char *end;
    uint64_t stream = strtoull(id, &end, 10);
    uint64_t number = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;
    bool is_waiting = false;

    call->stream = stream;
    front_mcp_stream_begin(exchange);
    for (unsigned i = 0; i < session->event_count; i++) {
        const struct event *event =
            &session->events[(session->first_event + i) % MCP_EVENTS_MAX];
        if (event->stream == stream && event->number > number)
            (void)buf_append(&text, event->text, event->len);
    }
    if (text.len)
        send_text(exchange, &text);
    for (struct pending *one = session->pending; one; one = one->next) {
        if (one->stream != stream || !stream)
            continue;
        if (one->exchange) {
            front_mcp_call(one->exchange)->session = NULL;
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
