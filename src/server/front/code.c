/* SPDX-License-Identifier: Apache-2.0 */

/* The code interpreter of E2B, port 49999 of a sandbox.
 *
 * A keeper opens a connection to the code service of the sandbox (init/code.h) and passes
 * it on.  Events of the service are hostile; they become lines of JSON.  The front reads
 * from the service only while the client has room, so a slow client makes the interpreter
 * wait.  If the client disconnects, the connection is closed, which interrupts the code.
 *
 * The default context of a language has the name of the language as its id, whether it
 * exists already or not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/language.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "code/execution.h"
#include "code/message.h"
#include "server/front/front.h"
#include "server/front/lines.h"
#include "sys/rights.h"

enum {
    TRIES = 3,           /* again, if the service ends before it has seen the request */
    TREE_MAX = 64 << 20, /* memory of a parsed line */
    COPIES = 4,          /* of a line: received, parsed, as parts, as a line to send */
    OUT_ENOUGH = CODE_PIECE, /* until the client has read it */
    PULLS_AT_A_TIME = 16,
    WORDS_MAX = 16
};

static const char op[] = "code.execute";
static const char default_cwd[] = "/home/user";
static const char python[] = "python", javascript[] = "javascript";

enum purpose {
    FOR_CONNECTION,
    FOR_IMAGE,  /* the service needs Python: is there a saved interpreter? */
    FOR_MISFIT, /* that was sent, but not used */
    FOR_HEALTH, /* the service hung up: does the sandbox exist? */
    FOR_KILLS   /* the interpreter was killed: for the memory limit? */
};

struct interpreter {
    int fd; /* to the code service; -1: none */
    struct wake wake;
    struct buf to; /* bytes not sent yet */
    struct code_reader reader;
    enum code_op wanted, current; /* of the client, and the one that the service has */
    bool has_driver, has_event, sent_image;
    enum purpose purpose; /* of the last request to the broker */
    int64_t memory_kills; /* when it was connected */
    struct code_end end;
    unsigned tries, pulls;

    json_t *body;
    const char *code, *cwd;
    const char *id;   /* of a context, or NULL: the default context of the language */
    const char **env; /* of this execution, NULL-terminated */
    const char *words[WORDS_MAX + 1]; /* environment of new contexts */
    char *words_room;

    char language[CODE_NAME_MAX]; /* of the context */
    const struct code_language *driver;
    const struct language *program; /* the language has no contexts of its own */
    struct code_context found;      /* that the client has named */
    bool is_found;
    size_t listed;

    struct cay_code_options options;
    struct cay_code_execution execution;
    struct code_collector collector;
    struct lines lines;
};

static void hang_up(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;

    if (state->fd < 0)
        return;
    exchange_stop_waiting(exchange, state->fd);
    rights_dismiss(TAKE_FD(state->fd));
}

static void interpreter_done(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;

    hang_up(exchange);
    buf_done(&state->to);
    lines_free(&state->lines);
    code_reader_done(&state->reader);
    code_collector_done(&state->collector);
    cay_code_execution_done(&state->execution);
    for (size_t i = 0; state->env && state->env[i]; i++)
        free((void *)(uintptr_t)state->env[i]);
    free(state->env);
    free(state->words_room);
    json_decref(state->body);
    free(state);
}

/* --- Refusals --- */

/* SDKs show the text as it is. */
static void refuse(struct exchange *exchange, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void refuse(struct exchange *exchange, unsigned status, const char *format, ...)
{
    AUTO_BUF text = {.max = 16 << 10};
    char message[4096];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    buf_text(&text, message);
    exchange_respond_text(exchange, status, "text/plain; charset=utf-8", &text);
}

/* Sends another request to the broker.  False if it has too many. */
static bool request_for(struct exchange *exchange, enum purpose purpose)
{
    static const uint32_t flags[] = {
        [FOR_IMAGE] = CODE_IMAGE, [FOR_MISFIT] = CODE_MISFIT, [FOR_KILLS] = 0};
    struct interpreter *state = exchange->state;
    struct request request;

    if (purpose != FOR_IMAGE)
        hang_up(exchange);
    state->purpose = purpose;
    exchange_init_request(
        exchange, purpose == FOR_HEALTH ? OP_HEALTH : exchange->handler->op, &request);
    request.flags |= flags[purpose];
    return exchange_try_send(exchange, &request, NO_STRINGS) == 0;
}

/* Refuses the request, or ends its stream. */
static void fail(struct exchange *exchange, const struct cay_error *error)
{
    struct interpreter *state = exchange->state;
    char text[sizeof error->subject + sizeof error->message + sizeof error->hint + 8];
    unsigned status = error->code == CAY_E_NOT_FOUND ? 404
                      : error->code == CAY_E_LIMIT   ? 429
                      : error->code == CAY_E_INVALID ? 422
                      : error->code == CAY_E_TIMEOUT ? 504
                                                     : 500;

    snprintf(text, sizeof text, "%s%s%s (%s)", error->subject,
             *error->subject ? ": " : "", error->message, error->hint);
    if (exchange->is_stream) {
        lines_put_error(&state->lines, "ExecutionError", text, "");
        lines_end(&state->lines);
    } else if (error->code == CAY_E_NOT_FOUND && state->id &&
               strcmp(error->subject, state->id) == 0) {
        refuse(exchange, 404, "Context %s not found", state->id);
    } else {
        refuse(exchange, status, "%s", text);
    }
}

/* --- The connection to the service --- */

static void drop_sent(struct buf *to, size_t len)
{
    if (len == to->len) {
        buf_done(to);
        buf_init(to, CODE_MESSAGE_MAX);
    } else if (len) {
        memmove(to->data, to->data + len, to->len - len);
        to->len -= len;
    }
}

/* Sends as much as the socket accepts.  If the service has hung up, its last events say
 * why. */
static void flush(struct interpreter *state)
{
    size_t done = 0;

    while (done < state->to.len) {
        ssize_t sent = send(state->fd, state->to.data + done, state->to.len - done,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        done = sent < 0 ? state->to.len : done + (size_t)sent;
    }
    drop_sent(&state->to, done);
}

static int fill_query(struct interpreter *state, struct code_query *query,
                      char **ret_body, struct cay_error *err)
{
    AUTO_BUF script = {.max = CODE_BODY_MAX};
    const char *code = state->code;
    const char *dialect = state->driver && !state->id ? state->driver->dialect : NULL;

    if (state->wanted != CODE_EXECUTE)
        return CAY_OK;
    if (state->program) {
        language_put_script(state->program, code, &script);
        code = script.data;
    }
    if (script.failed)
        return cay_fail_memory(err, op);
    TRY(code_make_body(code, strlen(code), state->env, dialect, ret_body, err));
    query->body = *ret_body;
    query->body_len = strlen(*ret_body);
    return CAY_OK;
}

/* Sends the client's request, or before that the list, if the client names a context. */
static void send_request(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;
    bool is_list = state->wanted == CODE_LIST || (state->id && !state->is_found);
    struct code_query query = {.op = CODE_LIST};
    AUTO_FREE char *body = NULL;
    struct cay_error error = {0};
    int code = CAY_OK;

    if (!is_list) {
        query = (struct code_query){.op = state->wanted,
                                    .id = state->id ? state->found.id : NULL,
                                    .language = state->id ? NULL : state->language,
                                    .cwd = state->cwd,
                                    .words = state->words};
        code = fill_query(state, &query, &body, &error);
    }
    state->current = query.op;
    if (!code)
        code = code_pack_query(&query, op, &state->to, &error);
    if (code)
        fail(exchange, &error);
    else
        flush(state);
}

/* With the descriptor of a saved interpreter, or -1: it goes with the head, and the
 * service does without it. */
static void send_driver(struct exchange *exchange, int image)
{
    struct interpreter *state = exchange->state;
    const struct code_query query = {.language = state->language,
                                     .driver = state->driver};
    struct cay_error error = {0};
    bool is_first = state->to.len == 0;

    if (code_pack_driver(&query, op, &state->to, &error) != CAY_OK) {
        fail(exchange, &error);
        return;
    }
    const struct iovec head = {state->to.data, sizeof(struct code_request)};
    if (image >= 0 && is_first &&
        rights_send(state->fd, &head, 1, &image, 1, MSG_DONTWAIT) == 0) {
        state->sent_image = true;
        drop_sent(&state->to, head.iov_len);
    }
    flush(state);
}

static void on_need(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;
    struct cay_error error = {0};

    if (state->has_driver || state->id) {
        (void)code_fail_protocol(op, &error);
        fail(exchange, &error);
        return;
    }
    state->has_driver = true;
    if (state->driver != code_language_find(python) || !request_for(exchange, FOR_IMAGE))
        send_driver(exchange, -1);
}

/* --- Contexts --- */

static void put_context(struct json *json, const char *id, const char *language,
                        const char *cwd)
{
    json_put_object(json);
    json_set_text(json, "id", id);
    json_set_text(json, "language", language);
    json_set_text(json, "cwd", *cwd ? cwd : default_cwd);
    json_put_end(json);
}

static void respond_context(struct exchange *exchange, const char *id,
                            const char *language, const char *cwd)
{
    struct json *json = exchange_json(exchange, BODY_SMALL);

    put_context(json, id, language, cwd);
    exchange_respond_text(exchange, 200, "application/json", &exchange->out);
}

static void begin_list(struct exchange *exchange)
{
    struct json *json = exchange_json(exchange, BODY_CONTROL);

    json_put_array(json);
    put_context(json, python, python, default_cwd);
    put_context(json, javascript, javascript, default_cwd);
}

static const char *public_id(const struct code_context *context)
{
    return context->is_default ? context->language : context->id;
}

/* False if there are too many. */
static bool take_context(struct exchange *exchange, const struct code_context *context)
{
    struct interpreter *state = exchange->state;
    const char *id = public_id(context);

    if (++state->listed > CODE_CONTEXTS_MAX)
        return false;
    if (state->wanted == CODE_LIST) {
        if (!context->is_default ||
            (strcmp(id, python) != 0 && strcmp(id, javascript) != 0))
            put_context(&exchange->json, id, context->language, context->cwd);
    } else if (state->current != CODE_LIST || strcmp(id, state->id) == 0) {
        state->found = *context;
        state->is_found = true;
    }
    return true;
}

/* Sets the driver of a language; false if it is not supported. */
static bool choose_language(struct interpreter *state, const char *name)
{
    state->driver = code_language_find(name);
    state->program = state->driver ? NULL : language_find(name);
    if (state->program)
        state->driver = code_language_find("bash");
    if (!state->driver)
        return false;
    cay_copy_text(state->language, sizeof state->language,
                  state->program                  ? state->program->names[0]
                  : state->wanted == CODE_EXECUTE ? state->driver->kernel
                                                  : state->driver->names[0]);
    return true;
}

/* The end of the list before the client's request. */
static void on_looked_up(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;

    if (state->is_found) {
        (void)choose_language(state, state->found.language);
        send_request(exchange);
    } else if (code_language_find(state->id) &&
               state->wanted != CODE_EXECUTE) { /* a default that is not used yet */
        if (state->wanted == CODE_REMOVE)
            exchange_respond_empty(exchange, 204);
        else
            respond_context(exchange, state->id, state->id, default_cwd);
    } else {
        refuse(exchange, 404, "Context %s not found", state->id);
    }
}

/* --- Events --- */

static void end_execution(struct exchange *exchange, bool is_memory)
{
    struct interpreter *state = exchange->state;
    const struct cay_code_execution *execution = &state->execution;
    char text[256];

    if (!exchange->is_stream)
        lines_begin(&state->lines);
    code_collect_end(&state->collector, &state->end, is_memory);
    if (execution->values_dropped) {
        int len = snprintf(text, sizeof text,
                           "%llu results were dropped: a result may have %d MiB, all of "
                           "an execution %d MiB\n",
                           (unsigned long long)execution->values_dropped,
                           LINES_RESULT_MAX >> 20, CODE_VALUES_BYTES >> 20);
        (void)lines_put_text(&state->lines, 2, text, (size_t)len,
                             clock_since_1970_ms() * 1000000);
    }
    if (execution->error_name)
        lines_put_error(&state->lines, execution->error_name, execution->error_value,
                        execution->traceback);
    lines_end(&state->lines);
}

/* A connection shows how many processes the kernel has killed. */
static void on_execution_end(struct exchange *exchange)
{
    const struct interpreter *state = exchange->state;
    bool is_killed = code_is_killed(&state->end);
    bool is_misfit = state->sent_image && !state->execution.is_warm;

    if ((!is_killed && !is_misfit) ||
        !request_for(exchange, is_killed ? FOR_KILLS : FOR_MISFIT))
        end_execution(exchange, false);
}

static void on_end(struct exchange *exchange, const struct code_end *end)
{
    struct interpreter *state = exchange->state;
    const struct code_query query = {.op = state->wanted,
                                     .id = state->id,
                                     .language = state->language,
                                     .cwd = state->cwd,
                                     .driver = state->driver};
    struct cay_error error = {0};

    if (state->current == CODE_EXECUTE ? !code_is_executed(end)
                                       : end->reason != CODE_DONE) {
        (void)code_fail_end(&query, op, end, &error);
        if (end->reason == CODE_NO_CWD)
            error.code = CAY_E_INVALID; /* not found is the context */
        fail(exchange, &error);
    } else if (state->current == CODE_EXECUTE) {
        state->end = *end;
        on_execution_end(exchange);
    } else if (state->wanted == CODE_LIST) {
        exchange_end_json(exchange, 200);
    } else if (state->current == CODE_LIST) {
        on_looked_up(exchange);
    } else if (state->wanted == CODE_REMOVE) {
        exchange_respond_empty(exchange, 204);
    } else {
        respond_context(exchange, public_id(&state->found), state->found.language,
                        state->found.cwd);
    }
}

/* Charges the memory for the line of a driver; drops the line if there is too much. */
static void charge_line(struct exchange *exchange, size_t len)
{
    struct code_collector *collector =
        &((struct interpreter *)exchange->state)->collector;

    len += collector->line.len;
    if (len <= CODE_PIECE)
        exchange->charged = 0;
    if (exchange_charge_client(exchange, COPIES * len) || collector->skips_line)
        return;
    collector->skips_line = true;
    collector->execution->values_dropped++;
}

/* False if the event is malformed. */
static bool on_event(struct exchange *exchange, const struct code_event *event,
                     const char *payload)
{
    struct interpreter *state = exchange->state;
    struct code_context context;
    struct code_end end;

    state->has_event = true;
    if (event->kind == CODE_EVENT_END) {
        if (event->len != sizeof end)
            return false;
        memcpy(&end, payload, sizeof end);
        on_end(exchange, &end);
        return true;
    }
    if (event->kind == CODE_EVENT_NEED) {
        on_need(exchange);
        return true;
    }
    if (state->current != CODE_EXECUTE)
        return code_take_context(event, payload, &context) &&
               take_context(exchange, &context);
    if (event->kind == CODE_EVENT_LINES)
        charge_line(exchange, event->len);
    if (!code_collect_event(&state->collector, event, payload) || state->collector.failed)
        return false;
    if (!exchange->is_stream)
        lines_begin(&state->lines);
    return true;
}

static bool is_settled(const struct exchange *exchange)
{
    return exchange->response ? !exchange->is_stream
                              : exchange->is_over || exchange->is_refused;
}

/* If nothing has come, the service was about to end when PID 1 passed the connection on,
 * and nothing has run. */
static void on_hang_up(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;

    state->reader.from = state->reader.to = 0;
    buf_done(&state->to);
    buf_init(&state->to, CODE_MESSAGE_MAX);
    bool is_new = !state->has_event && !exchange->is_stream && state->tries++ < TRIES;
    if (request_for(exchange, is_new ? FOR_CONNECTION : FOR_HEALTH))
        return;
    if (exchange->is_stream)
        exchange_end(exchange, true);
    else
        exchange_refuse(exchange, 503, "the server is overloaded");
}

/* Handles what has arrived.  False if there is nothing to read, or not yet. */
static bool step(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;
    struct code_event event;
    const char *payload;
    bool has_handled = false;
    size_t count;
    int got;

    if (state->purpose == FOR_IMAGE)
        return false;
    flush(state);
    while ((got = code_reader_next(&state->reader, &event, &payload)) == 1) {
        if (!on_event(exchange, &event, payload)) {
            struct cay_error error = {0};
            (void)code_fail_protocol(op, &error);
            fail(exchange, &error);
        }
        if (is_settled(exchange) || state->fd < 0 || state->purpose == FOR_IMAGE ||
            exchange->out.len >= OUT_ENOUGH)
            return true;
        has_handled = true;
    }
    if (has_handled)
        return true;
    struct iovec part;
    part.iov_base = code_reader_room(&state->reader, &part.iov_len);
    /* A descriptor that came with it is an error: closing it could take long. */
    ssize_t len =
        got < 0 ? 0 : rights_receive(state->fd, &part, 1, NULL, 0, &count, MSG_DONTWAIT);
    if (len == -EAGAIN)
        return false;
    if (len > 0)
        state->reader.to += (size_t)len;
    else
        on_hang_up(exchange);
    return true;
}

static void on_ready(struct exchange *exchange, unsigned events)
{
    struct interpreter *state = exchange->state;

    (void)events;
    if (exchange->is_stream) {
        exchange_resume(exchange);
        return;
    }
    while (state->fd >= 0 && !exchange->is_stream && !is_settled(exchange) &&
           step(exchange))
        continue;
}

/* The health of a sandbox whose code service has hung up.  If the sandbox exists, only
 * the service has ended, and with it the interpreter. */
static void on_health(struct exchange *exchange, const struct reply_packet *reply)
{
    struct interpreter *state = exchange->state;
    struct cay_error error = {0};

    exchange_close_channel(exchange);
    (void)code_fail_gone(op, &error);
    if (reply->head.kind == REPLY_FAILED && exchange->is_stream) {
        exchange_end(exchange, true); /* SDKs then look whether the sandbox exists */
    } else if (reply->head.kind == REPLY_FAILED) {
        exchange_refuse_with(exchange, reply);
    } else if (exchange->is_stream) {
        lines_put_error(&state->lines, "ContextRestarting", error.message, "");
        lines_end(&state->lines);
    } else {
        fail(exchange, &error);
    }
}

/* --- Requests --- */

static bool take_words(struct interpreter *state, const struct reply_packet *reply)
{
    size_t count = 0;
    const char *word = NULL;

    state->words_room = malloc(reply->head.len + 1u);
    if (!state->words_room)
        return false;
    memcpy(state->words_room, reply->payload, reply->head.len);
    while (count < WORDS_MAX && (word = reply_next(reply, word)) != NULL)
        state->words[count++] = state->words_room + (word - reply->payload);
    return true;
}

/* Only the reply was needed. */
static void drop_connection(struct reply_packet *reply)
{
    if (reply->fd >= 0)
        rights_hang_up(TAKE_FD(reply->fd));
}

static void on_image(struct exchange *exchange, struct reply_packet *reply)
{
    struct interpreter *state = exchange->state;
    AUTO_FD image = TAKE_FD(reply->fd);

    exchange_close_channel(exchange);
    state->purpose = FOR_CONNECTION;
    send_driver(exchange, image);
    on_ready(exchange, 0);
}

static void on_kills(struct exchange *exchange, struct reply_packet *reply)
{
    const struct interpreter *state = exchange->state;

    drop_connection(reply);
    exchange_close_channel(exchange);
    end_execution(exchange,
                  reply->head.kind == REPLY_SOCKET &&
                      reply->head.numbers[SOCKET_MEMORY_KILLS] > state->memory_kills);
}

static void on_connection(struct exchange *exchange, struct reply_packet *reply)
{
    struct interpreter *state = exchange->state;

    if (reply->head.kind != REPLY_SOCKET || reply->fd < 0) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    state->fd = TAKE_FD(reply->fd);
    state->memory_kills = reply->head.numbers[SOCKET_MEMORY_KILLS];
    exchange_close_channel(exchange);
    if ((!state->words_room && !take_words(state, reply)) ||
        !exchange_wait_for(exchange, state->fd, EPOLLIN | EPOLLOUT, &state->wake,
                           on_ready)) {
        exchange_refuse(exchange, 503, "the server is overloaded");
        return;
    }
    send_request(exchange);
    on_ready(exchange, 0);
}

static void on_reply(struct exchange *exchange, struct reply_packet *reply)
{
    const struct interpreter *state = exchange->state;

    if (state->purpose == FOR_HEALTH)
        on_health(exchange, reply);
    else if (state->purpose == FOR_KILLS || state->purpose == FOR_MISFIT)
        on_kills(exchange, reply);
    else if (state->purpose == FOR_IMAGE)
        on_image(exchange, reply);
    else
        on_connection(exchange, reply);
}

/* A reply while there is a stream. */
static void pull_reply(struct exchange *exchange, int got, struct reply_packet *reply)
{
    if (got == 1)
        on_reply(exchange, reply);
    else
        exchange_end(exchange, true);
}

/* Other connections get their turn although there is more to read. */
static bool pull(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;
    struct reply_packet *reply = &exchange->front->reply;

    if (state->fd < 0 || state->purpose == FOR_IMAGE) {
        int got = reply_receive(exchange->channel, reply);
        if (got != -EAGAIN)
            pull_reply(exchange, got, reply);
        return got != -EAGAIN;
    }
    if (state->pulls++ < PULLS_AT_A_TIME && step(exchange))
        return true;
    exchange->has_more = state->pulls > PULLS_AT_A_TIME;
    state->pulls = 0;
    return false;
}

/* Until a client times out waiting for the head of the response. */
static void overdue(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;

    if (state && state->fd >= 0 && state->current == CODE_EXECUTE)
        lines_begin(&state->lines);
}

static void on_health_reply(struct exchange *exchange, struct reply_packet *reply)
{
    drop_connection(reply);
    if (reply->head.kind == REPLY_SOCKET)
        refuse(exchange, 200, "OK");
    else
        exchange_refuse_with(exchange, reply);
}

static bool prepare(struct exchange *exchange, enum code_op wanted)
{
    struct interpreter *state = calloc(1, sizeof *state);

    if (!state || !code_reader_init(&state->reader)) {
        free(state);
        exchange_refuse(exchange, 500, "out of memory");
        return false;
    }
    state->fd = -1;
    state->wanted = wanted;
    state->cwd = default_cwd;
    buf_init(&state->to, CODE_MESSAGE_MAX);
    lines_init(&state->lines, exchange);
    state->options = (struct cay_code_options){.size = sizeof state->options,
                                               .output_limit = UINT64_MAX,
                                               .on_text = lines_put_text,
                                               .on_value = lines_put_value,
                                               .cookie = &state->lines};
    code_collector_init(&state->collector, &state->options, &state->execution);
    state->collector.on_count = lines_put_count;
    state->collector.tree_max = TREE_MAX;
    state->collector.line_max = LINES_RESULT_MAX;
    state->collector.keeps_base64 = true;
    exchange->state = state;
    exchange->state_done = interpreter_done;
    return true;
}

static void send_to_keeper(struct exchange *exchange)
{
    exchange_watch_client(exchange); /* the code may run for hours */
    exchange_send_plain(exchange);
}

/* A member of the body that is a string.  False if it has another type. */
static bool take_string(struct exchange *exchange, const char *key, const char **ret_text)
{
    const struct interpreter *state = exchange->state;
    const json_t *value = json_object_get(state->body, key);

    *ret_text = json_string_value(value);
    if (*ret_text || !value || json_is_null(value))
        return true;
    refuse(exchange, 422, "%s: must be a string", key);
    return false;
}

static bool take_body(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;

    state->body = exchange->body.len
                      ? connect_parse(exchange->body.data, exchange->body.len)
                      : json_object();
    if (!state->body)
        refuse(exchange, 422, "the body must be a JSON object");
    return state->body != NULL;
}

static bool take_env(struct exchange *exchange)
{
    struct interpreter *state = exchange->state;
    json_t *given = json_object_get(state->body, "env_vars"), *value;
    const char *name;
    size_t count = 0;

    if (!given || json_is_null(given))
        return true;
    state->env = calloc(json_object_size(given) + 1, sizeof *state->env);
    bool is_valid = state->env && json_is_object(given);
    json_object_foreach(given, name, value)
    {
        char *word = NULL;
        is_valid = is_valid && json_is_string(value) && *name && !strchr(name, '=') &&
                   asprintf(&word, "%s=%s", name, json_string_value(value)) > 0;
        if (is_valid)
            state->env[count++] = word;
    }
    if (!is_valid)
        refuse(exchange, 422, "env_vars: must be an object of names and strings");
    return is_valid;
}

static bool take_language(struct exchange *exchange, const char *name)
{
    if (choose_language(exchange->state, name ? name : python))
        return true;
    refuse(exchange, 500,
           "Unsupported language: %.64s (python, javascript, typescript and bash keep "
           "their variables; r, java, ruby and others run as programs)",
           name);
    return false;
}

static void act_execute(struct exchange *exchange)
{
    struct interpreter *state;
    const char *language;

    if (!prepare(exchange, CODE_EXECUTE) || !take_body(exchange))
        return;
    state = exchange->state;
    if (!take_string(exchange, "code", &state->code) ||
        !take_string(exchange, "context_id", &state->id) ||
        !take_string(exchange, "language", &language) || !take_env(exchange))
        return;
    if (!state->code) {
        refuse(exchange, 422, "code: a string is required");
    } else if (state->id && language) {
        refuse(exchange, 400, "Only one of context_id or language can be provided");
    } else if (!state->id || choose_language(state, state->id)) {
        if (state->id) /* the id of a default context */
            language = state->id;
        state->id = NULL;
        if (take_language(exchange, language))
            send_to_keeper(exchange);
    } else {
        send_to_keeper(exchange);
    }
}

static void act_create(struct exchange *exchange)
{
    struct interpreter *state;
    const char *language, *cwd;

    if (!prepare(exchange, CODE_CREATE) || !take_body(exchange))
        return;
    state = exchange->state;
    if (!take_string(exchange, "language", &language) ||
        !take_string(exchange, "cwd", &cwd) || !take_language(exchange, language))
        return;
    state->cwd = cwd && *cwd ? cwd : default_cwd;
    if (strlen(state->cwd) >= sizeof state->found.cwd)
        refuse(exchange, 422, "cwd: the path is too long");
    else
        send_to_keeper(exchange);
}

static void act_list(struct exchange *exchange)
{
    if (!prepare(exchange, CODE_LIST))
        return;
    begin_list(exchange);
    send_to_keeper(exchange);
}

static void act_named(struct exchange *exchange)
{
    if (!prepare(exchange, (enum code_op)exchange->handler->flags))
        return;
    ((struct interpreter *)exchange->state)->id = exchange->route.part;
    send_to_keeper(exchange);
}

const struct handler code_handlers[] = {
    {.method = "POST",
     .path = "/execute",
     .body_max = BODY_COMMAND,
     .act = act_execute,
     .kind = FRONT_EXEC,
     .op = OP_EXECUTE,
     .on_reply = on_reply,
     .pull = pull,
     .overdue = overdue},
    {.method = "GET",
     .path = "/contexts",
     .act = act_list,
     .op = OP_CONTEXTS,
     .on_reply = on_reply},
    {.method = "POST",
     .path = "/contexts",
     .body_max = BODY_SMALL,
     .act = act_create,
     .op = OP_CONTEXTS,
     .on_reply = on_reply},
    {.method = "POST",
     .path = "/contexts/{id}/restart",
     .act = act_named,
     .op = OP_CONTEXTS,
     .on_reply = on_reply,
     .flags = CODE_RESTART},
    {.method = "DELETE",
     .path = "/contexts/{id}",
     .act = act_named,
     .op = OP_CONTEXTS,
     .on_reply = on_reply,
     .flags = CODE_REMOVE},
    {.method = "GET",
     .path = "/health",
     .act = exchange_send_plain,
     .op = OP_CONTEXTS,
     .on_reply = on_health_reply},
    {0},
};
