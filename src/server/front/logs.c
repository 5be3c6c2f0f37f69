/* SPDX-License-Identifier: Apache-2.0 */

/* Logs of sandboxes, in both forms that E2B's command reads. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "server/front/front.h"

enum { LOGS_TEXT_MAX = 16 << 20, SEARCH_MAX = 256, IS_VERSION_2 = 1 << 0 };

static const char *const levels[] = {[LOG_LEVEL_DEBUG] = "debug",
                                     [LOG_LEVEL_INFO] = "info",
                                     [LOG_LEVEL_WARN] = "warn",
                                     [LOG_LEVEL_ERROR] = "error"};
enum { LEVELS = sizeof levels / sizeof *levels };

static const char *parse_version_2(const struct exchange *exchange,
                                   struct request *request)
{
    const char *cursor = exchange_query(exchange, "cursor");
    const char *direction = exchange_query(exchange, "direction");
    const char *level = exchange_query(exchange, "level");
    const char *search = exchange_query(exchange, "search");
    int at = LOG_LEVEL_DEBUG;

    if (direction && strcmp(direction, "backward") == 0) {
        request->flags = LOGS_BACKWARD;
        request->numbers[LOGS_FROM_MS] = INT64_MAX;
    } else if (direction && strcmp(direction, "forward") != 0) {
        return "direction must be forward or backward";
    }
    if (cursor &&
        !front_parse_number(cursor, 0, INT64_MAX, &request->numbers[LOGS_FROM_MS]))
        return "cursor must be milliseconds since 1970";
    while (level && at < LEVELS && strcmp(levels[at], level) != 0)
        at++;
    if (at == LEVELS)
        return "level must be debug, info, warn or error";
    request->numbers[LOGS_LEVEL] = at;
    return search && strlen(search) > SEARCH_MAX ? "search is too long (256 bytes)"
                                                 : NULL;
}

static const char *parse(const struct exchange *exchange, struct request *request)
{
    const char *start = exchange_query(exchange, "start");
    const char *limit = exchange_query(exchange, "limit");

    request->numbers[LOGS_LIMIT] = LOGS_MOST;
    if (limit && !front_parse_number(limit, 0, LOGS_MOST, &request->numbers[LOGS_LIMIT]))
        return "limit must be 0 to 1000";
    if (exchange->handler->flags & IS_VERSION_2)
        return parse_version_2(exchange, request);
    if (start &&
        !front_parse_number(start, 0, INT64_MAX, &request->numbers[LOGS_FROM_MS]))
        return "start must be milliseconds since 1970";
    return NULL;
}

/* Version 1 has the entries twice: the second list is written when the first is
 * complete. */
struct logs {
    struct buf entries;
    struct json json;
};

static void logs_done(struct exchange *exchange)
{
    struct logs *logs = exchange->state;

    if (logs)
        buf_done(&logs->entries);
    free(logs);
    exchange->state = NULL;
}

static void get_logs(struct exchange *exchange)
{
    const char *search = exchange_query(exchange, "search");
    bool is_2 = exchange->handler->flags & IS_VERSION_2;
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct logs *logs = calloc(1, sizeof *logs);
    struct request request;

    exchange->state = logs;
    exchange->state_done = logs_done;
    exchange_init_request(exchange, OP_LOGS, &request);
    const char *wrong = parse(exchange, &request);
    if (wrong || !logs) {
        exchange_refuse(exchange, wrong ? 400 : 503, wrong ? wrong : "out of memory");
        return;
    }
    struct json *json = exchange_json(exchange, LOGS_TEXT_MAX);
    json_put_object(json);
    json_put_key(json, "logs");
    json_put_array(json);
    buf_init(&logs->entries, LOGS_TEXT_MAX);
    json_to_unicode(&logs->json, &logs->entries);
    json_put_array(&logs->json);
    strings_add(&strings, is_2 && search ? search : "");
    request.count = 1;
    exchange_send(exchange, &request, &strings);
}

static void put_entry(struct json *json, int64_t at_ms, const char *level,
                      const char *message, const char *fields)
{
    json_put_object(json);
    connect_put_time(json, "timestamp", at_ms / 1000, at_ms % 1000, 3);
    json_set_text(json, "level", level);
    json_set_text(json, "message", message);
    json_put_key(json, "fields");
    json_put_raw(json, fields);
    json_put_end(json);
}

/* Of version 1: the text of an object with a level. */
static void put_line(struct json *json, int64_t at_ms, const char *level,
                     const char *message, const char *fields)
{
    AUTO_BUF line = {.max = CHANNEL_PACKET};
    struct json inner;

    json_to_unicode(&inner, &line);
    put_entry(&inner, at_ms, level, message, fields);
    json_put_object(json);
    connect_put_time(json, "timestamp", at_ms / 1000, at_ms % 1000, 3);
    json_set_text(json, "line", json_finish(&inner) ? line.data : "{\"level\":\"info\"}");
    json_put_end(json);
}

static void on_logs(struct exchange *exchange, struct reply_packet *reply)
{
    bool is_2 = exchange->handler->flags & IS_VERSION_2;
    struct logs *logs = exchange->state;
    struct json *json = &exchange->json;

    if (reply->head.kind == REPLY_LOG) {
        int64_t at_ms = reply->head.numbers[LOG_AT_MS],
                at = reply->head.numbers[LOG_LEVEL];
        const char *level = levels[at > 0 && at < LEVELS ? at : LOG_LEVEL_INFO];
        const char *message = reply_next(reply, NULL);
        const char *fields = message ? reply_next(reply, message) : NULL;
        if (!fields)
            return;
        put_entry(is_2 ? json : &logs->json, at_ms, level, message, fields);
        if (!is_2)
            put_line(json, at_ms, level, message, fields);
        (void)front_charge_page(exchange);
        return;
    }
    json_put_end(json);
    if (!is_2) {
        json_put_end(&logs->json);
        json_put_key(json, "logEntries");
        json_put_raw(json, json_finish(&logs->json) ? logs->entries.data : "[]");
    }
    exchange_end_json(exchange, 200);
}

#define ON(name, route, ...)                                                             \
    {                                                                                    \
        .method = (name), .path = (route), .act = get_logs, .op = OP_LOGS,               \
        .on_error = exchange_refuse_with, .on_reply = on_logs, __VA_ARGS__               \
    }

const struct handler log_handlers[] = {
    ON("GET", "/sandboxes/{id}/logs", .flags = 0),
    ON("GET", "/v2/sandboxes/{id}/logs", .flags = IS_VERSION_2),
    {0},
};
