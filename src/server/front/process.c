/* SPDX-License-Identifier: Apache-2.0 */

/* process.Process and the small routes of E2B's envd. */
#include <nettle/base64.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "server/front/front.h"

enum { LIST_TEXT = 16 << 20 };

/* --- Requests to the broker --- */

/* {"process": {"pid": 7}} or {"process": {"tag": "web"}}: adds the pid or tag. */
static bool fill_selector(struct fields *fields, struct request *request,
                          struct buf *strings)
{
    struct fields process = field_object(fields, "process");
    struct fields selector = field_object(&process, "selector");
    struct fields *from = selector.object ? &selector : &process;
    int64_t pid = field_int(from, "pid", 1, INT32_MAX, 0);
    const char *tag = field_text(from, "tag");
    char text[16];

    (void)request;
    if (!pid && !tag)
        (void)field_reject(fields, "process");
    if (fields->wrong)
        return false;
    snprintf(text, sizeof text, "%lld", (long long)pid);
    strings_add(strings, pid ? text : tag);
    return true;
}

/* --- Events --- */

static size_t open_event(struct exchange *exchange, struct json *json, const char *name)
{
    size_t begin = connect_open(&exchange->out);

    json_to_unicode(json, &exchange->out);
    json_put_object(json);
    json_put_key(json, "event");
    json_put_object(json);
    json_put_key(json, name);
    json_put_object(json);
    return begin;
}

static void close_event(struct exchange *exchange, struct json *json, size_t begin)
{
    for (int i = 0; i < 3; i++)
        json_put_end(json);
    connect_close(&exchange->out, begin);
}

static void put_keepalive(struct exchange *exchange)
{
    struct json json;
    size_t begin = open_event(exchange, &json, "keepalive");

    close_event(exchange, &json, begin);
}

/* From here on exchange->state contains whether there is a terminal. */
static void put_start(struct exchange *exchange, const struct reply_packet *reply)
{
    static char yes;
    struct json json;
    size_t begin = open_event(exchange, &json, "start");

    json_set_int(&json, "pid", reply->head.numbers[STARTED_PID]);
    close_event(exchange, &json, begin);
    exchange->state = reply->head.numbers[STARTED_HAS_PTY] ? &yes : NULL;
}

/* Written as text, since this is the most frequent message of a server. */
static void put_data(struct exchange *exchange, const struct reply_packet *reply)
{
    struct buf *out = &exchange->out;
    bool has_pty = exchange->state != NULL;
    size_t begin = connect_open(out);
    size_t len = BASE64_ENCODE_RAW_LENGTH(reply->head.len);

    buf_format(out, "{\"event\":{\"data\":{\"%s\":\"",
               has_pty                                   ? "pty"
               : reply->head.numbers[OUTPUT_STREAM] == 2 ? "stderr"
                                                         : "stdout");
    if (buf_reserve(out, len)) {
        connect_base64(out->data + out->len, reply->payload, reply->head.len);
        out->len += len;
    }
    buf_text(out, "\"}}}");
    connect_close(out, begin);
}

static void put_end(struct exchange *exchange, const struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    const char *status = reply_next(reply, NULL);
    struct json json;
    size_t begin = open_event(exchange, &json, "end");

    json_set_int(&json, "exitCode", numbers[END_EXIT_CODE]);
    json_set_bool(&json, "exited", numbers[END_EXITED]);
    json_set_text(&json, "status", status);
    if (!numbers[END_EXITED] || numbers[END_EXIT_CODE] != 0)
        json_set_text(&json, "error", status);
    close_event(exchange, &json, begin);
}

/* It waits for approval.  The SDKs take the first event for that of the start, so that
 * only clients that send the header get others before it. */
static void begin_waiting(struct exchange *exchange, const struct reply_packet *reply)
{
    static const char header[] = "Cay-Approval";
    const char *id = reply_next(reply, NULL);

    if (!exchange->is_stream && id)
        connect_begin_waiting(exchange, header, id,
                              exchange_header(exchange, header) ? put_keepalive : NULL);
}

static void on_event(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_WAITING) {
        begin_waiting(exchange, reply);
        return;
    }
    if (!connect_begin_stream(exchange, reply, put_keepalive))
        return;
    switch (reply->head.kind) {
    case REPLY_STARTED:
        exchange->keepalive = put_keepalive;
        put_start(exchange, reply);
        break;
    case REPLY_OUTPUT:
        put_data(exchange, reply);
        break;
    case REPLY_ENDED:
        put_end(exchange, reply);
        connect_end_stream(exchange, NULL);
        break;
    case REPLY_FAILED:
        connect_end_stream(exchange, reply);
        break;
    default:
        exchange_end(exchange, true);
        break;
    }
}

/* --- Start and Connect --- */

static bool fill_start(struct fields *fields, struct request *request,
                       struct buf *strings)
{
    struct fields process = field_object(fields, "process");
    struct fields pty = field_object(fields, "pty");
    struct fields size = field_object(&pty, "size");
    const char *command = field_text(&process, "cmd");
    const char *cwd = field_text(&process, "cwd"), *tag = field_text(fields, "tag");

    strings_add(strings, cwd ? cwd : "");
    strings_add(strings, tag ? tag : "");
    strings_add(strings, command ? command : "");
    request->numbers[START_ARGS] = 1 + field_add_array(&process, "args", strings);
    request->numbers[START_ENV] = field_add_pairs(&process, "envs", true, strings);
    request->numbers[START_COLUMNS] = field_int(&size, "cols", 0, UINT16_MAX, 0);
    request->numbers[START_ROWS] = field_int(&size, "rows", 0, UINT16_MAX, 0);
    request->count =
        2 + (uint32_t)(request->numbers[START_ARGS] + request->numbers[START_ENV]);
    if (pty.object)
        request->flags |= START_PTY;
    else if (field_bool(fields, "stdin", true))
        request->flags |= START_INPUT;
    if (!command || !*command)
        (void)field_reject(fields, "cmd");
    return !fields->wrong && request->count <= 65536;
}

/* --- Unary calls --- */

static void on_empty(struct exchange *exchange, struct reply_packet *reply)
{
    (void)reply;
    json_put_object(exchange_json(exchange, 8));
    exchange_end_json(exchange, 200);
}

/* {"input": {"stdin": ...}} or {"input": {"pty": ...}} */
static bool fill_data(struct fields *fields, struct request *request, struct buf *strings)
{
    struct fields input = field_object(fields, "input");
    const char *pty = field_text(&input, "pty"), *text = field_text(&input, "stdin");

    request->count = 2;
    request->numbers[INPUT_IS_PTY] = pty != NULL;
    strings_add(strings, pty ? pty : text ? text : "");
    if (!pty && !text)
        (void)field_reject(fields, "input");
    return !fields->wrong;
}

static bool fill_input(struct fields *fields, struct request *request,
                       struct buf *strings)
{
    return fill_selector(fields, request, strings) && fill_data(fields, request, strings);
}

static bool fill_signal(struct fields *fields, struct request *request,
                        struct buf *strings)
{
    const json_t *value = field_get(fields, "signal");
    const char *name = json_string_value(value);
    int64_t number = json_is_integer(value) ? json_integer_value(value) : 0;

    if (!fill_selector(fields, request, strings))
        return false;
    if (name)
        number = strcmp(name, "SIGNAL_SIGKILL") == 0   ? SIGKILL
                 : strcmp(name, "SIGNAL_SIGTERM") == 0 ? SIGTERM
                                                       : 0;
    request->numbers[SIGNAL_NUMBER] = number;
    return number == SIGKILL || number == SIGTERM || field_reject(fields, "signal");
}

static bool fill_size(struct fields *fields, struct request *request, struct buf *strings)
{
    struct fields pty = field_object(fields, "pty");
    struct fields size = field_object(&pty, "size");

    if (!fill_selector(fields, request, strings))
        return false;
    request->numbers[RESIZE_COLUMNS] = field_int(&size, "cols", 1, UINT16_MAX, 0);
    request->numbers[RESIZE_ROWS] = field_int(&size, "rows", 1, UINT16_MAX, 0);
    if (!size.object || !request->numbers[RESIZE_COLUMNS] ||
        !request->numbers[RESIZE_ROWS])
        (void)field_reject(fields, "size");
    return !fields->wrong;
}

/* --- List --- */

static bool fill_list(struct fields *fields, struct request *request, struct buf *strings)
{
    (void)fields;
    (void)strings;
    request->count = 0;
    return true;
}

static void put_process(struct json *json, const struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    const char *tag = reply_next(reply, NULL), *cwd = reply_next(reply, tag);
    const char *at = reply_next(reply, cwd);

    json_put_object(json);
    json_set_int(json, "pid", numbers[PROCESS_PID]);
    if (*tag)
        json_set_text(json, "tag", tag);
    json_put_key(json, "config");
    json_put_object(json);
    json_set_text(json, "cmd", at ? at : "");
    json_put_key(json, "args");
    json_put_array(json);
    for (int64_t i = 1; i < numbers[PROCESS_ARGS] && at; i++) {
        at = reply_next(reply, at);
        json_put_text(json, at);
    }
    json_put_end(json);
    json_put_key(json, "envs");
    json_put_object(json);
    for (int64_t i = 0; i < numbers[PROCESS_ENV] && at; i++) {
        char name[256];
        at = reply_next(reply, at);
        size_t len = at ? strcspn(at, "=") : 0;
        if (!at || len >= sizeof name || !at[len])
            continue;
        memcpy(name, at, len);
        name[len] = '\0';
        json_set_text(json, name, at + len + 1);
    }
    json_put_end(json);
    if (*cwd)
        json_set_text(json, "cwd", cwd);
    json_put_end(json);
    json_put_end(json);
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = &exchange->json;

    if (!json->buf) {
        json_put_object(exchange_json(exchange, LIST_TEXT));
        json_put_key(json, "processes");
        json_put_array(json);
    }
    if (reply->head.kind == REPLY_PROCESS) {
        put_process(json, reply);
        (void)connect_charge(exchange);
    } else {
        json_put_end(json);
        exchange_end_json(exchange, 200);
    }
}

/* --- StreamInput --- */

/* StreamInput of process.Process: a client stream whose messages are sent one after the
 * other. */

enum { MESSAGE_MAX = 8 << 20, ENVELOPE = 5 };

struct input {
    struct buf waiting; /* bytes that are not parsed yet */
    char which[64];     /* pid or tag of the process */
};

static void input_done(struct exchange *exchange)
{
    struct input *input = exchange->state;

    buf_done(&input->waiting);
    free(input);
}

static bool begin_input(struct exchange *exchange)
{
    struct input *input = calloc(1, sizeof *input);

    if (!input)
        return false;
    buf_init(&input->waiting, MESSAGE_MAX + ENVELOPE);
    exchange->state = input;
    exchange->state_done = input_done;
    return true;
}

static void refuse_message(struct exchange *exchange)
{
    connect_respond_stream(exchange, "invalid_argument", "invalid message for this call");
}

static void send_data(struct exchange *exchange, struct fields *data)
{
    struct input *input = exchange->state;
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};
    struct request request;

    exchange_init_request(exchange, OP_INPUT, &request);
    strings_add(&strings, input->which);
    if (!*input->which || !fill_data(data, &request, &strings) ||
        !connect_user(exchange, request.user)) {
        refuse_message(exchange);
        return;
    }
    exchange_watch_client(exchange); /* it waits until the process reads it */
    exchange_send(exchange, &request, &strings);
}

/* {"start": ...}, {"data": ...} or {"keepalive": {}} */
static void take_message(struct exchange *exchange, const char *text, size_t len)
{
    json_t *root = connect_parse(text, len);
    struct fields fields = {.object = root};
    struct fields start = field_object(&fields, "start");
    struct fields data = field_object(&fields, "data");
    struct input *input = exchange->state;
    AUTO_BUF which = {.max = sizeof input->which};

    if (!root || fields.wrong ||
        (start.object && (!fill_selector(&start, NULL, &which) || which.failed)))
        refuse_message(exchange);
    else if (start.object)
        memcpy(input->which, which.data, which.len);
    else if (data.object)
        send_data(exchange, &data);
    json_decref(root);
}

/* Handles complete messages while no request is pending. */
static void pump_input(struct exchange *exchange)
{
    struct input *input = exchange->state;
    struct buf *waiting = &input->waiting;

    while (!exchange->response && exchange->channel < 0 && waiting->len >= ENVELOPE) {
        const unsigned char *head = (const unsigned char *)waiting->data;
        size_t len = (size_t)head[1] << 24 | (size_t)head[2] << 16 |
                     (size_t)head[3] << 8 | head[4];
        if (head[0] != 0 || len > MESSAGE_MAX) {
            refuse_message(exchange);
            return;
        }
        if (waiting->len - ENVELOPE < len)
            return;
        take_message(exchange, waiting->data + ENVELOPE, len);
        memmove(waiting->data, waiting->data + ENVELOPE + len,
                waiting->len - ENVELOPE - len);
        waiting->len -= ENVELOPE + len;
    }
}

static bool feed_input(struct exchange *exchange, const char *data, size_t len)
{
    struct input *input = exchange->state;

    if (!exchange_charge_body(exchange, input->waiting.len + len))
        exchange_refuse_and_close(exchange, 503, "the server is overloaded");
    else if (buf_append(&input->waiting, data, len))
        pump_input(exchange);
    else
        exchange_refuse_and_close(exchange, 413, "a message is too large");
    (void)exchange_charge_body(exchange, input->waiting.len);
    return !exchange->response;
}

static void finish_input(struct exchange *exchange)
{
    struct input *input = exchange->state;

    pump_input(exchange);
    if (exchange->response || exchange->channel >= 0)
        return;
    if (input->waiting.len > 0)
        refuse_message(exchange);
    else
        connect_respond_stream(exchange, NULL, NULL);
}

static void on_input(struct exchange *exchange, struct reply_packet *reply)
{
    exchange_close_channel(exchange);
    if (reply->head.kind == REPLY_FAILED && reply->head.status)
        exchange_refuse_with(exchange, reply);
    else if (reply->head.kind == REPLY_FAILED)
        connect_respond_stream(exchange, connect_code(reply, &(unsigned){0}),
                               reply_next(reply, NULL));
    else if (exchange->has_body)
        finish_input(exchange);
    else
        pump_input(exchange);
    if (exchange->channel < 0)
        exchange_resume(exchange);
}

/* --- Other routes --- */

static void on_metrics(struct exchange *exchange, struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    struct json *json = exchange_json(exchange, 4096);

    json_put_object(json);
    json_set_int(json, "ts", (int64_t)time(NULL));
    json_set_int(json, "cpu_count", numbers[USAGE_CPUS]);
    json_set_int(json, "cpu_used_pct", numbers[USAGE_CPU_PERMILLE] / 10);
    json_set_int(json, "mem_used", numbers[USAGE_MEMORY]);
    json_set_int(json, "mem_total", numbers[USAGE_MEMORY_MAX]);
    json_set_int(json, "mem_cache", 0);
    json_set_int(json, "mem_used_mib", numbers[USAGE_MEMORY] >> 20);
    json_set_int(json, "mem_total_mib", numbers[USAGE_MEMORY_MAX] >> 20);
    json_set_int(json, "disk_used", numbers[USAGE_DISK]);
    json_set_int(json, "disk_total", numbers[USAGE_DISK_MAX]);
    exchange_end_json(exchange, 200);
}

static void on_envs(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = exchange_json(exchange, 8 * CHANNEL_PACKET);

    json_put_object(json);
    for (const char *at = reply_next(reply, NULL); at; at = reply_next(reply, at)) {
        char name[256];
        size_t len = strcspn(at, "=");
        if (len == 0 || len >= sizeof name || !at[len])
            continue;
        memcpy(name, at, len);
        name[len] = '\0';
        json_put_key(json, name);
        json_put_bytes(json, at + len + 1, strlen(at + len + 1));
    }
    exchange_end_json(exchange, 200);
}

#define GET(route, operation, replied)                                                   \
    {                                                                                    \
        .method = "GET", .path = (route), .act = exchange_send_plain, .op = (operation), \
        .on_error = exchange_refuse_with, .on_reply = (replied)                          \
    }
#define ROUTE(name) .method = "POST", .path = "/process.Process/" name
#define CALL(name, operation, filler, max, replied, ...)                                 \
    {                                                                                    \
        ROUTE(name), .body_max = (max), .act = connect_call, .op = (operation),          \
                     .fill = (filler), .on_reply = (replied), __VA_ARGS__                \
    }
#define UNARY .on_error = connect_refuse_with

const struct handler process_handlers[] = {
    CALL("Start", OP_START, fill_start, BODY_COMMAND, on_event, .is_stream = true),
    CALL("Connect", OP_ATTACH, fill_selector, BODY_SMALL, on_event, .is_stream = true),
    CALL("List", OP_PROCESSES, fill_list, BODY_SMALL, on_list, UNARY, .is_read = true),
    CALL("SendInput", OP_INPUT, fill_input, BODY_COMMAND, on_empty, UNARY),
    CALL("CloseStdin", OP_CLOSE_INPUT, fill_selector, BODY_SMALL, on_empty, UNARY),
    CALL("SendSignal", OP_SIGNAL, fill_signal, BODY_SMALL, on_empty, UNARY),
    CALL("Update", OP_RESIZE, fill_size, BODY_SMALL, on_empty, UNARY),
    {ROUTE("StreamInput"), .begin = begin_input, .feed = feed_input, .act = finish_input,
     .on_reply = on_input},
    GET("/health", OP_HEALTH, exchange_on_done),
    GET("/metrics", OP_METRICS, on_metrics),
    GET("/envs", OP_ENVS, on_envs),
    {0},
};
