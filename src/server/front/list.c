/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/sandboxes.h"
#include "server/wire/filter.h"

enum { LIST_TEXT = 16 << 20, PAGE_MAX = 100 };

static const char envd_version[] = "0.6.13";

void sandbox_set_time(struct json *json, const char *key, int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char text[40], day[24];

    gmtime_r(&seconds, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%03dZ", day, (int)(ms % 1000));
    json_set_text(json, key, text);
}

struct sandbox_text sandbox_read_text(const struct told *told)
{
    struct sandbox_text text;

    text.id = told_next(told, NULL);
    text.template_name = told_next(told, text.id);
    text.token = told_next(told, text.template_name);
    text.traffic = told_next(told, text.token);
    text.domain = told_next(told, text.traffic);
    text.metadata = text.domain;
    return text;
}

void sandbox_put_common(struct json *json, const struct sandbox_text *text)
{
    json_set_text(json, "templateID", text->template_name);
    json_set_text(json, "sandboxID", text->id);
    json_set_text(json, "clientID", "cay");
    json_set_text(json, "envdVersion", envd_version);
}

static void put_metadata(struct json *json, const struct told *told, const char *before)
{
    const char *key = told_next(told, before);

    json_put_key(json, "metadata");
    json_put_object(json);
    while (key) {
        const char *value = told_next(told, key);
        if (!value)
            break;
        json_set_text(json, key, value);
        key = told_next(told, value);
    }
    json_put_end(json);
}

void sandbox_put_listed(struct json *json, const struct told *told,
                        const struct sandbox_text *text)
{
    const int64_t *numbers = told->head.numbers;

    sandbox_put_common(json, text);
    sandbox_set_time(json, "startedAt", numbers[SANDBOX_STARTED_MS]);
    sandbox_set_time(json, "endAt", numbers[SANDBOX_END_MS]);
    json_set_int(json, "cpuCount", numbers[SANDBOX_CPUS]);
    json_set_int(json, "memoryMB", numbers[SANDBOX_MEMORY_MB]);
    json_set_int(json, "diskSizeMB", numbers[SANDBOX_DISK_MB]);
    json_set_text(json, "state",
                  numbers[SANDBOX_STATE] == RECORD_PAUSED ? "paused" : "running");
    put_metadata(json, told, text->metadata);
}

/* --- Lists --- */

struct list {
    struct buf text;
    struct json json;
    char last_id[SANDBOX_ID_MAX];
    int64_t last_ms;
};

static void list_done(struct exchange *exchange)
{
    struct list *list = exchange->state;

    buf_done(&list->text);
    free(list);
}

static const char *parse_list(struct exchange *exchange, struct ask *ask,
                              struct buf *strings)
{
    bool is_plain = exchange->handler->flags & SANDBOX_PLAIN_LIST;
    const char *limit = is_plain ? NULL : exchange_query(exchange, "limit");
    const char *order = exchange_query(exchange, "order");
    const char *wanted = exchange_query(exchange, "template");
    const char *after = exchange_query(exchange, "startedAfter");
    char id[SANDBOX_ID_MAX], name[FILTER_TEMPLATE_MAX];

    ask->flags =
        is_plain ? LIST_RUNNING : filter_states(exchange_query(exchange, "state"));
    if (!ask->flags)
        return "state is running, paused, or both with a comma";
    if (order && strcmp(order, "asc") == 0)
        ask->flags |= LIST_OLDEST_FIRST;
    else if (order && strcmp(order, "desc") != 0)
        return "order is asc or desc";
    ask->numbers[LIST_LIMIT] = PAGE_MAX;
    if (limit && !filter_number(limit, 1, PAGE_MAX, &ask->numbers[LIST_LIMIT]))
        return "limit is 1 to 100";
    if (after && *after && !filter_time(after, &ask->numbers[LIST_STARTED_AFTER_MS]))
        return "startedAfter is a time like 2026-01-31T12:00:00Z";
    if (!filter_page(exchange_query(exchange, "nextToken"), &ask->numbers[LIST_AFTER_MS],
                     id))
        return "nextToken is none of ours";
    strings_add(strings, wanted ? filter_template(wanted, name) : "");
    strings_add(strings, id);
    ask->numbers[LIST_METADATA] =
        filter_metadata(exchange_query(exchange, "metadata"), strings);
    ask->count = 2 + 2 * (uint32_t)ask->numbers[LIST_METADATA];
    return ask->numbers[LIST_METADATA] > 128 ? "there is too much metadata" : NULL;
}

void sandbox_list(struct exchange *exchange)
{
    struct list *state = calloc(1, sizeof *state);
    AUTO_BUF strings = {0};
    struct ask ask;

    if (!state)
        return;
    buf_init(&state->text, LIST_TEXT);
    json_to_unicode(&state->json, &state->text);
    json_put_array(&state->json);
    exchange->state = state;
    exchange->state_done = list_done;
    exchange_begin_ask(exchange, OP_LIST, &ask);
    buf_init(&strings, CHANNEL_PACKET);
    const char *wrong = parse_list(exchange, &ask, &strings);
    if (wrong)
        exchange_refuse(exchange, 400, wrong);
    else
        exchange_ask(exchange, &ask, &strings);
}

/* False if it was refused instead. */
static bool may_grow(struct exchange *exchange, struct list *list)
{
    const char *wrong = list->text.failed
                            ? "the page is too large; ask for less with limit"
                        : !exchange_keep(exchange, list->text.len)
                            ? "too many pages wait to be read; read them first"
                            : NULL;

    if (!wrong)
        return true;
    buf_done(&list->text);
    exchange->kept = 0;
    exchange_refuse(exchange, 429, wrong);
    return false;
}

void sandbox_told_list(struct exchange *exchange, struct told *told)
{
    struct list *state = exchange->state;
    char token[64], total[24];

    if (told->head.kind == TELL_FAILED) {
        exchange_refuse_told(exchange, told);
    } else if (told->head.kind == TELL_SANDBOX) {
        struct sandbox_text text = sandbox_read_text(told);
        json_put_object(&state->json);
        sandbox_put_listed(&state->json, told, &text);
        json_put_end(&state->json);
        if (!may_grow(exchange, state))
            return;
        cay_copy_text(state->last_id, SANDBOX_ID_MAX, text.id);
        state->last_ms = told->head.numbers[SANDBOX_STARTED_MS];
    } else {
        json_put_end(&state->json);
        exchange_reply_json(exchange, 200, &state->text);
        snprintf(token, sizeof token, "%lld-%s", (long long)state->last_ms,
                 state->last_id);
        snprintf(total, sizeof total, "%lld",
                 (long long)told->head.numbers[LISTED_RUNNING]);
        if (exchange->response && told->head.numbers[LISTED_HAS_MORE])
            (void)MHD_add_response_header(exchange->response, "X-Next-Token", token);
        if (exchange->response)
            (void)MHD_add_response_header(exchange->response, "X-Total-Running", total);
    }
}
