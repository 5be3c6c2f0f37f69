/* SPDX-License-Identifier: Apache-2.0 */
#include "code/execution.h"

#include <jansson.h>
#include <nettle/base64.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/utf8.h"
#include "code/message.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

void code_collector_init(struct code_collector *collector,
                         const struct cay_code_options *options,
                         struct cay_code_execution *execution)
{
    *collector = (struct code_collector){.options = options, .execution = execution};
    collector->limit = options->output_limit ? options->output_limit : CAY_OUTPUT_DEFAULT;
    collector->line_max = CODE_LINE_MAX;
    collector->tree_max = CODE_TREE_MAX;
    buf_init(&collector->streams[0], SIZE_MAX / 2);
    buf_init(&collector->streams[1], SIZE_MAX / 2);
}

void code_collector_done(struct code_collector *collector)
{
    struct cay_code_execution *execution = collector->execution;

    execution->out_len = collector->streams[0].len;
    execution->error_len = collector->streams[1].len;
    collector->failed |= collector->streams[0].failed || collector->streams[1].failed;
    execution->out = buf_take(&collector->streams[0]);
    execution->error = buf_take(&collector->streams[1]);
    collector->failed |= !execution->out || !execution->error;
    buf_done(&collector->streams[0]);
    buf_done(&collector->streams[1]);
    buf_done(&collector->line);
}

/* --- Text --- */

/* The first bytes of valid UTF-8 that fit, without a part of a character. */
static size_t cut(const char *text, size_t len, uint64_t most)
{
    if (len <= most)
        return len;
    len = (size_t)most;
    while (len > 0 && utf8_is_tail(text[len]))
        len--;
    return len;
}

static void give_text(struct code_collector *collector, int stream, const char *text,
                      size_t len, int64_t time_ns)
{
    const struct cay_code_options *options = collector->options;
    uint64_t *used = &collector->used[stream - 1];
    size_t fits = cut(text, len, collector->limit - *used);

    *(stream == 1 ? &collector->execution->out_dropped
                  : &collector->execution->error_dropped) += len - fits;
    if (fits < len) /* later text would stand where some is missing */
        *used = collector->limit;
    else
        *used += fits;
    if (!fits)
        return;
    if (!options->on_text)
        buf_append(&collector->streams[stream - 1], text, fits);
    else if (!collector->stopped)
        collector->stopped =
            options->on_text(options->cookie, stream, text, fits, time_ns) != 0;
}

/* The number of bytes at the end that may begin a character. */
static size_t split_len(const char *text, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char byte = (unsigned char)text[len - back];
        if (utf8_is_tail((char)byte))
            continue;
        size_t whole = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC2 ? 2 : 1;
        return whole > back ? back : 0;
    }
    return 0;
}

/* UTF-8 with U+FFFD for what is not. */
static void decode(struct buf *to, const char *data, size_t len)
{
    if (utf8_is_valid(data, len)) {
        buf_append(to, data, len);
        return;
    }
    for (size_t at = 0; at < len;) {
        uint32_t value;
        size_t size = utf8_next(data + at, len - at, &value);
        if (value == UTF8_INVALID)
            buf_append(to, replacement, 3);
        else
            buf_append(to, data + at, size);
        at += size;
    }
}

void code_collect_bytes(struct code_collector *collector, int stream, const char *data,
                        size_t len, int64_t time_ns)
{
    size_t *held = &collector->split_len[stream - 1];
    AUTO_BUF all, text;

    buf_init(&all, len + sizeof collector->split[0]);
    buf_init(&text, 3 * (len + sizeof collector->split[0]));
    buf_append(&all, collector->split[stream - 1], *held);
    buf_append(&all, data, len);
    if (all.failed || !all.len) {
        collector->failed |= all.failed;
        return;
    }
    *held = split_len(all.data, all.len);
    memcpy(collector->split[stream - 1], all.data + all.len - *held, *held);
    decode(&text, all.data, all.len - *held);
    collector->failed |= text.failed;
    if (!text.failed && text.len)
        give_text(collector, stream, text.data, text.len, time_ns);
}

/* What is left of split characters. */
static void flush_split(struct code_collector *collector)
{
    for (int stream = 1; stream <= 2; stream++) {
        if (collector->split_len[stream - 1])
            give_text(collector, stream, replacement, 3, 0);
        collector->split_len[stream - 1] = 0;
    }
}

/* --- Values --- */

/* A picture or document is sent as base64. */
static bool is_binary(const char *mime)
{
    return (strncmp(mime, "image/", 6) == 0 && strcmp(mime, "image/svg+xml") != 0) ||
           strncmp(mime, "audio/", 6) == 0 || strncmp(mime, "video/", 6) == 0 ||
           strcmp(mime, "application/pdf") == 0;
}

/* NULL if it is not base64, or memory is exhausted. */
static char *decode_base64(const char *text, size_t len, size_t *ret_len)
{
    struct base64_decode_ctx decoder;
    size_t room = BASE64_DECODE_LENGTH(len);
    AUTO_FREE char *bytes = malloc(room + 1);

    base64_decode_init(&decoder);
    if (!bytes || !base64_decode_update(&decoder, &room, (uint8_t *)bytes, len, text) ||
        !base64_decode_final(&decoder))
        return NULL;
    bytes[room] = '\0';
    *ret_len = room;
    return TAKE_PTR(bytes);
}

static void free_value(struct cay_code_value *value)
{
    for (size_t i = 0; i < value->part_count; i++) {
        free((void *)(uintptr_t)value->parts[i].mime);
        free((void *)(uintptr_t)value->parts[i].data);
    }
    free((void *)(uintptr_t)value->parts);
    *value = (struct cay_code_value){0};
}

/* Parsers of other languages allow fewer levels than jansson. */
static bool is_deeper(json_t *data, int levels)
{
    bool is_deep = levels == 0;
    const char *key;
    json_t *item;
    size_t i;

    json_array_foreach(data, i, item) is_deep = is_deep || is_deeper(item, levels - 1);
    json_object_foreach(data, key, item) is_deep = is_deep || is_deeper(item, levels - 1);
    return is_deep;
}

/* False if the data is not what its type says; the part is then left out. */
static bool fill_part(const char *mime, json_t *data, bool keeps_base64,
                      struct cay_code_part *part)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;

    if (strlen(mime) > CODE_TYPE_MAX || is_deeper(data, CODE_DEPTH_MAX))
        return false;
    if (!json_is_string(data)) {
        text = json_dumps(data, JSON_COMPACT | JSON_ENCODE_ANY);
        len = text ? strlen(text) : 0;
    } else if (is_binary(mime) && !keeps_base64) {
        text = decode_base64(json_string_value(data), json_string_length(data), &len);
    } else {
        len = json_string_length(data);
        text = malloc(len + 1);
        if (text)
            memcpy(text, json_string_value(data), len + 1);
    }
    char *name = text ? strdup(mime) : NULL;
    if (!name)
        return false;
    *part = (struct cay_code_part){name, TAKE_PTR(text), len, !json_is_string(data)};
    return true;
}

static bool fill_value(json_t *data, bool keeps_base64, struct cay_code_value *value,
                       size_t *ret_bytes)
{
    size_t most = json_object_size(data);
    struct cay_code_part *parts =
        most <= CODE_TYPES_MAX ? calloc(most + 1, sizeof *parts) : NULL;
    const char *mime;
    json_t *item;

    value->parts = parts;
    if (!parts)
        return false;
    json_object_foreach(data, mime,
                        item) if (fill_part(mime, item, keeps_base64,
                                            &parts[value->part_count])) *ret_bytes +=
        parts[value->part_count++].len;
    return value->part_count > 0;
}

static void take_value(struct code_collector *collector, const json_t *line,
                       int64_t time_ns)
{
    struct cay_code_execution *execution = collector->execution;
    const struct cay_code_options *options = collector->options;
    struct cay_code_value value = {.is_main = json_is_true(json_object_get(line, "main")),
                                   .time_ns = time_ns};
    json_t *data = json_object_get(line, "data");
    size_t bytes = 0;

    bool is_kept = json_is_object(data) &&
                   fill_value(data, collector->keeps_base64, &value, &bytes) &&
                   collector->value_count < CODE_VALUES_MAX &&
                   bytes <= CODE_VALUES_BYTES - collector->value_bytes;
    if (is_kept) {
        collector->value_count++;
        collector->value_bytes += bytes;
    }
    if (is_kept && options->on_value) {
        if (!collector->stopped)
            collector->stopped = options->on_value(options->cookie, &value) != 0;
    } else if (is_kept && array_reserve(&execution->values, &collector->value_room,
                                        execution->value_count + 1, sizeof value)) {
        execution->values[execution->value_count++] = value;
        return;
    } else {
        execution->values_dropped++;
    }
    free_value(&value);
}

void cay_code_execution_done(struct cay_code_execution *execution)
{
    for (size_t i = 0; i < execution->value_count; i++)
        free_value(&execution->values[i]);
    free(execution->values);
    free(execution->out);
    free(execution->error);
    free(execution->error_name);
    free(execution->error_value);
    free(execution->traceback);
    free(execution->restarted);
    *execution = (struct cay_code_execution){0};
}

/* --- Lines of the driver --- */

bool code_set_error(struct cay_code_execution *execution, const char *name,
                    const char *value, const char *traceback)
{
    if (execution->error_name)
        return true;
    execution->error_name = strdup(name);
    execution->error_value = strdup(value);
    execution->traceback = strdup(traceback);
    return execution->error_name && execution->error_value && execution->traceback;
}

/* A string of the line, cut; NUL inside becomes a space.  Must be freed. */
static char *take_text(const json_t *line, const char *key)
{
    const json_t *item = json_object_get(line, key);
    size_t len = json_is_string(item) ? json_string_length(item) : 0;
    const char *text = len ? json_string_value(item) : "";

    len = cut(text, len, CODE_ERROR_MAX);
    char *copy = malloc(len + 1);
    for (size_t i = 0; copy && i < len; i++)
        copy[i] = text[i] ? text[i] : ' ';
    if (copy)
        copy[len] = '\0';
    return copy;
}

static void take_error(struct code_collector *collector, const json_t *line)
{
    AUTO_FREE char *name = take_text(line, "name");
    AUTO_FREE char *value = take_text(line, "value");
    AUTO_FREE char *traceback = take_text(line, "traceback");

    if (!name || !value || !traceback ||
        !code_set_error(collector->execution, *name ? name : "Error", value, traceback))
        collector->failed = true;
}

static void take_count(struct code_collector *collector, uint64_t count)
{
    bool is_first = !collector->execution->count;

    collector->execution->count = count;
    if (is_first && collector->on_count)
        collector->on_count(collector->options->cookie, count);
}

/* About the memory that jansson needs for a line: "{}" alone takes 240 bytes. */
static size_t tree_size(const char *text, size_t len)
{
    static const uint16_t sizes[UINT8_MAX + 1] = {
        [','] = 48, [':'] = 96, ['"'] = 48, ['['] = 128, ['{'] = 256};
    bool in_string = false;
    size_t size = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        if (!in_string)
            size += sizes[(unsigned char)text[i]];
        else if (text[i] == '\\')
            i++;
    }
    return size;
}

static void take_line(struct code_collector *collector, int64_t time_ns)
{
    if (collector->line.len > collector->tree_max / CODE_TREE_RATIO &&
        tree_size(collector->line.data, collector->line.len) > collector->tree_max) {
        collector->execution->values_dropped++;
        return;
    }
    json_t *line = json_loadb(collector->line.data, collector->line.len,
                              JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    const json_t *text = json_object_get(line, "text");
    const json_t *count = json_object_get(line, "count");

    if (!type)
        ; /* not a line of a driver of ours: user code has written to its channel */
    else if ((strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0) &&
             json_is_string(text))
        give_text(collector, type[3] == 'o' ? 1 : 2, json_string_value(text),
                  json_string_length(text), time_ns);
    else if (strcmp(type, "result") == 0)
        take_value(collector, line, time_ns);
    else if (strcmp(type, "error") == 0)
        take_error(collector, line);
    else if (strcmp(type, "count") == 0 && json_integer_value(count) > 0)
        take_count(collector, (uint64_t)json_integer_value(count));
    json_decref(line);
}

void code_collect_lines(struct code_collector *collector, const char *data, size_t len,
                        int64_t time_ns)
{
    while (len > 0) {
        const char *newline = memchr(data, '\n', len);
        size_t part = newline ? (size_t)(newline - data) : len;
        collector->line.max = collector->line_max;
        if (!collector->skips_line &&
            !buf_append(&collector->line, data, part)) { /* too long */
            collector->skips_line = true;
            collector->execution->values_dropped++;
        }
        if (newline) {
            if (!collector->skips_line && collector->line.len)
                take_line(collector, time_ns);
            if (collector->line.failed || collector->line.room > 1 << 20) {
                buf_done(&collector->line);
                buf_init(&collector->line, collector->line_max);
            }
            collector->line.len = 0;
            collector->skips_line = false;
        }
        data += part + (newline != NULL);
        len -= part + (newline != NULL);
    }
}

/* --- Events --- */

bool code_collect_event(struct code_collector *collector, const struct code_event *event,
                        const char *payload)
{
    struct cay_code_execution *execution = collector->execution;
    struct code_started started;

    if (event->kind == CODE_EVENT_OUT || event->kind == CODE_EVENT_ERROR) {
        code_collect_bytes(collector, event->kind == CODE_EVENT_OUT ? 1 : 2, payload,
                           event->len, event->time_ns);
        return true;
    }
    if (event->kind == CODE_EVENT_LINES) {
        code_collect_lines(collector, payload, event->len, event->time_ns);
        return true;
    }
    if (event->kind != CODE_EVENT_STARTED || event->len != sizeof started)
        return false;
    memcpy(&started, payload, sizeof started);
    execution->background_dropped = started.dropped;
    execution->is_warm = started.is_warm;
    collector->loss = started.loss;
    collector->status = started.status;
    return code_take_name(execution->context, started.id) &&
           code_take_name(execution->language, started.language);
}

bool code_is_executed(const struct code_end *end)
{
    return end->reason == CODE_DONE || end->reason == CODE_LOST ||
           end->reason == CODE_REMOVED || end->reason == CODE_EXPIRED;
}

/* Sets the error of an end that the driver has not reported. */
static bool set_end_error(struct cay_code_execution *execution,
                          const struct code_end *end, bool is_memory)
{
    char text[256];

    if (end->reason == CODE_REMOVED)
        return code_set_error(execution, "ContextRemoved", "the context was removed", "");
    if (end->reason == CODE_LOST) {
        code_describe_loss(end->loss, end->status, is_memory, text, sizeof text);
        return code_set_error(execution, "ContextRestarting", text, "");
    }
    if (end->reason == CODE_EXPIRED) /* it has waited all the time */
        return code_set_error(execution, "TimeoutError",
                              "the timeout was over before the code could run", "");
    if (end->timed_out)
        return code_set_error(execution, "TimeoutError",
                              "the code exceeded its timeout and was interrupted", "");
    if (end->interrupted)
        return code_set_error(execution, "KeyboardInterrupt", "the code was interrupted",
                              "");
    return true;
}

void code_collect_end(struct code_collector *collector, const struct code_end *end,
                      bool is_memory)
{
    struct cay_code_execution *execution = collector->execution;
    bool is_timeout = end->timed_out || end->reason == CODE_EXPIRED;
    char text[256];

    flush_split(collector);
    execution->status = is_timeout                 ? CAY_CODE_TIMEOUT
                        : end->interrupted         ? CAY_CODE_INTERRUPTED
                        : end->reason != CODE_DONE ? CAY_CODE_LOST
                        : execution->error_name    ? CAY_CODE_ERROR
                                                   : CAY_CODE_SUCCESS;
    if (collector->loss && collector->loss != CODE_LOSS_RESTARTED) {
        code_describe_loss(collector->loss, collector->status, false, text, sizeof text);
        execution->restarted = strdup(text);
        collector->failed |= !execution->restarted;
    }
    collector->failed |= !set_end_error(execution, end, is_memory);
}
