/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/lines.h"

#include <string.h>

#include "code/execution.h"
#include "server/front/front.h"

enum { KEEPALIVE_MS = 5000 /* of silence */, HELD_MAX = 256 << 10 };

void lines_init(struct lines *lines, struct exchange *exchange)
{
    *lines = (struct lines){.exchange = exchange};
    buf_init(&lines->held, LINES_OUT_MAX);
}

void lines_free(struct lines *lines)
{
    buf_done(&lines->held);
}

static void put_keepalive(struct exchange *exchange)
{
    buf_text(&exchange->out, "{\"type\":\"keepalive\"}\n");
}

void lines_begin(struct lines *lines)
{
    struct exchange *exchange = lines->exchange;

    exchange_stream(exchange, "application/x-ndjson", KEEPALIVE_MS, put_keepalive);
    exchange->out.max = LINES_OUT_MAX;
}

static struct json open_line(struct lines *lines, const char *type)
{
    struct exchange *exchange = lines->exchange;
    struct json json;

    exchange->heard_ms = uv_now(&exchange->front->loop);
    json_to_ascii(&json, lines->is_counted ? &exchange->out : &lines->held);
    json_put_object(&json);
    json_set_text(&json, "type", type);
    return json;
}

/* The number of executions is known, or does not come. */
static void release_held(struct lines *lines)
{
    lines->is_counted = true;
    buf_append(&lines->exchange->out, lines->held.data, lines->held.len);
    buf_done(&lines->held);
}

static void close_line(struct lines *lines, struct json *json)
{
    json_put_end(json);
    buf_append(json->buf, "\n", 1);
    if (!lines->is_counted && lines->held.len > HELD_MAX)
        release_held(lines);
}

void lines_put_error(struct lines *lines, const char *name, const char *value,
                     const char *traceback)
{
    struct json json = open_line(lines, "error");

    json_set_text(&json, "name", name);
    json_set_text(&json, "value", value);
    json_set_text(&json, "traceback", traceback);
    close_line(lines, &json);
}

void lines_end(struct lines *lines)
{
    if (!lines->is_counted)
        release_held(lines);
    struct json json = open_line(lines, "end_of_execution");
    close_line(lines, &json);
    exchange_end(lines->exchange, false);
}

int lines_put_text(void *cookie, int stream, const char *text, size_t len,
                   int64_t time_ns)
{
    struct lines *lines = cookie;
    struct json json = open_line(lines, stream == 1 ? "stdout" : "stderr");

    json_put_key(&json, "text");
    json_put_bytes(&json, text, len);
    json_set_int(&json, "timestamp", time_ns);
    close_line(lines, &json);
    return 0;
}

void lines_put_count(void *cookie, uint64_t count)
{
    struct lines *lines = cookie;
    bool is_first = !lines->is_counted;

    lines->is_counted = true;
    struct json json = open_line(lines, "number_of_executions");
    json_set_uint(&json, "execution_count", count);
    close_line(lines, &json);
    if (is_first)
        release_held(lines);
}

/* The key of a result, or NULL: the part is in "extra", by its type. */
static const char *result_key(const char *mime)
{
    static const struct {
        const char *mime, *key;
    } keys[] = {
        {"text/plain", "text"},        {"text/html", "html"},
        {"text/markdown", "markdown"}, {"image/svg+xml", "svg"},
        {"image/png", "png"},          {"image/jpeg", "jpeg"},
        {"application/pdf", "pdf"},    {"text/latex", "latex"},
        {"application/json", "json"},  {"application/javascript", "javascript"},
        {"e2b/data", "data"},          {"e2b/chart", "chart"},
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(mime, keys[i].mime) == 0)
            return keys[i].key;
    return NULL;
}

static void put_part(struct json *json, const char *key, const struct cay_code_part *part)
{
    const char *data = part->data;
    size_t len = part->len;
    bool is_quoted = strcmp(key, "text") == 0 && len >= 2 && data[0] == data[len - 1] &&
                     (data[0] == '\'' || data[0] == '"');

    json_put_key(json, key);
    if (part->is_json)
        json_put_raw(json, data);
    else
        json_put_bytes(json, data + is_quoted, len - 2 * (size_t)is_quoted);
}

int lines_put_value(void *cookie, const struct cay_code_value *value)
{
    struct lines *lines = cookie;
    struct json json = open_line(lines, "result");

    for (size_t i = 0; i < value->part_count; i++)
        if (result_key(value->parts[i].mime))
            put_part(&json, result_key(value->parts[i].mime), &value->parts[i]);
    json_put_key(&json, "extra");
    json_put_object(&json);
    for (size_t i = 0; i < value->part_count; i++)
        if (!result_key(value->parts[i].mime))
            put_part(&json, value->parts[i].mime, &value->parts[i]);
    json_put_end(&json);
    json_set_bool(&json, "is_main_result", value->is_main);
    close_line(lines, &json);
    return 0;
}
