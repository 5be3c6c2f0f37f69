/* SPDX-License-Identifier: Apache-2.0 */

/* MCP over HTTP: passes messages between clients and the processes of their sessions.
 *
 * The broker checks the key of each request, and starts the process of a session
 * (keeper/mcp.c), which is `cay mcp` with a socket instead of standard streams: a message
 * is a line.
 *
 * A client of revision 2026-07-28 has no session: the process is that of its tenant, and
 * the client cancels a request by leaving. */
#include "server/front/mcp.h"

#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"

enum {
    BATCH_MAX = 64,
    LABEL_MAX = 1024, /* of an id and a token, which stay until there is an answer */
    HEAD_MS = 2000    /* until a response begins in any case */
};

#define MODERN "2026-07-28"
static const char modern_key[] = "io.modelcontextprotocol/protocolVersion";
static const char *const versions[] = {MODERN, "2025-11-25", "2025-06-18", "2025-03-26",
                                       "2024-11-05"};
/* --- Errors --- */

static const char full[] = "the session has too many requests, or this is too large";

static void put_error(struct buf *text, int code, const char *message, const json_t *id)
{
    AUTO_FREE char *shown = id ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
    struct json json;

    json_to_unicode(&json, text);
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
}

static void refuse(struct exchange *exchange, unsigned status, int code,
                   const char *message, const json_t *id)
{
    AUTO_BUF text = {.max = 64 << 10};

    put_error(&text, code, message, id);
    cay_copy_text(exchange->reason, sizeof exchange->reason, message);
    exchange_close_channel(exchange);
    exchange_respond_text(exchange, status, "application/json", &text);
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

/* The answer to a request of a batch that its process cannot take. */
static void refuse_item(struct mcp_session *session, struct exchange *exchange,
                        const json_t *item)
{
    const json_t *id = json_object_get(item, "id");
    AUTO_BUF text = {.max = 64 << 10};

    if (!json_object_get(item, "method") || !id)
        return;
    put_error(&text, MCP_E_INTERNAL, full, id);
    front_mcp_deliver(session, exchange, front_mcp_call(exchange)->stream, &text, false);
}

/* All messages are sent, and those that could not be are answered. */
static void respond(struct exchange *exchange, bool is_sent)
{
    const struct mcp_call *call = front_mcp_call(exchange);

    if (exchange->is_stream && !call->waiting && !exchange->is_over)
        exchange_end(exchange, false);
    if (exchange->response || exchange->is_stream)
        return;
    if (!is_sent && !call->waiting)
        exchange_refuse(exchange, 503, full);
    else if (!call->waiting)
        exchange_respond_empty(exchange, 202);
    else
        exchange_watch_client(exchange);
}

/* In the order of the message, which may be a batch. */
static void send_to(struct mcp_session *session, struct exchange *exchange)
{
    struct mcp_call *call = front_mcp_call(exchange);
    size_t count = call->is_batch ? json_array_size(call->message) : 1;
    bool is_sent = true;

    call->stream = ++front_mcp_last;
    session->used_ms = uv_now(&session->front->loop);
    if (*session->id)
        cay_copy_text(call->session_id, sizeof call->session_id, session->id);
    exchange_close_channel(exchange);
    call->waiting += call->is_batch; /* an answer of it does not end the stream yet */
    for (size_t i = 0; i < count && !session->is_over; i++) {
        json_t *item = call->is_batch ? json_array_get(call->message, i) : call->message;
        is_sent = front_mcp_send(session, exchange, item);
        if (!is_sent && call->is_batch && !session->is_over)
            refuse_item(session, exchange, item);
    }
    json_decref(call->message);
    call->message = NULL;
    if (call->is_batch && --call->waiting == 0)
        call->session = NULL;
    respond(exchange, is_sent);
}

static bool has_long_label(const struct mcp_message *message)
{
    const json_t *meta = json_object_get(message->params, "_meta");

    return message->kind == MCP_REQUEST &&
           (json_string_length(message->id) > LABEL_MAX ||
            json_string_length(json_object_get(meta, "progressToken")) > LABEL_MAX);
}

static const char *check_items(const struct mcp_call *call)
{
    static const char too_long[] = "an id or progress token is longer than 1024 bytes";
    struct mcp_message message;
    json_t *item;
    size_t i;

    if (!call->is_batch) {
        mcp_message(call->message, &message);
        return message.kind == MCP_MALFORMED ? "the message is not JSON-RPC 2.0"
               : has_long_label(&message)    ? too_long
                                             : NULL;
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
        if (has_long_label(&message))
            return too_long;
    }
    return NULL;
}

/* False if the body was refused.  Its tree may take more than the text, and stays until a
 * new session has its process. */
static bool parse(struct exchange *exchange)
{
    struct mcp_call *call = front_mcp_call(exchange);
    const char *wrong = "", *text = exchange->body.data ? exchange->body.data : "";
    size_t size = mcp_tree_size(text, exchange->body.len);

    if (!exchange_charge_client(exchange, size < MCP_TREE_MAX ? size : MCP_TREE_MAX)) {
        exchange_refuse(exchange, 503, "the client has too many open requests");
        return false;
    }
    call->message = mcp_parse(text, exchange->body.len, &wrong);
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

/* Starts a session, or removes the kept sandbox. */
static void send_start(struct exchange *exchange, enum op op)
{
    const struct mcp_call *call = front_mcp_call(exchange);
    AUTO_BUF strings = {.max = MCP_KEPT_MAX};
    struct request request;

    exchange_init_request(exchange, op, &request);
    request.count = *call->kept != '\0';
    if (request.count)
        strings_add(&strings, call->kept);
    exchange_send(exchange, &request, &strings);
}

static void refuse_session(struct exchange *exchange, unsigned status)
{
    refuse(exchange, status, MCP_E_REQUEST,
           status == 404 ? "unknown session: initialize a new one"
                         : "the header Mcp-Session-Id is missing: send initialize first",
           json_object_get(front_mcp_call(exchange)->message, "id"));
}

/* Without a session: the first message of one, or one of revision 2026-07-28. */
static void post_alone(struct exchange *exchange)
{
    struct mcp_call *call = front_mcp_call(exchange);
    const char *version = exchange_header(exchange, "MCP-Protocol-Version");
    struct mcp_message message = {.kind = MCP_MALFORMED};

    if (!call->is_batch)
        mcp_message(call->message, &message);
    call->is_modern =
        json_object_get(json_object_get(message.params, "_meta"), modern_key) ||
        (version && strcmp(version, MODERN) == 0);
    if (message.kind == MCP_REQUEST && call->is_modern) {
        const char *wrong = check_headers(exchange, &message);
        struct mcp_session *session = front_mcp_find(exchange, "");
        if (wrong)
            refuse(exchange, 400, MCP_E_HEADERS, wrong, message.id);
        else if (session)
            send_to(session, exchange);
        else
            send_start(exchange, OP_MCP);
    } else if (message.kind == MCP_REQUEST && strcmp(message.method, "initialize") == 0) {
        call->is_new = true;
        send_start(exchange, OP_MCP);
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
    const struct mcp_call *call = front_mcp_call(exchange);

    if (!parse(exchange))
        return;
    struct mcp_session *session = id && *id ? front_mcp_find(exchange, id) : NULL;
    if (session && *call->kept && strcmp(session->kept, call->kept) != 0)
        refuse(exchange, 400, MCP_E_REQUEST,
               "the session has another sandbox: initialize a new one for Cay-Sandbox",
               json_object_get(call->message, "id"));
    else if (session)
        send_to(session, exchange);
    else if (id)
        refuse_session(exchange, 404);
    else
        post_alone(exchange);
}

/* --- GET and DELETE --- */

static void listen_to(struct mcp_session *session, struct exchange *exchange)
{
    const char *last = exchange_header(exchange, "Last-Event-ID");
    struct mcp_call *call = front_mcp_call(exchange);

    exchange_close_channel(exchange);
    session->used_ms = uv_now(&session->front->loop);
    if (!last || !strtoull(last, NULL, 10)) { /* one listener: the latest */
        if (session->listener) {
            front_mcp_call(session->listener)->session = NULL;
            exchange_end(session->listener, false);
        }
        session->listener = exchange;
        call->session = session;
    }
    if (last) {
        front_mcp_stream_resume(session, exchange, last);
        return;
    }
    front_mcp_stream_begin(exchange);
}

static void with_session(struct exchange *exchange)
{
    const char *id = exchange_header(exchange, "Mcp-Session-Id");
    struct mcp_session *session = id && *id ? front_mcp_find(exchange, id) : NULL;

    if (!id && strcmp(exchange->method, "DELETE") == 0 &&
        *front_mcp_call(exchange)->kept) {
        send_start(exchange, OP_MCP_REMOVE);
    } else if (!session) {
        refuse_session(exchange, id ? 404 : 400);
    } else if (strcmp(exchange->method, "GET") == 0) {
        listen_to(session, exchange);
    } else {
        exchange_close_channel(exchange);
        front_mcp_end(session, "the session was ended");
        exchange_respond_empty(exchange, 204);
    }
}

/* --- Requests --- */

static bool accepts(const struct exchange *exchange, const char *type)
{
    const char *accept = exchange_header(exchange, "Accept");

    return !accept || strstr(accept, type) || strstr(accept, "*/*");
}

/* False if the name is invalid; NULL is none. */
static bool take_name(const char *name, char *ret_name, size_t room)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (!name)
        return true;
    if (!*name || strlen(name) >= room || strspn(name, letters) != strlen(name))
        return false;
    cay_copy_text(ret_name, room, name);
    return true;
}

/* The header Cay-Session, for clients of one tenant that shall not share a sandbox, and
 * the sandbox that stays, as a header or, for clients that have only a URL, in that. */
static const char *take_names(const struct exchange *exchange, struct mcp_call *call)
{
    const char *kept = exchange_header(exchange, "Cay-Sandbox");

    if (!kept)
        kept = exchange_query(exchange, "sandbox");
    if (!take_name(exchange_header(exchange, "Cay-Session"), call->name,
                   sizeof call->name))
        return "Cay-Session: use up to 64 letters and digits";
    return take_name(kept, call->kept, sizeof call->kept)
               ? NULL
               : "Cay-Sandbox: use up to 32 letters and digits";
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
    return take_names(exchange, call);
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
    exchange->state_done = front_mcp_call_done;
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
    struct mcp_call *call = front_mcp_call(exchange);

    if (!exchange->front->options->mcp_idle_ms) {
        exchange_refuse(exchange, 404, "no MCP here: start the server with --mcp");
    } else if (!call->is_checked) {
        call->is_checked = true;
        (strcmp(exchange->method, "POST") == 0 ? post : with_session)(exchange);
    } else if (reply->head.kind == REPLY_SOCKET && reply->fd >= 0 && call->message) {
        /* Another request may have started it meanwhile. */
        struct mcp_session *session =
            call->is_modern ? front_mcp_find(exchange, "") : NULL;
        if (!session)
            session = front_mcp_new(exchange, TAKE_FD(reply->fd));
        if (session)
            send_to(session, exchange);
        else
            exchange_refuse(exchange, 503, "the server is overloaded");
    } else if (reply->head.kind == REPLY_DONE && !call->message) {
        exchange_respond_empty(exchange, 204); /* the kept sandbox is gone */
    } else {
        exchange_refuse(exchange, 500, "internal error");
    }
}

/* The client has read everything, or there is the reply to a check of its key. */
static bool pull(struct exchange *exchange)
{
    struct mcp_session *session = front_mcp_call(exchange)->session;

    if (front_mcp_is_refused(exchange)) {
        exchange_end(exchange, true);
        return true;
    }
    if (session)
        front_mcp_update(session);
    return false;
}

/* A request that takes long has the head of its response, so that its client waits. */
static void overdue(struct exchange *exchange)
{
    struct mcp_call *call = front_mcp_call(exchange);

    if (call->waiting && call->takes_stream &&
        uv_now(&exchange->front->loop) - exchange->began_ms >= HEAD_MS)
        front_mcp_stream_begin(exchange);
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
