/* SPDX-License-Identifier: Apache-2.0 */

/* /approvals and /approval-rules, which E2B's API does not have, and the approvals of a
 * new sandbox. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "cay/approval.h"
#include "server/front/front.h"
#include "sys/io.h"

enum {
    LIST_TEXT = 16 << 20,
    CONTENT_TEXT = 8 * CAY_PENDING_CONTENT_MAX,
    DECISION_BODY = 64 << 10,
    TIMEOUT_MAX_S = 7 * 24 * 3600,
    SCOPE_MAX = 200
};

/* --- The approvals of a sandbox --- */

/* A line of RECORD_APPROVE. */
static bool is_line(const char *text, size_t max)
{
    return text && *text && strlen(text) <= max && !strchr(text, '\n');
}

static bool has_unknown_key(const json_t *object)
{
    static const char *const known[] = {"commands", "egress", "timeout", "scope"};
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known |= strcmp(known[i], key) == 0;
        if (!is_known)
            return true;
    }
    return false;
}

static bool add_patterns(const json_t *patterns, struct buf *text)
{
    size_t i;
    json_t *pattern;

    if (patterns &&
        (!json_is_array(patterns) || json_array_size(patterns) > CAY_APPROVE_MAX))
        return false;
    json_array_foreach((json_t *)(uintptr_t)patterns, i, pattern)
    {
        const char *word = json_string_value(pattern);
        if (!is_line(word, CAY_APPROVE_BYTES))
            return false;
        buf_format(text, "%s\n", word);
    }
    return true;
}

bool front_take_approvals(struct fields *fields, struct buf *text)
{
    struct fields wanted = field_object(fields, "approvals");
    const json_t *patterns = wanted.object ? field_get(&wanted, "commands") : NULL;
    const char *scope = wanted.object ? field_text(&wanted, "scope") : NULL;
    bool egress = wanted.object && field_bool(&wanted, "egress", false);

    if (!wanted.object)
        return false;
    int64_t timeout = field_int(&wanted, "timeout", 1, TIMEOUT_MAX_S, 0);
    if (has_unknown_key(wanted.object))
        (void)field_reject(fields, "approvals");
    if (scope && !is_line(scope, SCOPE_MAX))
        (void)field_reject(fields, "approvals.scope");
    if (!egress && !json_array_size(patterns)) { /* nothing waits */
        if (patterns && !json_is_array(patterns))
            (void)field_reject(fields, "approvals.commands");
        return false;
    }
    buf_format(text, "%lld\n%s\n", (long long)timeout * 1000, scope ? scope : "");
    if (!add_patterns(patterns, text) || text->failed)
        (void)field_reject(fields, "approvals.commands");
    return egress;
}

/* Up to the end of the line; `at` may be NULL. */
static const char *put_line(struct json *json, const char *at)
{
    size_t len = strcspn(at, "\n");

    json_put_bytes(json, at, len);
    return at[len] ? at + len + 1 : at + len;
}

void front_put_approvals(struct json *json, const char *text, bool egress)
{
    long long timeout = strtoll(text, NULL, 10) / 1000;
    const char *scope = strchr(text, '\n');

    json_put_key(json, "approvals");
    json_put_object(json);
    json_set_bool(json, "egress", egress);
    json_set_int(json, "timeout", timeout ? timeout : CAY_PENDING_TIMEOUT_MS / 1000);
    if (scope) {
        const char *at = scope + 1;
        if (*at != '\n') {
            json_put_key(json, "scope");
            at = put_line(json, at);
        } else {
            at++;
        }
        json_put_key(json, "commands");
        json_put_array(json);
        while (*at)
            at = put_line(json, at);
        json_put_end(json);
    }
    json_put_end(json);
}

/* --- Requests --- */

/* A scope that is a sandbox of the library has its ID for clients, too. */
static void put_scope(struct json *json, const char *scope)
{
    json_set_text(json, "scope", scope);
    if (strncmp(scope, "sb-", strlen("sb-")) == 0 && record_is_id(scope + strlen("sb-")))
        json_set_text(json, "sandboxID", scope + strlen("sb-"));
}

static void put_time(struct json *json, const char *key, int64_t ms)
{
    connect_put_time(json, key, ms / 1000, ms % 1000, 3);
}

static void put_pending(struct json *json, const struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    const char *id = reply_next(reply, NULL), *kind = reply_next(reply, id);
    const char *scope = reply_next(reply, kind), *subject = reply_next(reply, scope);

    json_put_object(json);
    json_set_text(json, "approvalID", id);
    json_set_text(json, "kind", kind);
    put_scope(json, scope);
    json_set_text(json, "subject", subject);
    json_set_text(json, "summary", reply_next(reply, subject));
    put_time(json, "createdAt", numbers[APPROVAL_CREATED_MS]);
    put_time(json, "expiresAt", numbers[APPROVAL_EXPIRES_MS]);
    json_set_int(json, "contentBytes", numbers[APPROVAL_BYTES]);
    json_set_bool(json, "decided", numbers[APPROVAL_IS_DECIDED]);
}

static void put_rule(struct json *json, const struct reply_packet *reply)
{
    const char *id = reply_next(reply, NULL), *kind = reply_next(reply, id);
    const char *scope = reply_next(reply, kind);

    json_put_object(json);
    json_set_text(json, "ruleID", id);
    json_set_text(json, "verdict", reply->head.numbers[RULE_ALLOWS] ? "allow" : "deny");
    json_set_text(json, "kind", kind);
    put_scope(json, scope);
    json_set_text(json, "subject", reply_next(reply, scope));
    json_put_end(json);
}

static void send_with(struct exchange *exchange, const struct buf *strings,
                      uint32_t count)
{
    struct request request;

    exchange_init_request(exchange, exchange->handler->op, &request);
    request.count = count;
    exchange_send(exchange, &request, strings);
}

static void list(struct exchange *exchange)
{
    json_put_array(exchange_json(exchange, LIST_TEXT));
    send_with(exchange, NO_STRINGS, 0);
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_APPROVAL && reply->head.count == 5) {
        put_pending(&exchange->json, reply);
        json_put_end(&exchange->json);
        (void)front_charge_page(exchange);
    } else if (reply->head.kind == REPLY_RULE && reply->head.count == 4) {
        put_rule(&exchange->json, reply);
        (void)front_charge_page(exchange);
    } else {
        exchange_end_json(exchange, 200);
    }
}

static void send_id(struct exchange *exchange)
{
    AUTO_BUF strings = {.max = PART_MAX + 1};

    strings_add(&strings, exchange->route.part);
    send_with(exchange, &strings, 1);
}

static void on_one(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = exchange_json(exchange, CONTENT_TEXT);
    int64_t size = reply->head.numbers[APPROVAL_BYTES];
    AUTO_BUF content = {.max = CAY_PENDING_CONTENT_MAX};

    if (reply->head.kind != REPLY_APPROVAL || reply->head.count != 5 || reply->fd < 0 ||
        size < 0 || size > CAY_PENDING_CONTENT_MAX) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    ssize_t got = buf_reserve(&content, (size_t)size)
                      ? io_pread(reply->fd, content.data, (size_t)size, 0)
                      : -1;
    if (got != size) {
        exchange_refuse(exchange, 500, "the content of the request cannot be read");
        return;
    }
    put_pending(json, reply);
    json_put_key(json, "content");
    json_put_bytes(json, size ? content.data : "", (size_t)size);
    json_put_end(json);
    if (front_charge_page(exchange))
        exchange_end_json(exchange, 200);
}

static void decide(struct exchange *exchange)
{
    json_t *root = exchange->body.len ? connect_body(exchange, false) : NULL;
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];
    const char *verdict = root ? field_text(&fields, "verdict") : NULL;
    const char *note = root ? field_text(&fields, "note") : NULL;
    AUTO_BUF strings = {.max = CHANNEL_PACKET};

    if (root &&
        (!verdict || (strcmp(verdict, "allow") != 0 && strcmp(verdict, "deny") != 0 &&
                      strcmp(verdict, "remember") != 0)))
        (void)field_reject(&fields, "verdict");
    if (note && strlen(note) >= CAY_NOTE_MAX)
        (void)field_reject(&fields, "note");
    if (!root)
        exchange_refuse(exchange, 400, "the body is not a JSON object");
    else if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else {
        strings_add(&strings, exchange->route.part);
        strings_add(&strings, verdict);
        strings_add(&strings, note ? note : "");
        send_with(exchange, &strings, 3);
    }
    json_decref(root);
}

#define ON(name, route, action, replied, operation, ...)                                 \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action), .op = (operation),           \
        .on_error = exchange_refuse_with, .on_reply = (replied), __VA_ARGS__             \
    }

const struct handler approval_handlers[] = {
    ON("GET", "/approvals", list, on_list, OP_APPROVALS, .is_read = true),
    ON("GET", "/approvals/{id}", send_id, on_one, OP_APPROVAL, .is_read = true),
    ON("POST", "/approvals/{id}", decide, exchange_on_done, OP_APPROVAL_DECIDE,
       .body_max = DECISION_BODY),
    ON("GET", "/approval-rules", list, on_list, OP_APPROVAL_RULES, .is_read = true),
    ON("DELETE", "/approval-rules/{id}", send_id, exchange_on_done,
       OP_APPROVAL_RULE_REMOVE, .is_read = false),
    {0},
};
