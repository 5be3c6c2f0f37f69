/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/e2b-sandboxes.h"

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

/* "%41" and "+", in place. */
static void unescape(char *text, bool plus)
{
    char *to = text;

    for (const char *at = text; *at; at++) {
        char digits[3] = {at[1], at[1] ? at[2] : '\0', '\0'};
        if (*at == '%' && isxdigit((unsigned char)digits[0]) &&
            isxdigit((unsigned char)digits[1])) {
            *to++ = (char)strtoul(digits, NULL, 16);
            at += 2;
        } else {
            *to++ = plus && *at == '+' ? ' ' : *at;
        }
    }
    *to = '\0';
}

/* What the query has left of it is a query of its own, each part of which was escaped
 * once more. */
static int64_t add_metadata(const char *query, struct buf *strings)
{
    int64_t count = 0;
    AUTO_FREE char *copy = query ? strdup(query) : NULL;

    for (char *at = copy; at && *at;) {
        size_t len = strcspn(at, "&");
        char *next = at[len] ? at + len + 1 : at + len;
        at[len] = '\0';
        char *value = strchr(at, '=');
        if (value)
            *value++ = '\0';
        char none[1] = "";
        char *const parts[] = {at, value ? value : none};
        for (int i = 0; i < 2; i++) {
            unescape(parts[i], true);
            unescape(parts[i], false);
            strings_add(strings, parts[i]);
        }
        count++;
        at = next;
    }
    return count;
}

/* "running,paused"; 0 if it is something else. */
static uint32_t parse_states(const char *text)
{
    uint32_t states = 0;

    if (!text || !*text)
        return LIST_RUNNING | LIST_PAUSED;
    while (*text) {
        size_t len = strcspn(text, ",");
        if (len == 7 && strncmp(text, "running", 7) == 0)
            states |= LIST_RUNNING;
        else if (len == 6 && strncmp(text, "paused", 6) == 0)
            states |= LIST_PAUSED;
        else
            return 0;
        text += len + (text[len] == ',');
    }
    return states;
}

/* "1699999999999-abc": where the last page ended. */
static bool parse_token(const char *token, struct ask *ask, char id[SANDBOX_ID_MAX])
{
    char *end;

    id[0] = '\0';
    if (!token || !*token)
        return true;
    ask->numbers[LIST_AFTER_MS] = strtoll(token, &end, 10);
    if (end == token || *end != '-' || strlen(end + 1) >= SANDBOX_ID_MAX)
        return false;
    cay_copy_text(id, SANDBOX_ID_MAX, end + 1);
    return true;
}

static const char *parse_list(struct exchange *exchange, struct ask *ask,
                              struct buf *strings)
{
    bool is_plain = exchange->handler->flags & SANDBOX_PLAIN_LIST;
    const char *limit = exchange_query(exchange, "limit");
    const char *order = exchange_query(exchange, "order");
    const char *wanted = exchange_query(exchange, "template");
    char id[SANDBOX_ID_MAX], *end = NULL;

    ask->flags =
        is_plain ? LIST_RUNNING : parse_states(exchange_query(exchange, "state"));
    if (!ask->flags)
        return "state is running, paused, or both with a comma";
    if (order && strcmp(order, "asc") == 0)
        ask->flags |= LIST_OLDEST_FIRST;
    else if (order && strcmp(order, "desc") != 0)
        return "order is asc or desc";
    ask->numbers[LIST_LIMIT] = limit && !is_plain ? strtoll(limit, &end, 10) : PAGE_MAX;
    if (limit && !is_plain &&
        (*end || ask->numbers[LIST_LIMIT] < 1 || ask->numbers[LIST_LIMIT] > PAGE_MAX))
        return "limit is 1 to 100";
    if (!parse_token(exchange_query(exchange, "nextToken"), ask, id))
        return "nextToken is none of ours";
    strings_add(strings, wanted ? wanted : "");
    strings_add(strings, id);
    ask->numbers[LIST_METADATA] =
        add_metadata(exchange_query(exchange, "metadata"), strings);
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
    json_to_buf(&state->json, &state->text);
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

void sandbox_told_list(struct exchange *exchange, struct told *told)
{
    struct list *state = exchange->state;
    char token[64];

    if (told->head.kind == TELL_FAILED) {
        exchange_refuse_told(exchange, told);
    } else if (told->head.kind == TELL_SANDBOX) {
        struct sandbox_text text = sandbox_read_text(told);
        json_put_object(&state->json);
        sandbox_put_listed(&state->json, told, &text);
        json_put_end(&state->json);
        cay_copy_text(state->last_id, SANDBOX_ID_MAX, text.id);
        state->last_ms = told->head.numbers[SANDBOX_STARTED_MS];
    } else {
        json_put_end(&state->json);
        exchange_reply_json(exchange, 200, &state->text);
        snprintf(token, sizeof token, "%lld-%s", (long long)state->last_ms,
                 state->last_id);
        if (exchange->response && told->head.numbers[0])
            (void)MHD_add_response_header(exchange->response, "X-Next-Token", token);
    }
}
