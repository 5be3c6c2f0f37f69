/* SPDX-License-Identifier: Apache-2.0 */

/* /templates of E2B's API: builds, their files and logs, tags and lists. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"
#include "sys/io.h"

enum {
    SMALL = 64 << 10,
    LIST_TEXT = 16 << 20,
    PAGE_MAX = 100,
    LOG_MAX = 8 << 20,
    LOG_PAGE = 100,
    STEPS_MAX = 1000
};

/* Flags of handlers. */
enum template_flag { TEMPLATE_PLAIN_LIST = 1 << 0, TEMPLATE_LOGS = 1 << 1 };

static const char *const states[] = {[BUILD_WAITING] = "waiting",
                                     [BUILD_BUILDING] = "building",
                                     [BUILD_READY] = "ready",
                                     [BUILD_ERROR] = "error"};

/* The strings of REPLY_BUILD. */
struct build_text {
    const char *template_id, *build, *name, *step, *reason;
    const char *tags; /* the first, or NULL */
};

static struct build_text read_text(const struct reply_packet *reply)
{
    struct build_text text;

    text.template_id = reply_next(reply, NULL);
    text.build = reply_next(reply, text.template_id);
    text.name = reply_next(reply, text.build);
    text.step = reply_next(reply, text.name);
    text.reason = reply_next(reply, text.step);
    text.tags = reply_next(reply, text.reason);
    return text;
}

static const char *state_of(const struct reply_packet *reply)
{
    int64_t state = reply->head.numbers[BUILD_STATE];

    return state >= BUILD_WAITING && state <= BUILD_ERROR ? states[state] : "error";
}

static void put_time(struct json *json, const char *key, int64_t ms)
{
    if (ms)
        connect_put_time(json, key, ms / 1000, ms % 1000, 3);
    else {
        json_put_key(json, key);
        json_put_null(json);
    }
}

static void put_list(struct json *json, const char *key, const char *text)
{
    json_put_key(json, key);
    json_put_array(json);
    json_put_text(json, text);
    json_put_end(json);
}

static void put_names(struct json *json, const struct build_text *text)
{
    json_set_text(json, "templateID", text->template_id);
    json_set_bool(json, "public", false);
    put_list(json, "names", text->name);
    put_list(json, "aliases", text->name);
}

static void put_tags(struct json *json, const struct reply_packet *reply,
                     const struct build_text *text)
{
    json_put_key(json, "tags");
    json_put_array(json);
    for (const char *tag = text->tags; tag; tag = reply_next(reply, tag))
        json_put_text(json, tag);
    json_put_end(json);
}

/* --- Requests --- */

static void send_strings(struct exchange *exchange, const char *first, const char *second)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    strings_add(&strings, first);
    if (second)
        strings_add(&strings, second);
    exchange_init_request(exchange, exchange->handler->op, &request);
    request.count = second ? 2 : 1;
    exchange_send(exchange, &request, &strings);
}

/* {id} of the path. */
static void send_part(struct exchange *exchange)
{
    send_strings(exchange, exchange->route.part, NULL);
}

/* {id} and the last name of the path. */
static void send_parts(struct exchange *exchange)
{
    char id[PART_MAX];

    if (route_first(exchange->handler->path, exchange->target, id))
        send_strings(exchange, id, exchange->route.part);
    else
        exchange_refuse(exchange, 404, "not found");
}

/* The body as an object; NULL if the request was refused. */
static json_t *take_body(struct exchange *exchange)
{
    json_t *root = exchange->body.len ? connect_body(exchange, false) : NULL;

    if (!root)
        exchange_refuse(exchange, 400, "the body is not a JSON object");
    return root;
}

/* Sends the strings unless a field was invalid. */
static void send_fields(struct exchange *exchange, struct request *request,
                        const struct fields *fields, const struct buf *strings)
{
    char message[FIELDS_ERROR_MAX];

    if (fields->wrong)
        exchange_refuse(exchange, 400, fields_error(fields, message));
    else if (strings->failed)
        exchange_refuse(exchange, 413, "the request is too large");
    else
        exchange_send(exchange, request, strings);
}

static bool is_text(const char *text)
{
    return text && *text;
}

/* A name, and an array of tags. */
static void send_tags(struct exchange *exchange, const char *field, bool needs_tags)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;
    json_t *root = take_body(exchange);
    struct fields fields = {.object = root};

    if (!root)
        return;
    exchange_init_request(exchange, exchange->handler->op, &request);
    const char *name = field_text(&fields, field);
    if (!is_text(name))
        name = field_text(&fields, "alias"); /* of older clients */
    if (!is_text(name))
        (void)field_reject(&fields, field);
    strings_add(&strings, name ? name : "");
    int64_t tags = field_add_array(&fields, "tags", &strings);
    if (needs_tags && tags == 0)
        (void)field_reject(&fields, "tags");
    request.count = 1 + (uint32_t)tags;
    if (!needs_tags) {
        request.numbers[TEMPLATE_CPUS] = field_int(&fields, "cpuCount", 1, 1024, 2);
        request.numbers[TEMPLATE_MEMORY_MB] =
            field_int(&fields, "memoryMB", 128, 1 << 20, 1024);
    }
    if (tags > 255)
        (void)field_reject(&fields, "tags");
    send_fields(exchange, &request, &fields, &strings);
    json_decref(root);
}

static void request_build(struct exchange *exchange)
{
    send_tags(exchange, "name", false);
}

static void on_requested(struct exchange *exchange, struct reply_packet *reply)
{
    struct build_text text = read_text(reply);
    struct json *json = exchange_json(exchange, SMALL);

    json_put_object(json);
    put_names(json, &text);
    json_set_text(json, "buildID", text.build);
    put_tags(json, reply, &text);
    exchange_end_json(exchange, 202);
}

/* --- A build --- */

static void add_step(struct fields *steps, json_t *object, struct buf *strings,
                     uint32_t *count)
{
    struct fields fields = {.object = object, .top = steps};
    AUTO_BUF args = {.max = CHANNEL_STRINGS};
    const char *type = field_text(&fields, "type"),
               *hash = field_text(&fields, "filesHash");
    bool is_forced = field_bool(&fields, "force", false);
    int64_t arg_count = field_add_array(&fields, "args", &args);
    char number[24];

    if (!is_text(type))
        (void)field_reject(&fields, "type");
    snprintf(number, sizeof number, "%lld", (long long)arg_count);
    strings_add(strings, type ? type : "");
    strings_add(strings, is_forced ? "1" : "0");
    strings_add(strings, hash ? hash : "");
    strings_add(strings, number);
    (void)buf_append(strings, args.data, args.len);
    strings->failed |= args.failed;
    *count += 4 + (uint32_t)arg_count;
}

static void add_steps(struct fields *fields, struct buf *strings, uint32_t *count)
{
    json_t *steps = field_get(fields, "steps"), *step;
    size_t i;

    if (steps && (!json_is_array(steps) || json_array_size(steps) > STEPS_MAX)) {
        (void)field_reject(fields, "steps");
        return;
    }
    json_array_foreach(steps, i, step)
    {
        if (!json_is_object(step))
            (void)field_reject(fields, "steps");
        else
            add_step(fields, step, strings, count);
    }
}

static void start_build(struct exchange *exchange)
{
    char id[PART_MAX];
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};
    struct request request;
    json_t *root = take_body(exchange);
    struct fields fields = {.object = root};

    if (!root)
        return;
    exchange_init_request(exchange, OP_BUILD, &request);
    const char *image = field_text(&fields, "fromImage"),
               *template = field_text(&fields, "fromTemplate");
    const char *start = field_text(&fields, "startCmd"),
               *ready = field_text(&fields, "readyCmd");
    bool is_known = route_first(exchange->handler->path, exchange->target, id);
    strings_add(&strings, is_known ? id : "");
    strings_add(&strings, exchange->route.part);
    strings_add(&strings, is_text(template) ? template : image ? image : "");
    strings_add(&strings, start ? start : "");
    strings_add(&strings, ready ? ready : "");
    request.count = BUILD_STEPS;
    add_steps(&fields, &strings, &request.count);
    request.flags = (field_bool(&fields, "force", false) ? BUILD_FORCED : 0) |
                    (is_text(template) ? BUILD_FROM_TEMPLATE : 0);
    if (field_get(&fields, "fromImageRegistry"))
        exchange_refuse(exchange, 501,
                        "private registries: not supported by this server");
    else if (is_text(image) == is_text(template))
        exchange_refuse(exchange, 400, "give either fromImage or fromTemplate");
    else
        send_fields(exchange, &request, &fields, &strings);
    json_decref(root);
}

static void on_started(struct exchange *exchange, struct reply_packet *reply)
{
    (void)reply;
    exchange_respond_empty(exchange, 202);
}

/* --- The log --- */

static const char *const levels[] = {"debug", "info", "warn", "error"};

static int level_of(const char *text, size_t len)
{
    for (int i = 0; i < 4; i++)
        if (strlen(levels[i]) == len && strncmp(levels[i], text, len) == 0)
            return i;
    return -1;
}

/* An entry of a build's log: the line without its end. */
struct log_entry {
    int64_t at_ms;
    int level;
    const char *step, *text;
    size_t step_len, len;
};

static bool parse_entry(const char *line, size_t len, struct log_entry *entry)
{
    const char *fields[4] = {line};

    for (int i = 1; i < 4; i++) {
        const char *tab =
            memchr(fields[i - 1], '\t', len - (size_t)(fields[i - 1] - line));
        if (!tab)
            return false;
        fields[i] = tab + 1;
    }
    entry->at_ms = strtoll(line, NULL, 10);
    entry->level = level_of(fields[1], (size_t)(fields[2] - fields[1]) - 1);
    entry->step = fields[2];
    entry->step_len = (size_t)(fields[3] - fields[2]) - 1;
    entry->text = fields[3];
    entry->len = len - (size_t)(fields[3] - line);
    return entry->level >= 0;
}

struct log_query {
    int64_t offset, limit, cursor_ms;
    int level;
    bool is_backward;
};

static void put_entry(struct json *json, const struct log_entry *entry)
{
    json_put_object(json);
    put_time(json, "timestamp", entry->at_ms);
    json_set_text(json, "level", levels[entry->level]);
    json_put_key(json, "message");
    json_put_bytes(json, entry->text, entry->len);
    if (entry->step_len && *entry->step != '0') {
        json_put_key(json, "step");
        json_put_bytes(json, entry->step, entry->step_len);
    }
    json_put_end(json);
}

static bool is_wanted(const struct log_entry *entry, const struct log_query *query)
{
    if (entry->level < query->level)
        return false;
    if (!query->cursor_ms)
        return true;
    return query->is_backward ? entry->at_ms < query->cursor_ms
                              : entry->at_ms >= query->cursor_ms;
}

/* The lines of the log that are wanted, up to the limit; `plain`: only the messages. */
static void put_log(struct json *json, const char *key, const struct buf *log,
                    const struct log_query *query, bool plain)
{
    const char *at = log->data, *end = at ? at + log->len : NULL;
    int64_t number = 0, left = query->limit;
    struct log_entry entry;

    json_put_key(json, key);
    json_put_array(json);
    while (at && at < end && left > 0) {
        const char *line = query->is_backward
                               ? memrchr(log->data, '\n', (size_t)(end - log->data) - 1)
                               : memchr(at, '\n', (size_t)(end - at));
        const char *from = query->is_backward ? (line ? line + 1 : log->data) : at;
        const char *to = query->is_backward ? end - 1 : line;
        if (!to)
            break; /* it is being written */
        if (query->is_backward)
            end = from;
        else
            at = line + 1;
        if (!parse_entry(from, (size_t)(to - from), &entry) ||
            !is_wanted(&entry, query) || number++ < query->offset)
            continue;
        left--;
        if (plain)
            json_put_bytes(json, entry.text, entry.len);
        else
            put_entry(json, &entry);
    }
    json_put_end(json);
}

/* fstat(2) takes a name for the C library, so it is not allowed here. */
static void read_log(int fd, struct buf *log)
{
    enum { PIECE = 64 << 10 };
    ssize_t len = fd < 0 ? 0 : 1;

    while (len > 0 && buf_reserve(log, PIECE)) {
        len = io_pread(fd, log->data + log->len, PIECE, log->len);
        log->len += len > 0 ? (size_t)len : 0;
    }
    while (log->len && log->data[log->len - 1] != '\n')
        log->len--;
}

static const char *take_query(const struct exchange *exchange, struct log_query *query)
{
    bool is_logs = exchange->handler->flags & TEMPLATE_LOGS;
    const char *offset = is_logs ? NULL : exchange_query(exchange, "logsOffset");
    const char *limit = exchange_query(exchange, "limit");
    const char *cursor = is_logs ? exchange_query(exchange, "cursor") : NULL;
    const char *level = exchange_query(exchange, "level");
    const char *direction = is_logs ? exchange_query(exchange, "direction") : NULL;

    *query = (struct log_query){.limit = LOG_PAGE};
    if ((offset && !front_parse_number(offset, 0, INT32_MAX, &query->offset)) ||
        (limit && !front_parse_number(limit, 0, LOG_PAGE, &query->limit)) ||
        (cursor && !front_parse_number(cursor, 0, INT64_MAX, &query->cursor_ms)))
        return "invalid logsOffset, limit (at most 100) or cursor";
    query->level = level ? level_of(level, strlen(level)) : 0;
    query->is_backward = direction && strcmp(direction, "backward") == 0;
    if (query->level < 0)
        return "level must be debug, info, warn or error";
    return direction && !query->is_backward && strcmp(direction, "forward") != 0
               ? "direction must be forward or backward"
               : NULL;
}

static void get_status(struct exchange *exchange)
{
    struct log_query query;
    const char *wrong = take_query(exchange, &query);

    if (wrong)
        exchange_refuse(exchange, 400, wrong);
    else
        send_parts(exchange);
}

static void on_status(struct exchange *exchange, struct reply_packet *reply)
{
    struct build_text text = read_text(reply);
    struct log_query query;
    AUTO_BUF log = {.max = LOG_MAX + 1};
    struct json *json = exchange_json(exchange, LIST_TEXT);

    (void)take_query(exchange, &query);
    read_log(reply->fd, &log);
    json_put_object(json);
    if (exchange->handler->flags & TEMPLATE_LOGS) {
        put_log(json, "logs", &log, &query, false);
        exchange_end_json(exchange, 200);
        return;
    }
    json_set_text(json, "templateID", text.template_id);
    json_set_text(json, "buildID", text.build);
    json_set_text(json, "status", state_of(reply));
    put_log(json, "logs", &log, &query, true);
    put_log(json, "logEntries", &log, &query, false);
    if (reply->head.numbers[BUILD_STATE] == BUILD_ERROR) {
        json_put_key(json, "reason");
        json_put_object(json);
        json_set_text(json, "message", text.reason);
        json_set_text(json, "step", text.step);
        json_put_end(json);
    }
    exchange_end_json(exchange, 200);
}

/* --- Lists --- */

static void put_template(struct json *json, const struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    struct build_text text = read_text(reply);

    json_put_object(json);
    put_names(json, &text);
    json_set_text(json, "buildID", text.build);
    json_set_int(json, "cpuCount", numbers[BUILD_CPUS]);
    json_set_int(json, "memoryMB", numbers[BUILD_MEMORY_MB]);
    json_set_int(json, "diskSizeMB", 0);
    put_time(json, "createdAt", numbers[BUILD_TEMPLATE_CREATED_MS]);
    put_time(json, "updatedAt", numbers[BUILD_TEMPLATE_UPDATED_MS]);
    json_put_key(json, "createdBy");
    json_put_null(json);
    put_time(json, "lastSpawnedAt", numbers[BUILD_SPAWNED_MS]);
    json_set_int(json, "spawnCount", numbers[BUILD_SPAWNS]);
    json_set_int(json, "buildCount", numbers[BUILD_COUNT]);
    json_set_text(json, "envdVersion", FRONT_ENVD_VERSION);
    json_set_text(json, "buildStatus", state_of(reply));
    json_put_end(json);
}

static void list(struct exchange *exchange)
{
    bool is_plain = exchange->handler->flags & TEMPLATE_PLAIN_LIST;
    const char *limit = is_plain ? NULL : exchange_query(exchange, "limit");
    const char *after = is_plain ? NULL : exchange_query(exchange, "nextToken");
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    exchange_init_request(exchange, OP_TEMPLATES, &request);
    request.count = 1;
    request.numbers[LIST_LIMIT] = is_plain ? 1000 : PAGE_MAX;
    strings_add(&strings, after ? after : "");
    json_put_array(exchange_json(exchange, LIST_TEXT));
    if (limit && !front_parse_number(limit, 1, PAGE_MAX, &request.numbers[LIST_LIMIT]))
        exchange_refuse(exchange, 400, "limit must be a number from 1 to 100");
    else
        exchange_send(exchange, &request, &strings);
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    char *last = exchange->state;

    if (reply->head.kind == REPLY_BUILD) {
        const char *id = reply_next(reply, NULL);
        put_template(&exchange->json, reply);
        free(last);
        exchange->state = strdup(id ? id : "");
        exchange->state_done = exchange_free_state;
        return;
    }
    exchange_end_json(exchange, 200);
    if (reply->head.numbers[LISTED_HAS_MORE] && last && exchange->response)
        (void)MHD_add_response_header(exchange->response, "X-Next-Token", last);
}

static void get_template(struct exchange *exchange)
{
    json_put_object(exchange_json(exchange, LIST_TEXT));
    send_part(exchange);
}

static void on_builds(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = &exchange->json;
    const int64_t *numbers = reply->head.numbers;
    struct build_text text = read_text(reply);

    if (reply->head.kind != REPLY_BUILD) {
        json_put_end(json);
        exchange_end_json(exchange, 200);
        return;
    }
    if (!exchange->state) { /* the first */
        put_names(json, &text);
        put_time(json, "createdAt", numbers[BUILD_TEMPLATE_CREATED_MS]);
        put_time(json, "updatedAt", numbers[BUILD_TEMPLATE_UPDATED_MS]);
        put_time(json, "lastSpawnedAt", numbers[BUILD_SPAWNED_MS]);
        json_set_int(json, "spawnCount", numbers[BUILD_SPAWNS]);
        json_put_key(json, "builds");
        json_put_array(json);
        exchange->state = strdup(text.build);
        exchange->state_done = exchange_free_state;
    }
    json_put_object(json);
    json_set_text(json, "buildID", text.build);
    json_set_text(json, "status", state_of(reply));
    put_time(json, "createdAt", numbers[BUILD_CREATED_MS]);
    put_time(json, "updatedAt", numbers[BUILD_UPDATED_MS]);
    if (numbers[BUILD_FINISHED_MS])
        put_time(json, "finishedAt", numbers[BUILD_FINISHED_MS]);
    json_set_int(json, "cpuCount", numbers[BUILD_CPUS]);
    json_set_int(json, "memoryMB", numbers[BUILD_MEMORY_MB]);
    json_set_text(json, "envdVersion", FRONT_ENVD_VERSION);
    json_put_end(json);
}

static void on_alias(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = exchange_json(exchange, SMALL);

    json_put_object(json);
    json_set_text(json, "templateID", reply_next(reply, NULL));
    json_set_bool(json, "public", reply->head.numbers[0]);
    exchange_end_json(exchange, 200);
}

/* --- Tags --- */

static void set_tags(struct exchange *exchange)
{
    send_tags(exchange, "target", true);
}

static void remove_tags(struct exchange *exchange)
{
    send_tags(exchange, "name", true);
}

static void on_tagged(struct exchange *exchange, struct reply_packet *reply)
{
    struct build_text text = read_text(reply);
    struct json *json = exchange_json(exchange, SMALL);

    json_put_object(json);
    json_set_text(json, "buildID", text.build);
    put_tags(json, reply, &text);
    exchange_end_json(exchange, 201);
}

static void get_tags(struct exchange *exchange)
{
    json_put_array(exchange_json(exchange, LIST_TEXT));
    send_part(exchange);
}

static void on_tags(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = &exchange->json;
    struct build_text text = read_text(reply);

    if (reply->head.kind != REPLY_BUILD) {
        exchange_end_json(exchange, 200);
        return;
    }
    json_put_object(json);
    json_set_text(json, "tag", text.tags);
    json_set_text(json, "buildID", text.build);
    put_time(json, "createdAt", reply->head.numbers[BUILD_CREATED_MS]);
    json_put_end(json);
}

/* --- Sharing --- */

/* A template belongs to one tenant. */
static void change(struct exchange *exchange)
{
    json_t *root = take_body(exchange);
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];

    if (!root)
        return;
    bool is_public = field_bool(&fields, "public", false);
    if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else if (is_public)
        exchange_refuse(exchange, 501, "public templates: not supported by this server");
    else
        send_part(exchange);
    json_decref(root);
}

static void on_changed(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json;

    if (reply->head.kind != REPLY_BUILD || exchange->response)
        return;
    struct build_text text = read_text(reply);
    json = exchange_json(exchange, SMALL);
    json_put_object(json);
    put_list(json, "names", text.name);
    exchange_end_json(exchange, 200);
}

/* --- Uploads --- */

static void on_link(struct exchange *exchange, struct reply_packet *reply)
{
    const char *directory = reply_next(reply, NULL),
               *token = reply_next(reply, directory), *node = reply_next(reply, token);
    const char *host = exchange_header(exchange, "Host");
    struct json *json = exchange_json(exchange, SMALL);
    AUTO_BUF url = {.max = SMALL};

    (void)buf_format(&url, "http%s://%s/templates/uploads/%s/%s?expires=%lld&token=%s",
                     exchange_is_secure(exchange) ? "s" : "", host, directory,
                     exchange->route.part,
                     (long long)reply->head.numbers[UPLOAD_LINK_EXPIRES], token);
    if (node && *node) /* the proxy routes by it */
        (void)buf_format(&url, "&node=%s", node);
    json_put_object(json);
    json_set_bool(json, "present", reply->head.numbers[UPLOAD_PRESENT]);
    json_set_text(json, "url", url.data);
    exchange_end_json(exchange, 201);
}

struct receiving {
    int fd;
    int64_t length, written;
    bool is_sent; /* the request for the file */
};

static void receiving_done(struct exchange *exchange)
{
    struct receiving *state = exchange->state;

    if (state->fd >= 0)
        (void)close(state->fd);
    free(state);
}

static bool begin_upload(struct exchange *exchange)
{
    struct receiving *state = calloc(1, sizeof *state);

    if (!state)
        return false;
    state->fd = -1;
    state->length = exchange_number(exchange, "Content-Length", -1);
    exchange->state = state;
    exchange->state_done = receiving_done;
    if (state->length <= 0)
        exchange_refuse_and_close(exchange, 411, "Content-Length is missing");
    else if (state->length > UPLOAD_MAX)
        exchange_refuse_and_close(exchange, 413, "the files are larger than 4 GiB");
    return !exchange->response;
}

static void request_file(struct exchange *exchange)
{
    struct receiving *state = exchange->state;
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    const char *token = exchange_query(exchange, "token");
    const char *expires = exchange_query(exchange, "expires");
    struct request request;
    char directory[PART_MAX];

    exchange_init_request(exchange, OP_UPLOAD, &request);
    if (!token || strlen(token) >= CREDENTIAL_MAX || !expires ||
        !front_parse_number(expires, 0, UINT32_MAX, &request.numbers[UPLOAD_EXPIRES]) ||
        !route_first(exchange->handler->path, exchange->target, directory)) {
        exchange_refuse_and_close(exchange, 403, "the link is invalid");
        return;
    }
    cay_copy_text(request.credential, sizeof request.credential, token);
    strings_add(&strings, directory);
    strings_add(&strings, exchange->route.part);
    request.count = 2;
    request.numbers[UPLOAD_LENGTH] = state->length;
    state->is_sent = true;
    exchange_send(exchange, &request, &strings);
}

/* The first piece is passed again when the file is open. */
static bool feed_upload(struct exchange *exchange, const char *data, size_t len)
{
    struct receiving *state = exchange->state;

    if (state->fd < 0 && !state->is_sent) {
        exchange->body_left = len;
        request_file(exchange);
        return !exchange->response;
    }
    int error = state->fd < 0 ? -EBADF : io_write(state->fd, data, len);
    state->written += (int64_t)len;
    if (error)
        exchange_refuse_and_close(exchange, error == -ENOSPC ? 507 : 500,
                                  error == -ENOSPC ? "Not enough disk space available"
                                                   : "the file cannot be written");
    return !exchange->response;
}

/* The keeper gives the file its name. */
static void finish_upload(struct exchange *exchange)
{
    struct receiving *state = exchange->state;
    const struct upload_step whole = {.offset = (uint64_t)state->written};

    if (state->fd < 0 || exchange->channel < 0) {
        exchange_refuse(exchange, 400, "the body is missing");
        return;
    }
    (void)close(TAKE_FD(state->fd));
    if (send(exchange->channel, &whole, sizeof whole, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        exchange_refuse(exchange, 503, "the upload was interrupted; try again");
    else
        exchange_suspend(exchange);
}

static void on_upload(struct exchange *exchange, struct reply_packet *reply)
{
    struct receiving *state = exchange->state;

    if (reply->head.kind == REPLY_FILE && reply->fd >= 0 && state->fd < 0) {
        state->fd = TAKE_FD(reply->fd);
        exchange_resume(exchange);
    } else if (reply->head.kind == REPLY_DONE) {
        exchange_respond_empty(exchange, 200);
    } else {
        exchange_refuse_with(exchange, reply);
    }
    if (exchange->response && !exchange->has_body)
        (void)MHD_add_response_header(exchange->response, "Connection", "close");
}

#define ON(name, route, action, replied, operation, ...)                                 \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action), .op = (operation),           \
        .on_error = exchange_refuse_with, .on_reply = (replied), __VA_ARGS__             \
    }

const struct handler template_handlers[] = {
    ON("POST", "/v3/templates", request_build, on_requested, OP_TEMPLATE_NEW,
       .body_max = SMALL),
    ON("GET", "/v2/templates", list, on_list, OP_TEMPLATES, .flags = 0),
    ON("GET", "/templates", list, on_list, OP_TEMPLATES, .flags = TEMPLATE_PLAIN_LIST),
    ON("POST", "/templates/tags", set_tags, on_tagged, OP_TAGS_SET, .body_max = SMALL),
    ON("DELETE", "/templates/tags", remove_tags, exchange_on_done, OP_TAGS_REMOVE,
       .body_max = SMALL),
    ON("GET", "/templates/aliases/{id}", send_part, on_alias, OP_TEMPLATE, .flags = 0),
    ON("GET", "/templates/{id}/tags", get_tags, on_tags, OP_TAGS, .flags = 0),
    ON("GET", "/templates/{id}", get_template, on_builds, OP_TEMPLATE_INFO, .flags = 0),
    ON("DELETE", "/templates/{id}", send_part, exchange_on_done, OP_TEMPLATE_REMOVE,
       .flags = 0),
    ON("PATCH", "/v2/templates/{id}", change, on_changed, OP_TEMPLATE_INFO,
       .body_max = SMALL),
    ON("PATCH", "/templates/{id}", change, on_changed, OP_TEMPLATE_INFO,
       .body_max = SMALL),
    ON("GET", "/templates/{id}/files/{hash}", send_parts, on_link, OP_UPLOAD_LINK,
       .flags = 0),
    ON("PUT", "/templates/uploads/{tenant}/{hash}", finish_upload, on_upload, OP_UPLOAD,
       .begin = begin_upload, .feed = feed_upload),
    ON("POST", "/v2/templates/{id}/builds/{build}", start_build, on_started, OP_BUILD,
       .body_max = BODY_CONTROL),
    ON("GET", "/templates/{id}/builds/{build}/status", get_status, on_status,
       OP_BUILD_STATUS, .flags = 0),
    ON("GET", "/templates/{id}/builds/{build}/logs", get_status, on_status,
       OP_BUILD_STATUS, .flags = TEMPLATE_LOGS),
    {0},
};
