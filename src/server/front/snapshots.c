/* SPDX-License-Identifier: Apache-2.0 */

/* Snapshots of E2B's API.  They have files only; those of E2B have memory as well. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"

enum { SNAPSHOTS_TEXT = 1 << 20, PAGE_MAX = 100 };

/* The last snapshot of a page. */
struct page_end {
    char id[SANDBOX_ID_MAX];
    int64_t created_ms;
};

static void page_done(struct exchange *exchange)
{
    free(exchange->state);
}

static void send_name(struct exchange *exchange, const char *name)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    strings_add(&strings, name);
    exchange_init_request(exchange, exchange->handler->op, &request);
    request.count = 1;
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
    if (name && !*name)
        (void)field_reject(&fields, "name");
    if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else
        send_name(exchange, name ? name : "");
    json_decref(root);
}

static const char *parse_list(struct exchange *exchange, struct request *request,
                              struct buf *strings)
{
    const char *limit = exchange_query(exchange, "limit");
    const char *sandbox = exchange_query(exchange, "sandboxID");
    const char *name = exchange_query(exchange, "name");
    char id[SANDBOX_ID_MAX];

    request->numbers[LIST_LIMIT] = PAGE_MAX;
    if (limit && !front_parse_number(limit, 1, PAGE_MAX, &request->numbers[LIST_LIMIT]))
        return "limit must be 1 to 100";
    if (!front_parse_page(exchange_query(exchange, "nextToken"),
                          &request->numbers[LIST_AFTER_MS], id))
        return "invalid nextToken";
    strings_add(strings, sandbox ? sandbox : "");
    strings_add(strings, name ? name : "");
    strings_add(strings, id);
    request->count = 3;
    return NULL;
}

static void list(struct exchange *exchange)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    exchange->state = calloc(1, sizeof(struct page_end));
    exchange->state_done = page_done;
    if (!exchange->state)
        return;
    json_put_array(exchange_json(exchange, SNAPSHOTS_TEXT));
    exchange_init_request(exchange, OP_SNAPSHOTS, &request);
    const char *wrong = parse_list(exchange, &request, &strings);
    if (wrong)
        exchange_refuse(exchange, 400, wrong);
    else
        exchange_send(exchange, &request, &strings);
}

/* Begins the object; returns the id of the row. */
static const char *put_snapshot(struct json *json, const struct reply_packet *reply)
{
    const char *id = reply_next(reply, NULL), *name = reply_next(reply, id);

    json_put_object(json);
    json_set_text(json, "snapshotID", id);
    json_put_key(json, "names");
    json_put_array(json);
    if (*name)
        json_put_text(json, name);
    json_put_end(json);
    return reply_next(reply, name);
}

static void on_created(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind != REPLY_SNAPSHOT) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    (void)put_snapshot(exchange_json(exchange, BODY_SMALL), reply);
    exchange_end_json(exchange, 201);
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    struct page_end *end = exchange->state;
    char token[64];

    if (reply->head.kind == REPLY_SNAPSHOT) {
        const char *id = put_snapshot(&exchange->json, reply);
        json_put_end(&exchange->json);
        cay_copy_text(end->id, sizeof end->id, id);
        end->created_ms = reply->head.numbers[SNAPSHOT_CREATED_MS];
        (void)front_charge_page(exchange);
        return;
    }
    exchange_end_json(exchange, 200);
    snprintf(token, sizeof token, "%lld-%s", (long long)end->created_ms, end->id);
    if (exchange->response && reply->head.numbers[LISTED_HAS_MORE])
        (void)MHD_add_response_header(exchange->response, "X-Next-Token", token);
}

#define ON(name, route, action, replied, ...)                                            \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action),                              \
        .on_error = exchange_refuse_with, .on_reply = (replied), __VA_ARGS__             \
    }

const struct handler snapshot_handlers[] = {
    ON("POST", "/sandboxes/{id}/snapshots", create, on_created, .op = OP_SNAPSHOT,
       .body_max = BODY_SMALL),
    ON("GET", "/snapshots", list, on_list, .op = OP_SNAPSHOTS),
    {0},
};
