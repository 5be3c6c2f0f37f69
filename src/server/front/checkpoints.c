/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints of a sandbox.  E2B's API has none; these routes are Cay's. */
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "cay/diff.h"
#include "server/front/front.h"

enum { TREE_TEXT = 16 << 20, DIFF_TEXT = 32 << 20 };

/* --- Requests --- */

static void send_texts(struct exchange *exchange, int64_t number, const char *first,
                       const char *second)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    exchange_init_request(exchange, exchange->handler->op, &request);
    request.numbers[0] = number;
    strings_add(&strings, first);
    if (second)
        strings_add(&strings, second);
    request.count = second ? 2 : 1;
    exchange_send(exchange, &request, &strings);
}

static void create(struct exchange *exchange)
{
    json_t *root = front_take_body(exchange);
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];

    if (!root)
        return;
    const char *name = field_text(&fields, "name");
    bool stops = field_bool(&fields, "stop", false);
    if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else
        send_texts(exchange, stops, name ? name : "", NULL);
    json_decref(root);
}

static void roll_back(struct exchange *exchange)
{
    json_t *root = front_take_body(exchange), *which;
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX], number[24];

    if (!root)
        return;
    which = field_get(&fields, "checkpoint");
    const char *text = json_string_value(which);
    if (json_is_integer(which)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(which));
        text = number;
    }
    if (!text || !*text)
        (void)field_reject(&fields, "checkpoint");
    if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else
        send_texts(exchange, 0, text, NULL);
    json_decref(root);
}

static void list(struct exchange *exchange)
{
    json_put_array(exchange_json(exchange, TREE_TEXT));
    exchange_send_plain(exchange);
}

static const struct {
    const char *name, *type;
} formats[] = {[CAY_DIFF_NAMES] = {"names", "text/plain; charset=utf-8"},
               [CAY_DIFF_STAT] = {"stat", "text/plain; charset=utf-8"},
               [CAY_DIFF_UNIFIED] = {"unified", "text/x-diff; charset=utf-8"},
               [CAY_DIFF_JSON] = {"json", "application/json"}};

enum { FORMATS = sizeof formats / sizeof *formats };

/* The number of the requested format, or FORMATS. */
static size_t find_format(const struct exchange *exchange)
{
    const char *name = exchange_query(exchange, "format");
    size_t format = 0;

    while (format < FORMATS && strcmp(formats[format].name, name ? name : "json") != 0)
        format++;
    return format;
}

static void compare(struct exchange *exchange)
{
    const char *from = exchange_query(exchange, "from");
    const char *to = exchange_query(exchange, "to");
    size_t format = find_format(exchange);

    buf_done(&exchange->out);
    buf_init(&exchange->out, DIFF_TEXT);
    if (!from || !*from)
        exchange_refuse(exchange, 400, "from must be a checkpoint");
    else if (format == FORMATS)
        exchange_refuse(exchange, 400, "format must be names, stat, unified or json");
    else
        send_texts(exchange, (int64_t)format, from, to ? to : "");
}

/* --- Replies --- */

static void put_checkpoint(struct json *json, const struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    const char *name = reply_next(reply, NULL);

    json_put_object(json);
    json_set_int(json, "id", numbers[CHECKPOINT_ID]);
    if (numbers[CHECKPOINT_PARENT])
        json_set_int(json, "parent", numbers[CHECKPOINT_PARENT]);
    else
        json_set_text(json, "parent", NULL);
    json_set_text(json, "name", *name ? name : NULL);
    json_set_text(json, "cause", reply_next(reply, name));
    json_set_bool(json, "current", numbers[CHECKPOINT_IS_CURRENT]);
    connect_put_time(json, "createdAt", numbers[CHECKPOINT_CREATED_MS] / 1000,
                     numbers[CHECKPOINT_CREATED_MS] % 1000, 3);
}

static void on_created(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind != REPLY_CHECKPOINT) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    put_checkpoint(exchange_json(exchange, BODY_SMALL), reply);
    exchange_end_json(exchange, 201);
}

/* What the rollback has undone comes first, if there was something. */
static void on_rolled_back(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = exchange_json(exchange, BODY_SMALL);

    json_put_object(json);
    json_put_key(json, "undone");
    if (reply->head.kind == REPLY_CHECKPOINT) {
        put_checkpoint(json, reply);
        json_put_end(json);
    } else {
        json_put_null(json);
    }
    exchange_end_json(exchange, 200);
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = &exchange->json;

    if (reply->head.kind != REPLY_CHECKPOINT) {
        exchange_end_json(exchange, 200);
        return;
    }
    put_checkpoint(json, reply);
    json_set_int(json, "bytes", reply->head.numbers[CHECKPOINT_BYTES]);
    json_set_int(json, "files", reply->head.numbers[CHECKPOINT_FILES]);
    json_put_end(json);
    (void)front_charge_page(exchange);
}

static void on_diff(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_OUTPUT) {
        (void)buf_append(&exchange->out, reply->payload, reply->head.len);
        if (exchange->out.failed)
            exchange_refuse(exchange, 413, "the difference is larger than 32 MiB");
        else
            (void)front_charge_page(exchange);
        return;
    }
    if (!exchange->out.data) /* nothing has changed */
        (void)buf_append(&exchange->out, "", 0);
    exchange_respond_text(exchange, 200, formats[find_format(exchange)].type,
                          &exchange->out);
}

#define ON(name, route, action, replied, ...)                                            \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action),                              \
        .on_error = exchange_refuse_with, .on_reply = (replied), __VA_ARGS__             \
    }

const struct handler checkpoint_handlers[] = {
    ON("POST", "/sandboxes/{id}/checkpoints", create, on_created, .op = OP_CHECKPOINT,
       .body_max = BODY_SMALL),
    ON("GET", "/sandboxes/{id}/checkpoints", list, on_list, .op = OP_CHECKPOINTS),
    ON("POST", "/sandboxes/{id}/rollback", roll_back, on_rolled_back, .op = OP_ROLLBACK,
       .body_max = BODY_SMALL),
    ON("GET", "/sandboxes/{id}/diff", compare, on_diff, .op = OP_DIFF),
    {0},
};
