/* SPDX-License-Identifier: Apache-2.0 */

/* The control plane of E2B's API: /sandboxes, versions 1 and 2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/fields.h"
#include "server/front/filter.h"
#include "server/front/front.h"
#include "server/wire/record.h"

/* Flags of handlers. */
enum sandbox_flag { SANDBOX_VERSION_2 = 1 << 0, SANDBOX_PLAIN_LIST = 1 << 1 };

/* The strings of a REPLY_SANDBOX, in order. */
struct sandbox_text {
    const char *id, *template_name, *token, *traffic, *domain;
    const char *metadata; /* the string before the metadata */
};

enum { LIST_TEXT = 16 << 20, PAGE_MAX = 100 };

static const char envd_version[] = "0.6.13";

static void set_time(struct json *json, const char *key, int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char text[40], day[24];

    gmtime_r(&seconds, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%03dZ", day, (int)(ms % 1000));
    json_set_text(json, key, text);
}

static struct sandbox_text read_text(const struct reply_packet *reply)
{
    struct sandbox_text text;

    text.id = reply_next(reply, NULL);
    text.template_name = reply_next(reply, text.id);
    text.token = reply_next(reply, text.template_name);
    text.traffic = reply_next(reply, text.token);
    text.domain = reply_next(reply, text.traffic);
    text.metadata = text.domain;
    return text;
}

static void put_common(struct json *json, const struct sandbox_text *text)
{
    json_set_text(json, "templateID", text->template_name);
    json_set_text(json, "sandboxID", text->id);
    json_set_text(json, "clientID", "cay");
    json_set_text(json, "envdVersion", envd_version);
}

static void put_metadata(struct json *json, const struct reply_packet *reply,
                         const char *before)
{
    const char *key = reply_next(reply, before);

    json_put_key(json, "metadata");
    json_put_object(json);
    while (key) {
        const char *value = reply_next(reply, key);
        if (!value)
            break;
        json_set_text(json, key, value);
        key = reply_next(reply, value);
    }
    json_put_end(json);
}

static void put_listed(struct json *json, const struct reply_packet *reply,
                       const struct sandbox_text *text)
{
    const int64_t *numbers = reply->head.numbers;

    put_common(json, text);
    set_time(json, "startedAt", numbers[SANDBOX_STARTED_MS]);
    set_time(json, "endAt", numbers[SANDBOX_END_MS]);
    json_set_int(json, "cpuCount", numbers[SANDBOX_CPUS]);
    json_set_int(json, "memoryMB", numbers[SANDBOX_MEMORY_MB]);
    json_set_int(json, "diskSizeMB", numbers[SANDBOX_DISK_MB]);
    json_set_text(json, "state",
                  numbers[SANDBOX_STATE] == RECORD_PAUSED ? "paused" : "running");
    put_metadata(json, reply, text->metadata);
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

static const char *parse_list(struct exchange *exchange, struct request *request,
                              struct buf *strings)
{
    bool is_plain = exchange->handler->flags & SANDBOX_PLAIN_LIST;
    const char *limit = is_plain ? NULL : exchange_query(exchange, "limit");
    const char *order = exchange_query(exchange, "order");
    const char *wanted = exchange_query(exchange, "template");
    const char *after = exchange_query(exchange, "startedAfter");
    char id[SANDBOX_ID_MAX], name[FILTER_TEMPLATE_MAX];

    request->flags =
        is_plain ? LIST_RUNNING : filter_states(exchange_query(exchange, "state"));
    if (!request->flags)
        return "state must be running, paused, or running,paused";
    if (order && strcmp(order, "asc") == 0)
        request->flags |= LIST_OLDEST_FIRST;
    else if (order && strcmp(order, "desc") != 0)
        return "order must be asc or desc";
    request->numbers[LIST_LIMIT] = PAGE_MAX;
    if (limit && !filter_number(limit, 1, PAGE_MAX, &request->numbers[LIST_LIMIT]))
        return "limit must be 1 to 100";
    if (after && *after && !filter_time(after, &request->numbers[LIST_STARTED_AFTER_MS]))
        return "startedAfter must be a time like 2026-01-31T12:00:00Z";
    if (!filter_page(exchange_query(exchange, "nextToken"),
                     &request->numbers[LIST_AFTER_MS], id))
        return "invalid nextToken";
    strings_add(strings, wanted ? filter_template(wanted, name) : "");
    strings_add(strings, id);
    request->numbers[LIST_METADATA] =
        filter_metadata(exchange_query(exchange, "metadata"), strings);
    request->count = 2 + 2 * (uint32_t)request->numbers[LIST_METADATA];
    return request->numbers[LIST_METADATA] > 128 ? "too much metadata" : NULL;
}

static void list(struct exchange *exchange)
{
    struct list *state = calloc(1, sizeof *state);
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    if (!state)
        return;
    buf_init(&state->text, LIST_TEXT);
    json_to_unicode(&state->json, &state->text);
    json_put_array(&state->json);
    exchange->state = state;
    exchange->state_done = list_done;
    exchange_init_request(exchange, OP_LIST, &request);
    const char *wrong = parse_list(exchange, &request, &strings);
    if (wrong)
        exchange_refuse(exchange, 400, wrong);
    else
        exchange_send(exchange, &request, &strings);
}

/* False if the request was refused instead. */
static bool charge_page(struct exchange *exchange, struct list *list)
{
    const char *wrong = list->text.failed ? "the page is too large; use a smaller limit"
                        : !exchange_charge_client(exchange, list->text.len)
                            ? "too many unread pages; read them first"
                            : NULL;

    if (!wrong)
        return true;
    buf_done(&list->text);
    exchange->charged = 0;
    exchange_refuse(exchange, 429, wrong);
    return false;
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    struct list *state = exchange->state;
    char token[64], total[24];

    if (reply->head.kind == REPLY_SANDBOX) {
        struct sandbox_text text = read_text(reply);
        json_put_object(&state->json);
        put_listed(&state->json, reply, &text);
        json_put_end(&state->json);
        if (!charge_page(exchange, state))
            return;
        cay_copy_text(state->last_id, SANDBOX_ID_MAX, text.id);
        state->last_ms = reply->head.numbers[SANDBOX_STARTED_MS];
    } else {
        json_put_end(&state->json);
        exchange_respond_json(exchange, 200, &state->text);
        snprintf(token, sizeof token, "%lld-%s", (long long)state->last_ms,
                 state->last_id);
        snprintf(total, sizeof total, "%lld",
                 (long long)reply->head.numbers[LISTED_RUNNING]);
        if (exchange->response && reply->head.numbers[LISTED_HAS_MORE])
            (void)MHD_add_response_header(exchange->response, "X-Next-Token", token);
        if (exchange->response)
            (void)MHD_add_response_header(exchange->response, "X-Total-Running", total);
    }
}

enum { SMALL = 64 << 10, SAMPLE_S = 5 };

/* --- Responses --- */

static void respond_sandbox(struct exchange *exchange, const struct reply_packet *reply,
                            unsigned status)
{
    struct sandbox_text text = read_text(reply);
    AUTO_BUF out = {.max = SMALL};
    struct json json;

    json_to_unicode(&json, &out);
    json_put_object(&json);
    put_common(&json, &text);
    json_set_text(&json, "envdAccessToken", text.token);
    json_set_text(&json, "trafficAccessToken", *text.traffic ? text.traffic : NULL);
    json_set_text(&json, "domain", text.domain);
    json_put_end(&json);
    exchange_respond_json(exchange, status, &out);
}

static void respond_detail(struct exchange *exchange, const struct reply_packet *reply)
{
    struct sandbox_text text = read_text(reply);
    int64_t flags = reply->head.numbers[SANDBOX_FLAGS];
    AUTO_BUF out = {.max = 4 * CHANNEL_PACKET};
    struct json json;

    json_to_unicode(&json, &out);
    json_put_object(&json);
    put_listed(&json, reply, &text);
    json_set_text(&json, "envdAccessToken", text.token);
    json_set_text(&json, "domain", text.domain);
    json_set_bool(&json, "allowInternetAccess", flags & CREATE_INTERNET);
    json_put_key(&json, "lifecycle");
    json_put_object(&json);
    json_set_text(&json, "onTimeout", flags & CREATE_AUTO_PAUSE ? "pause" : "kill");
    json_set_bool(&json, "autoResume", flags & CREATE_AUTO_RESUME);
    json_put_end(&json);
    json_put_end(&json);
    exchange_respond_json(exchange, 200, &out);
}

/* --- Requests to the broker --- */

/* The body as JSON, which is optional.  Refuses an invalid one, and returns NULL. */
static json_t *take_body(struct exchange *exchange)
{
    json_t *root = exchange->body.len ? connect_body(exchange, false) : json_object();

    if (!root)
        exchange_refuse(exchange, 400, "the body is not a JSON object");
    return root;
}

static void on_done(struct exchange *exchange, struct reply_packet *reply)
{
    (void)reply;
    exchange_respond_empty(exchange, 204);
}

/* --- Creating --- */

/* The first requested feature that this server does not support. */
static const char *find_unsupported(struct fields *fields)
{
    struct fields network = field_object(fields, "network");
    const json_t *volumes = field_get(fields, "volumeMounts");
    static const char *const unknown[] = {"allowOut", "denyOut", "rules", "egressProxy",
                                          "httpsPorts"};

    if (json_array_size(volumes) > 0)
        return "volumes are not supported by this server";
    if (field_get(fields, "mcp"))
        return "MCP gateways are not supported by this server";
    if (field_get(fields, "iam"))
        return "identity tokens are not supported by this server";
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const json_t *value = field_get(&network, unknown[i]);
        if (json_array_size(value) > 0 || json_object_size(value) > 0)
            return "traffic rules are not supported by this server";
    }
    if (field_text(&network, "maskRequestHost"))
        return "maskRequestHost is not supported by this server";
    if (field_bool(fields, "autoPause", false) &&
        !field_bool(fields, "autoPauseMemory", true))
        return "pausing without memory is not supported by this server";
    return NULL;
}

static uint32_t create_flags(struct exchange *exchange, struct fields *fields)
{
    struct fields resume = field_object(fields, "autoResume");
    struct fields network = field_object(fields, "network");
    uint32_t flags = exchange->handler->flags & SANDBOX_VERSION_2 ? CREATE_LONG : 0;

    if (field_bool(fields, "autoPause", false))
        flags |= CREATE_AUTO_PAUSE;
    if (field_bool(&resume, "enabled", false))
        flags |= CREATE_AUTO_RESUME;
    if (!field_bool(&network, "allowPublicTraffic", true))
        flags |= CREATE_PRIVATE_TRAFFIC;
    /* Old SDKs always set it, and only they use version 1. */
    if (field_bool(fields, "allowInternetAccess", true))
        flags |= CREATE_INTERNET;
    if (flags & CREATE_LONG && field_bool(fields, "allowInternetAccess", false))
        flags |= CREATE_INTERNET_EXPLICIT;
    return flags;
}

static void send_create(struct exchange *exchange, struct fields *fields)
{
    const char *template_name = field_text(fields, "templateID");
    char message[FIELDS_ERROR_MAX], name[FILTER_TEMPLATE_MAX];
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};
    struct request request;

    exchange_init_request(exchange, OP_CREATE, &request);
    strings_add(&strings, template_name ? filter_template(template_name, name) : "");
    request.flags = create_flags(exchange, fields);
    request.numbers[CREATE_TIMEOUT] = field_int(fields, "timeout", 0, INT32_MAX, -1);
    request.numbers[CREATE_METADATA] =
        field_add_pairs(fields, "metadata", false, &strings);
    request.numbers[CREATE_ENV] = field_add_pairs(fields, "envVars", true, &strings);
    int64_t count =
        1 + 2 * request.numbers[CREATE_METADATA] + request.numbers[CREATE_ENV];
    request.count = (uint32_t)count;
    if (!template_name)
        (void)field_reject(fields, "templateID");
    if (fields->wrong)
        exchange_refuse(exchange, 400, fields_error(fields, message));
    else if (count > 4096)
        exchange_refuse(exchange, 400, "too much metadata or environment");
    else
        exchange_send(exchange, &request, &strings);
}

static void create(struct exchange *exchange)
{
    json_t *root = take_body(exchange);
    struct fields fields = {.object = root};

    if (!root)
        return;
    const char *wrong = find_unsupported(&fields);
    if (wrong)
        exchange_refuse(exchange, 501, wrong);
    else
        send_create(exchange, &fields);
    json_decref(root);
}

static void on_created(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_SANDBOX)
        respond_sandbox(exchange, reply, 201);
    else
        exchange_refuse_with(exchange, reply);
}

/* --- One sandbox --- */

/* Requests with a timeout in seconds, which some of them need. */
static void change_timeout(struct exchange *exchange)
{
    enum op op = exchange->handler->op;
    const char *name = op == OP_REFRESH ? "duration" : "timeout";
    struct request request;
    json_t *root = take_body(exchange);
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];

    if (!root)
        return;
    int64_t seconds =
        field_int(&fields, name, 0, op == OP_REFRESH ? 3600 : INT32_MAX, -1);
    bool cold = !field_bool(&fields, "memory", true);
    if (op == OP_TIMEOUT && seconds < 0)
        (void)field_reject(&fields, name);
    if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else if (cold)
        exchange_refuse(exchange, 501,
                        "pausing without memory is not supported by this server");
    else {
        exchange_init_request(exchange, op, &request);
        request.numbers[TIMEOUT_SECONDS] = seconds;
        exchange_send(exchange, &request, NO_STRINGS);
    }
    json_decref(root);
}

static void on_connected(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_SANDBOX)
        respond_sandbox(exchange, reply,
                        reply->head.numbers[SANDBOX_RESUMED] ? 201 : 200);
    else
        exchange_refuse_with(exchange, reply);
}

static void on_info(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_SANDBOX)
        respond_detail(exchange, reply);
    else
        exchange_refuse_with(exchange, reply);
}

/* --- Metrics --- */

/* There is one sample, for the last seconds: whether the requested period includes them.
 */
static const char *parse_period(struct exchange *exchange, bool *ret_is_in)
{
    const char *start = exchange_query(exchange, "start");
    const char *end = exchange_query(exchange, "end");
    int64_t from = 0, to = INT64_MAX, now = time(NULL);

    if ((start && !filter_number(start, 0, INT64_MAX, &from)) ||
        (end && !filter_number(end, 0, INT64_MAX, &to)) || from > to)
        return "start and end must be seconds since 1970, in this order";
    *ret_is_in = from <= now && to >= now - SAMPLE_S;
    return NULL;
}

static void get_usage(struct exchange *exchange)
{
    bool is_in;
    const char *wrong = parse_period(exchange, &is_in);

    if (wrong)
        exchange_refuse(exchange, 400, wrong);
    else
        exchange_send_plain(exchange);
}

static void on_usage(struct exchange *exchange, struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    struct timespec now;
    AUTO_BUF out = {.max = SMALL};
    struct json json;
    bool is_in;

    clock_gettime(CLOCK_REALTIME, &now);
    json_to_unicode(&json, &out);
    json_put_array(&json);
    if (parse_period(exchange, &is_in) || !is_in) {
        json_put_end(&json);
        exchange_respond_json(exchange, 200, &out);
        return;
    }
    json_put_object(&json);
    set_time(&json, "timestamp", (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    json_set_int(&json, "timestampUnix", now.tv_sec);
    json_set_int(&json, "cpuCount", numbers[USAGE_CPUS]);
    json_set_int(&json, "cpuUsedPct", numbers[USAGE_CPU_PERMILLE] / 10);
    json_set_int(&json, "memUsed", numbers[USAGE_MEMORY]);
    json_set_int(&json, "memTotal", numbers[USAGE_MEMORY_MAX]);
    json_set_int(&json, "memCache", 0);
    json_set_int(&json, "diskUsed", numbers[USAGE_DISK]);
    json_set_int(&json, "diskTotal", numbers[USAGE_DISK_MAX]);
    json_put_end(&json);
    json_put_end(&json);
    exchange_respond_json(exchange, 200, &out);
}

/* --- The server --- */

static void get_health(struct exchange *exchange)
{
    exchange_respond_empty(exchange, 204);
}

/* --- Templates --- */

static void find_template(struct exchange *exchange)
{
    char name[FILTER_TEMPLATE_MAX];
    AUTO_BUF strings = {.max = PART_MAX};
    struct request request;

    strings_add(&strings, filter_template(exchange->route.part, name));
    exchange_init_request(exchange, OP_TEMPLATE, &request);
    request.count = 1;
    exchange_send(exchange, &request, &strings);
}

static void on_template(struct exchange *exchange, struct reply_packet *reply)
{
    char name[FILTER_TEMPLATE_MAX];
    AUTO_BUF out = {.max = SMALL};
    struct json json;

    (void)reply;
    json_to_unicode(&json, &out);
    json_put_object(&json);
    json_set_text(&json, "templateID", filter_template(exchange->route.part, name));
    json_set_bool(&json, "public", true);
    json_put_end(&json);
    exchange_respond_json(exchange, 200, &out);
}

static void on_metrics(struct exchange *exchange, struct reply_packet *reply)
{
    const struct front *front = exchange->front;
    AUTO_BUF text = {.max = SMALL};

    (void)reply;
    buf_format(
        &text,
        "# TYPE cay_requests_total counter\ncay_requests_total %llu\n"
        "# TYPE cay_streams gauge\ncay_streams %llu\n"
        "# TYPE cay_connections gauge\ncay_connections %llu\n"
        "# TYPE cay_connections_cut_total counter\ncay_connections_cut_total %llu\n"
        "# TYPE cay_connections_max gauge\ncay_connections_max %u\n"
        "# TYPE cay_requests_retried_total counter\ncay_requests_retried_total %llu\n"
        "# TYPE cay_requests_lost_total counter\n"
        "cay_requests_lost_total{reason=\"closed\"} %llu\n"
        "cay_requests_lost_total{reason=\"malformed\"} %llu\n"
        "cay_requests_lost_total{reason=\"error\"} %llu\n"
        "# TYPE cay_replies_total counter\n",
        (unsigned long long)front->requests, (unsigned long long)front->streams,
        (unsigned long long)front->connections, (unsigned long long)front->refused,
        front->connections_max, (unsigned long long)front->retried,
        (unsigned long long)front->lost[LOSS_CLOSED],
        (unsigned long long)front->lost[LOSS_MALFORMED],
        (unsigned long long)front->lost[LOSS_ERROR]);
    for (int i = 1; i < 6; i++)
        buf_format(&text, "cay_replies_total{status=\"%dxx\"} %llu\n", i,
                   (unsigned long long)front->status[i]);
    exchange_respond_text(exchange, 200, "text/plain; version=0.0.4", &text);
}

#define ON(name, route, action, replied, ...)                                            \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action),                              \
        .on_error = exchange_refuse_with, .on_reply = (replied), __VA_ARGS__             \
    }
#define PLAIN(name, route, operation, replied)                                           \
    ON(name, route, exchange_send_plain, replied, .op = (operation))
#define TIMEOUT(route, operation, replied)                                               \
    ON("POST", route, change_timeout, replied, .op = (operation), .body_max = SMALL)

const struct handler sandbox_handlers[] = {
    ON("GET", "/health", get_health, NULL),
    PLAIN("GET", "/metrics", OP_CHECK, on_metrics),
    ON("POST", "/v2/sandboxes", create, on_created, .body_max = BODY_CONTROL,
       .flags = SANDBOX_VERSION_2),
    ON("POST", "/sandboxes", create, on_created, .body_max = BODY_CONTROL),
    ON("GET", "/v2/sandboxes", list, on_list),
    ON("GET", "/sandboxes", list, on_list, .flags = SANDBOX_PLAIN_LIST),
    PLAIN("GET", "/sandboxes/{id}", OP_INFO, on_info),
    PLAIN("DELETE", "/sandboxes/{id}", OP_KILL, on_done),
    TIMEOUT("/v2/sandboxes/{id}/connect", OP_CONNECT, on_connected),
    TIMEOUT("/sandboxes/{id}/connect", OP_CONNECT, on_connected),
    TIMEOUT("/sandboxes/{id}/resume", OP_RESUME, on_created),
    TIMEOUT("/sandboxes/{id}/timeout", OP_TIMEOUT, on_done),
    TIMEOUT("/sandboxes/{id}/refreshes", OP_REFRESH, on_done),
    TIMEOUT("/sandboxes/{id}/pause", OP_PAUSE, on_done),
    ON("GET", "/sandboxes/{id}/metrics", get_usage, on_usage, .op = OP_USAGE),
    ON("GET", "/templates/aliases/{id}", find_template, on_template),
    {0},
};
