/* SPDX-License-Identifier: Apache-2.0 */

/* POST /sandboxes/{id}/fork.  The front reads the row of the sandbox first: its network
 * rules are stored as JSON, which only the front parses. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "server/front/front.h"

enum { FORKS_MAX = 100, FORK_TEXT = 1 << 20 };

struct fork_state {
    int64_t timeout_s, count;
    bool is_sent;
};

static void state_done(struct exchange *exchange)
{
    free(exchange->state);
}

static void fork_sandbox(struct exchange *exchange)
{
    json_t *root = front_take_body(exchange);
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];
    struct fork_state *state = root ? calloc(1, sizeof *state) : NULL;

    if (state) {
        exchange->state = state;
        exchange->state_done = state_done;
        state->timeout_s = field_int(&fields, "timeout", 0, INT32_MAX, -1);
        state->count = field_int(&fields, "count", 1, FORKS_MAX, 1);
        if (fields.wrong)
            exchange_refuse(exchange, 400, fields_error(&fields, message));
        else
            exchange_send_plain(exchange);
    }
    json_decref(root);
}

/* Rules, headers and volumes as a create has them. */
static void send_fork(struct exchange *exchange, const struct reply_packet *reply)
{
    struct fork_state *state = exchange->state;
    const char *shown = front_find_hidden(reply, RECORD_EGRESS);
    bool has_internet = reply->head.numbers[SANDBOX_FLAGS] & CREATE_INTERNET;
    json_t *root = shown ? connect_parse(shown, strlen(shown)) : NULL;
    struct fields fields = {.object = root};
    AUTO_BUF strings = {.max = CHANNEL_STRINGS}, volumes = {.max = CHANNEL_PACKET};
    struct front_egress egress;
    struct request request;

    front_egress_init(&egress);
    if (root)
        (void)front_take_egress(&fields, has_internet, &egress);
    exchange_init_request(exchange, OP_FORK, &request);
    request.numbers[CREATE_TIMEOUT] = state->timeout_s;
    request.numbers[FORK_COUNT] = state->count;
    request.numbers[CREATE_RULES] = egress.count;
    request.numbers[CREATE_HEADERS] = egress.header_count;
    request.numbers[CREATE_VOLUMES] =
        front_add_volumes(front_find_hidden(reply, RECORD_VOLUMES), &volumes);
    request.count = 1 + (uint32_t)(egress.count + egress.header_count +
                                   request.numbers[CREATE_VOLUMES]);
    strings_add(&strings, "");
    (void)buf_append(&strings, egress.rules.data, egress.rules.len);
    (void)buf_append(&strings, egress.headers.data, egress.headers.len);
    (void)buf_append(&strings, volumes.data, volumes.len);
    front_egress_done(&egress);
    json_decref(root);
    state->is_sent = true;
    json_put_array(exchange_json(exchange, FORK_TEXT));
    exchange_close_channel(exchange);
    exchange_send(exchange, &request, &strings);
}

static void put_error(struct json *json, const struct reply_packet *reply)
{
    json_put_key(json, "error");
    json_put_object(json);
    json_set_int(json, "code", reply->head.numbers[REFUSED_STATUS]);
    json_set_text(json, "message", reply_next(reply, NULL));
    json_put_end(json);
}

static void on_reply(struct exchange *exchange, struct reply_packet *reply)
{
    const struct fork_state *state = exchange->state;
    struct json *json = &exchange->json;

    if (!state->is_sent) {
        send_fork(exchange, reply);
        return;
    }
    if (reply->head.kind == REPLY_DONE) {
        exchange_end_json(exchange, 201);
        return;
    }
    json_put_object(json);
    if (reply->head.kind == REPLY_SANDBOX) {
        json_put_key(json, "sandbox");
        front_put_sandbox(json, reply);
        json_put_end(json);
    } else {
        put_error(json, reply);
    }
    json_put_end(json);
}

const struct handler fork_handlers[] = {
    {.method = "POST",
     .path = "/sandboxes/{id}/fork",
     .act = fork_sandbox,
     .op = OP_INFO,
     .on_error = exchange_refuse_with,
     .on_reply = on_reply,
     .body_max = BODY_SMALL},
    {0},
};
