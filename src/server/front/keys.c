/* SPDX-License-Identifier: Apache-2.0 */

/* /api-keys of E2B's API: keys of the own tenant; and /admin/tenants, which E2B's API
 * does not have: those of all tenants, for admin keys. */
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"

enum { KEYS_TEXT = 2 << 20, KEY_TEXT = 8 << 10, KEY_BODY = 16 << 10 };

static const char tenants[] = "/admin/tenants/";

/* "e2b_1a2b3c..." as E2B's mask of a key: only new keys are known to have 40 digits. */
static void put_mask(struct json *json, const char *shown)
{
    enum { PREFIX = 4, DIGITS = 40 };
    char first[16] = "";

    if (strlen(shown) > PREFIX)
        cay_copy_text(first, sizeof first, shown + PREFIX);
    first[strcspn(first, ".")] = '\0';
    json_put_key(json, "mask");
    json_put_object(json);
    json_set_text(json, "prefix", "e2b_");
    json_set_int(json, "valueLength", DIGITS);
    json_set_text(json, "maskedValuePrefix", first);
    json_set_text(json, "maskedValueSuffix", "");
    json_put_end(json);
}

static void put_key(struct json *json, const struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    const char *id = reply_next(reply, NULL), *name = reply_next(reply, id);
    const char *shown = name ? reply_next(reply, name) : NULL;
    const char *key = shown ? reply_next(reply, shown) : NULL;

    json_put_object(json);
    json_set_text(json, "id", id);
    json_set_text(json, "name", name);
    if (key)
        json_set_text(json, "key", key);
    put_mask(json, shown ? shown : "");
    connect_put_time(json, "createdAt", numbers[KEY_CREATED_MS] / 1000,
                     numbers[KEY_CREATED_MS] % 1000, 3);
    json_set_bool(json, "admin", numbers[KEY_IS_ADMIN]);
    json_put_end(json);
}

/* --- Requests --- */

/* The strings, and then the tenant of the path, or "": the own one. */
static void send_strings(struct exchange *exchange, const char *first, const char *second)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;
    char tenant[PART_MAX] = "";

    if (strncmp(exchange->handler->path, tenants, strlen(tenants)) == 0)
        (void)route_first(exchange->handler->path, exchange->target, tenant);
    exchange_init_request(exchange, exchange->handler->op, &request);
    request.sandbox[0] = '\0'; /* the path names a tenant or a key */
    request.count = 1U + (first != NULL) + (second != NULL);
    if (first)
        strings_add(&strings, first);
    if (second)
        strings_add(&strings, second);
    strings_add(&strings, tenant);
    exchange_send(exchange, &request, &strings);
}

static void list(struct exchange *exchange)
{
    json_put_array(exchange_json(exchange, KEYS_TEXT));
    if (exchange->handler->op == OP_TENANTS)
        exchange_send_plain(exchange);
    else
        send_strings(exchange, NULL, NULL);
}

/* {"name": "..."}, for a new key or the one of the path. */
static void set_name(struct exchange *exchange)
{
    bool is_new = exchange->handler->op == OP_KEY_NEW;
    json_t *root = exchange->body.len ? connect_body(exchange, false) : NULL;
    struct fields fields = {.object = root};
    const char *name = root ? field_text(&fields, "name") : NULL;

    if (!name || fields.wrong)
        exchange_refuse(exchange, 400, "the body must be {\"name\": \"...\"}");
    else
        send_strings(exchange, is_new ? name : exchange->route.part,
                     is_new ? NULL : name);
    json_decref(root);
}

static void remove_key(struct exchange *exchange)
{
    send_strings(exchange, exchange->route.part, NULL);
}

/* --- Replies --- */

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    struct json *json = &exchange->json;

    if (reply->head.kind == REPLY_KEY) {
        put_key(json, reply);
    } else if (reply->head.kind == REPLY_TENANT) {
        json_put_object(json);
        json_set_text(json, "name", reply_next(reply, NULL));
        json_set_int(json, "keys", numbers[TENANT_KEYS]);
        json_set_int(json, "running", numbers[TENANT_RUNNING]);
        json_set_int(json, "paused", numbers[TENANT_PAUSED]);
        json_put_end(json);
    } else {
        exchange_end_json(exchange, 200);
    }
}

static void on_new(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind != REPLY_KEY) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    put_key(exchange_json(exchange, KEY_TEXT), reply);
    exchange_end_json(exchange, 201);
    explicit_bzero(reply->payload, reply->head.len);
    if (exchange->response)
        (void)MHD_add_response_header(exchange->response, "Cache-Control", "no-store");
}

#define ON(name, route, action, replied, operation, ...)                                 \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action), .on_reply = (replied),       \
        .on_error = exchange_refuse_with, .op = (operation), __VA_ARGS__                 \
    }

const struct handler key_handlers[] = {
    ON("GET", "/api-keys", list, on_list, OP_KEYS),
    ON("POST", "/api-keys", set_name, on_new, OP_KEY_NEW, .body_max = KEY_BODY),
    ON("PATCH", "/api-keys/{id}", set_name, exchange_on_done, OP_KEY_NAME,
       .body_max = KEY_BODY),
    ON("DELETE", "/api-keys/{id}", remove_key, exchange_on_done, OP_KEY_REMOVE),
    ON("GET", "/admin/tenants", list, on_list, OP_TENANTS),
    ON("GET", "/admin/tenants/{tenant}/keys", list, on_list, OP_KEYS),
    ON("POST", "/admin/tenants/{tenant}/keys", set_name, on_new, OP_KEY_NEW,
       .body_max = KEY_BODY),
    ON("PATCH", "/admin/tenants/{tenant}/keys/{id}", set_name, exchange_on_done,
       OP_KEY_NAME, .body_max = KEY_BODY),
    ON("DELETE", "/admin/tenants/{tenant}/keys/{id}", remove_key, exchange_on_done,
       OP_KEY_REMOVE),
    {0},
};
