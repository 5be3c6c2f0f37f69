/* SPDX-License-Identifier: Apache-2.0 */

/* /secrets of E2B's API: values are accepted and never returned. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"

enum {
    SECRETS_TEXT = 4 << 20,
    SECRET_TEXT = 64 << 10,
    SECRET_BODY = 64 << 10,
    PAGE_MAX = 100,
    NAME_MAX_BYTES = 129, /* includes the NUL */
    METADATA_ENTRIES = 32,
    METADATA_KEY = 128,
    METADATA_VALUE = 1024,
    METADATA_BYTES = 8192
};

static void put_secret(struct json *json, const struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    const char *id = reply_next(reply, NULL), *name = reply_next(reply, id);

    json_put_object(json);
    json_set_text(json, "secretID", id);
    json_set_text(json, "name", name);
    json_set_int(json, "currentVersion", numbers[SECRET_VERSION]);
    connect_put_pairs(json, reply, reply_next(reply, name));
    connect_put_time(json, "createdAt", numbers[SECRET_CREATED_MS] / 1000,
                     numbers[SECRET_CREATED_MS] % 1000, 3);
    connect_put_time(json, "updatedAt", numbers[SECRET_UPDATED_MS] / 1000,
                     numbers[SECRET_UPDATED_MS] % 1000, 3);
    json_put_end(json);
}

static void on_secret(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = exchange_json(exchange, SECRET_TEXT);

    if (reply->head.kind != REPLY_SECRET) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    put_secret(json, reply);
    exchange_end_json(exchange, exchange->handler->flags & SECRET_NEW ? 201 : 200);
}

/* --- POST --- */

static bool is_small(const json_t *metadata)
{
    const char *key;
    json_t *value;
    size_t bytes = 0;

    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        size_t key_len = strlen(key), value_len = json_string_length(value);
        if (key_len > METADATA_KEY || value_len > METADATA_VALUE)
            return false;
        bytes += key_len + value_len;
    }
    return json_object_size(metadata) <= METADATA_ENTRIES && bytes <= METADATA_BYTES;
}

static const char *fill_set(struct exchange *exchange, struct fields *fields,
                            struct request *request, struct buf *strings)
{
    bool is_new = exchange->handler->flags & SECRET_NEW;
    const char *name = is_new ? field_text(fields, "name") : exchange->route.part;
    const char *value = field_text(fields, "value");
    const json_t *metadata = field_get(fields, "metadata");

    exchange_init_request(exchange, OP_SECRET_SET, request);
    request->flags = exchange->handler->flags;
    if (!name)
        (void)field_reject(fields, "name");
    if (!value)
        (void)field_reject(fields, "value");
    if (fields->wrong)
        return NULL;
    strings_add(strings, name);
    strings_add(strings, value);
    if (metadata)
        request->flags |= SECRET_METADATA;
    if (!is_small(metadata))
        return "metadata has at most 32 entries, keys of 128 bytes, values of 1024 "
               "bytes, and 8192 bytes in all";
    request->count =
        2 + 2 * (uint32_t)field_add_pairs(fields, "metadata", false, strings);
    return NULL;
}

static void set(struct exchange *exchange)
{
    json_t *root = exchange->body.len ? connect_body(exchange, false) : NULL;
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    if (!root) {
        exchange_refuse(exchange, 400, "the body is not a JSON object");
        return;
    }
    const char *wrong = fill_set(exchange, &fields, &request, &strings);
    if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else if (wrong)
        exchange_refuse(exchange, 400, wrong);
    else
        exchange_send(exchange, &request, &strings);
    if (strings.data)
        explicit_bzero(strings.data, strings.len);
    if (exchange->body.data)
        explicit_bzero(exchange->body.data, exchange->body.len);
    json_decref(root);
}

/* --- GET, DELETE --- */

static void send_named(struct exchange *exchange)
{
    AUTO_BUF strings = {.max = PART_MAX + 1};
    struct request request;

    strings_add(&strings, exchange->route.part);
    exchange_init_request(exchange, exchange->handler->op, &request);
    request.count = 1;
    exchange_send(exchange, &request, &strings);
}

static void page_done(struct exchange *exchange)
{
    free(exchange->state);
}

/* The token of a page is the name before it: names are unique. */
static void list(struct exchange *exchange)
{
    const char *limit = exchange_query(exchange, "limit");
    const char *after = exchange_query(exchange, "nextToken");
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    exchange->state = calloc(1, NAME_MAX_BYTES);
    exchange->state_done = page_done;
    if (!exchange->state)
        return;
    json_put_array(exchange_json(exchange, SECRETS_TEXT));
    exchange_init_request(exchange, OP_SECRETS, &request);
    strings_add(&strings, after ? after : "");
    request.count = 1;
    request.numbers[LIST_LIMIT] = PAGE_MAX;
    if (limit && !front_parse_number(limit, 1, PAGE_MAX, &request.numbers[LIST_LIMIT]))
        exchange_refuse(exchange, 400, "limit must be 1 to 100");
    else
        exchange_send(exchange, &request, &strings);
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_SECRET) {
        const char *name = reply_next(reply, reply_next(reply, NULL));
        put_secret(&exchange->json, reply);
        cay_copy_text(exchange->state, NAME_MAX_BYTES, name ? name : "");
        return;
    }
    exchange_end_json(exchange, 200);
    if (exchange->response && reply->head.numbers[LISTED_HAS_MORE])
        (void)MHD_add_response_header(exchange->response, "X-Next-Token",
                                      exchange->state);
}

#define ON(name, route, action, replied, ...)                                            \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action),                              \
        .on_error = exchange_refuse_with, .on_reply = (replied), __VA_ARGS__             \
    }

const struct handler secret_handlers[] = {
    ON("GET", "/secrets", list, on_list, .op = OP_SECRETS),
    ON("POST", "/secrets", set, on_secret, .op = OP_SECRET_SET, .body_max = SECRET_BODY,
       .flags = SECRET_NEW),
    ON("GET", "/secrets/{id}", send_named, on_secret, .op = OP_SECRET),
    ON("POST", "/secrets/{id}", set, on_secret, .op = OP_SECRET_SET,
       .body_max = SECRET_BODY),
    ON("DELETE", "/secrets/{id}", send_named, exchange_on_done, .op = OP_SECRET_REMOVE),
    {0},
};
