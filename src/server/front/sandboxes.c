/* SPDX-License-Identifier: Apache-2.0 */

/* The control plane of E2B's API: /sandboxes, versions 1 and 2. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"

/* Flags of handlers. */
enum sandbox_flag { SANDBOX_VERSION_2 = 1 << 0, SANDBOX_PLAIN_LIST = 1 << 1 };

/* The strings of a REPLY_SANDBOX, in order. */
struct sandbox_text {
    const char *id, *template_name, *token, *traffic, *domain;
    const char *metadata; /* the first key, or NULL */
};

enum { LIST_TEXT = 16 << 20, PAGE_MAX = 100 };

static struct sandbox_text read_text(const struct reply_packet *reply)
{
    struct sandbox_text text;

    text.id = reply_next(reply, NULL);
    text.template_name = reply_next(reply, text.id);
    text.token = reply_next(reply, text.template_name);
    text.traffic = reply_next(reply, text.token);
    text.domain = reply_next(reply, text.traffic);
    text.metadata = reply_next(reply, text.domain);
    return text;
}

static void put_common(struct json *json, const struct sandbox_text *text)
{
    json_set_text(json, "templateID", text->template_name);
    json_set_text(json, "sandboxID", text->id);
    json_set_text(json, "clientID", "cay");
    json_set_text(json, "envdVersion", FRONT_ENVD_VERSION);
}

/* The value of a key that clients do not see, or NULL. */
static const char *find_hidden(const struct reply_packet *reply, const char *at,
                               const char *key)
{
    while (at) {
        const char *value = reply_next(reply, at);
        if (!value || strcmp(at, key) == 0)
            return value;
        at = reply_next(reply, value);
    }
    return NULL;
}

static void put_listed(struct json *json, const struct reply_packet *reply,
                       const struct sandbox_text *text)
{
    const int64_t *numbers = reply->head.numbers;

    put_common(json, text);
    connect_put_time(json, "startedAt", numbers[SANDBOX_STARTED_MS] / 1000,
                     numbers[SANDBOX_STARTED_MS] % 1000, 3);
    connect_put_time(json, "endAt", numbers[SANDBOX_END_MS] / 1000,
                     numbers[SANDBOX_END_MS] % 1000, 3);
    json_set_int(json, "cpuCount", numbers[SANDBOX_CPUS]);
    json_set_int(json, "memoryMB", numbers[SANDBOX_MEMORY_MB]);
    json_set_int(json, "diskSizeMB", numbers[SANDBOX_DISK_MB]);
    json_set_text(json, "state",
                  numbers[SANDBOX_STATE] == RECORD_PAUSED ? "paused" : "running");
    connect_put_pairs(json, reply, text->metadata);
    const char *volumes = find_hidden(reply, text->metadata, RECORD_VOLUMES);
    if (volumes)
        front_put_volumes(json, volumes);
}

/* --- Query parameters --- */

uint32_t front_parse_states(const char *text)
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

bool front_parse_number(const char *text, int64_t least, int64_t most,
                        int64_t *ret_number)
{
    size_t len = strspn(text, "0123456789");

    if (len == 0 || len > 18 || text[len])
        return false;
    *ret_number = strtoll(text, NULL, 10);
    return *ret_number >= least && *ret_number <= most;
}

bool front_parse_page(const char *text, int64_t *ret_ms, char ret_id[SANDBOX_ID_MAX])
{
    char number[20];

    *ret_ms = 0;
    ret_id[0] = '\0';
    if (!text || !*text)
        return true;
    size_t len = strcspn(text, "-");
    if (len >= sizeof number || text[len] != '-' ||
        strlen(text + len + 1) >= SANDBOX_ID_MAX)
        return false;
    memcpy(number, text, len);
    number[len] = '\0';
    cay_copy_text(ret_id, SANDBOX_ID_MAX, text + len + 1);
    return front_parse_number(number, 1, INT64_MAX, ret_ms);
}

/* Parses this many digits; returns their end, or NULL. */
static const char *take_digits(const char *text, int count, int *ret_number)
{
    *ret_number = 0;
    for (; text && count > 0; count--, text++) {
        if (!isdigit((unsigned char)*text))
            return NULL;
        *ret_number = *ret_number * 10 + (*text - '0');
    }
    return text;
}

static const char *take_one_of(const char *text, const char *letters)
{
    return text && *text && strchr(letters, *text) ? text + 1 : NULL;
}

/* Rounds up to milliseconds: rows have their start in milliseconds, and a start at or
 * after the given time is at or after the rounded one. */
static const char *take_fraction(const char *text, int *ret_ms)
{
    int weight = 100;

    *ret_ms = 0;
    if (!text || *text != '.' || !isdigit((unsigned char)text[1]))
        return text && *text == '.' ? NULL : text;
    bool has_more = false;
    for (text++; isdigit((unsigned char)*text); text++, weight /= 10) {
        *ret_ms += weight * (*text - '0');
        has_more |= weight == 0 && *text != '0';
    }
    *ret_ms += has_more;
    return text;
}

/* "Z", "+01:00"; URL decoding may have turned the plus into a space. */
static const char *take_zone(const char *text, int *ret_minutes)
{
    int hours, minutes;

    *ret_minutes = 0;
    if (text && (*text == 'Z' || *text == 'z'))
        return text + 1;
    int sign = text && *text == '-' ? -1 : 1;
    text = take_digits(take_one_of(text, "+- "), 2, &hours);
    text = take_digits(take_one_of(text, ":"), 2, &minutes);
    *ret_minutes = sign * (hours * 60 + minutes);
    return hours < 24 && minutes < 60 ? text : NULL;
}

bool front_parse_time(const char *text, int64_t *ret_ms)
{
    struct tm tm = {0}, real;
    int ms, zone;

    text = take_digits(text, 4, &tm.tm_year);
    text = take_digits(take_one_of(text, "-"), 2, &tm.tm_mon);
    text = take_digits(take_one_of(text, "-"), 2, &tm.tm_mday);
    text = take_digits(take_one_of(text, "Tt "), 2, &tm.tm_hour);
    text = take_digits(take_one_of(text, ":"), 2, &tm.tm_min);
    text = take_digits(take_one_of(text, ":"), 2, &tm.tm_sec);
    text = take_fraction(text, &ms);
    text = take_zone(text, &zone);
    if (!text || *text || tm.tm_sec > 59)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    real = tm;
    time_t seconds = timegm(&real);
    if (real.tm_mon != tm.tm_mon || real.tm_mday != tm.tm_mday ||
        real.tm_hour != tm.tm_hour || real.tm_min != tm.tm_min)
        return false; /* such as February 30 */
    *ret_ms = ((int64_t)seconds - zone * INT64_C(60)) * 1000 + ms;
    return true;
}

enum { TEMPLATE_NAME_MAX = 256 };

/* "base:latest": removes a tag that names the only version.  Other tags are kept, so the
 * template is not found. */
static const char *parse_template(const char *text, char ret_name[TEMPLATE_NAME_MAX])
{
    size_t len = strcspn(text, ":");

    if (len >= TEMPLATE_NAME_MAX ||
        (strcmp(text + len, ":default") != 0 && strcmp(text + len, ":latest") != 0))
        return text;
    memcpy(ret_name, text, len);
    ret_name[len] = '\0';
    return ret_name;
}

/* Decodes "%41" and "+" in place.  "%00" is not decoded, since text cannot contain NUL.
 */
static void unescape(char *text, bool plus)
{
    char *to = text;

    for (const char *at = text; *at; at++) {
        char digits[3] = {at[1], at[1] ? at[2] : '\0', '\0'};
        if (*at == '%' && isxdigit((unsigned char)digits[0]) &&
            isxdigit((unsigned char)digits[1]) && strcmp(digits, "00") != 0) {
            *to++ = (char)strtoul(digits, NULL, 16);
            at += 2;
        } else {
            *to++ = plus && *at == '+' ? ' ' : *at;
        }
    }
    *to = '\0';
}

int64_t front_parse_metadata(const char *text, struct buf *strings)
{
    int64_t count = 0;
    AUTO_FREE char *copy = text ? strdup(text) : NULL;

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

/* --- Lists --- */

/* The last sandbox of a page. */
struct page_end {
    char id[SANDBOX_ID_MAX];
    int64_t started_ms;
};

static void page_done(struct exchange *exchange)
{
    free(exchange->state);
}

static const char *parse_list(struct exchange *exchange, struct request *request,
                              struct buf *strings)
{
    bool is_plain = exchange->handler->flags & SANDBOX_PLAIN_LIST;
    const char *limit = is_plain ? NULL : exchange_query(exchange, "limit");
    const char *order = exchange_query(exchange, "order");
    const char *wanted = exchange_query(exchange, "template");
    const char *after = exchange_query(exchange, "startedAfter");
    char id[SANDBOX_ID_MAX], name[TEMPLATE_NAME_MAX];

    request->flags =
        is_plain ? LIST_RUNNING : front_parse_states(exchange_query(exchange, "state"));
    if (!request->flags)
        return "state must be running, paused, or running,paused";
    if (order && strcmp(order, "asc") == 0)
        request->flags |= LIST_OLDEST_FIRST;
    else if (order && strcmp(order, "desc") != 0)
        return "order must be asc or desc";
    request->numbers[LIST_LIMIT] = PAGE_MAX;
    if (limit && !front_parse_number(limit, 1, PAGE_MAX, &request->numbers[LIST_LIMIT]))
        return "limit must be 1 to 100";
    if (after && *after &&
        !front_parse_time(after, &request->numbers[LIST_STARTED_AFTER_MS]))
        return "startedAfter must be a time like 2026-01-31T12:00:00Z";
    if (!front_parse_page(exchange_query(exchange, "nextToken"),
                          &request->numbers[LIST_AFTER_MS], id))
        return "invalid nextToken";
    strings_add(strings, wanted ? parse_template(wanted, name) : "");
    strings_add(strings, id);
    request->numbers[LIST_METADATA] =
        front_parse_metadata(exchange_query(exchange, "metadata"), strings);
    request->count = 2 + 2 * (uint32_t)request->numbers[LIST_METADATA];
    return request->numbers[LIST_METADATA] > 128 ? "too much metadata" : NULL;
}

static void list(struct exchange *exchange)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    exchange->state = calloc(1, sizeof(struct page_end));
    exchange->state_done = page_done;
    if (!exchange->state)
        return;
    json_put_array(exchange_json(exchange, LIST_TEXT));
    exchange_init_request(exchange, OP_LIST, &request);
    const char *wrong = parse_list(exchange, &request, &strings);
    if (wrong)
        exchange_refuse(exchange, 400, wrong);
    else
        exchange_send(exchange, &request, &strings);
}

bool front_charge_page(struct exchange *exchange)
{
    const char *wrong = exchange->out.failed
                            ? "the page is too large; use a smaller limit"
                        : !exchange_charge_client(exchange, exchange->out.len)
                            ? "too many unread pages; read them first"
                            : NULL;

    if (!wrong)
        return true;
    buf_done(&exchange->out);
    exchange->charged = 0;
    exchange_refuse(exchange, 429, wrong);
    return false;
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = &exchange->json;
    struct page_end *end = exchange->state;
    char token[64], total[24];

    if (reply->head.kind == REPLY_SANDBOX) {
        struct sandbox_text text = read_text(reply);
        json_put_object(json);
        put_listed(json, reply, &text);
        json_put_end(json);
        if (!front_charge_page(exchange))
            return;
        cay_copy_text(end->id, SANDBOX_ID_MAX, text.id);
        end->started_ms = reply->head.numbers[SANDBOX_STARTED_MS];
    } else {
        exchange_end_json(exchange, 200);
        snprintf(token, sizeof token, "%lld-%s", (long long)end->started_ms, end->id);
        snprintf(total, sizeof total, "%lld",
                 (long long)reply->head.numbers[LISTED_RUNNING]);
        if (exchange->response && reply->head.numbers[LISTED_HAS_MORE])
            (void)MHD_add_response_header(exchange->response, "X-Next-Token", token);
        if (exchange->response)
            (void)MHD_add_response_header(exchange->response, "X-Total-Running", total);
    }
}

enum { SMALL = 64 << 10 };

/* --- Responses --- */

void front_put_sandbox(struct json *json, const struct reply_packet *reply)
{
    struct sandbox_text text = read_text(reply);

    json_put_object(json);
    put_common(json, &text);
    json_set_text(json, "envdAccessToken", text.token);
    json_set_text(json, "trafficAccessToken", *text.traffic ? text.traffic : NULL);
    json_set_text(json, "domain", text.domain);
}

static void respond_sandbox(struct exchange *exchange, const struct reply_packet *reply,
                            unsigned status)
{
    if (reply->head.kind != REPLY_SANDBOX) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    front_put_sandbox(exchange_json(exchange, SMALL), reply);
    exchange_end_json(exchange, status);
}

const char *front_find_hidden(const struct reply_packet *reply, const char *key)
{
    return find_hidden(reply, read_text(reply).metadata, key);
}

static void on_info(struct exchange *exchange, struct reply_packet *reply)
{
    struct sandbox_text text = read_text(reply);
    int64_t flags = reply->head.numbers[SANDBOX_FLAGS];
    struct json *json = exchange_json(exchange, 4 * CHANNEL_PACKET);

    if (reply->head.kind != REPLY_SANDBOX) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    json_put_object(json);
    put_listed(json, reply, &text);
    json_set_text(json, "envdAccessToken", text.token);
    json_set_text(json, "domain", text.domain);
    json_set_bool(json, "allowInternetAccess", flags & CREATE_INTERNET);
    front_put_network(json, find_hidden(reply, text.metadata, RECORD_EGRESS),
                      find_hidden(reply, text.metadata, RECORD_MASK),
                      !(flags & CREATE_PRIVATE_TRAFFIC));
    const char *approvals = find_hidden(reply, text.metadata, RECORD_APPROVE);
    if (approvals)
        front_put_approvals(json, approvals, flags & CREATE_APPROVE_EGRESS);
    json_put_key(json, "lifecycle");
    json_put_object(json);
    json_set_text(json, "onTimeout", flags & CREATE_AUTO_PAUSE ? "pause" : "kill");
    json_set_bool(json, "autoResume", flags & CREATE_AUTO_RESUME);
    json_put_end(json);
    exchange_end_json(exchange, 200);
}

/* --- Requests to the broker --- */

json_t *front_take_body(struct exchange *exchange)
{
    json_t *root = exchange->body.len ? connect_body(exchange, false) : json_object();

    if (!root)
        exchange_refuse(exchange, 400, "the body is not a JSON object");
    return root;
}

/* --- Creating --- */

/* The first requested feature that this server does not support. */
static const char *find_unsupported(struct fields *fields)
{
    (void)field_object(fields, "mcp"); /* the SDK starts the template's gateway itself */
    if (field_get(fields, "iam"))
        return "identity tokens are not supported by this server";
    return NULL;
}

static uint32_t create_flags(struct exchange *exchange, struct fields *fields)
{
    struct fields resume = field_object(fields, "autoResume");
    struct fields network = field_object(fields, "network");
    uint32_t flags = exchange->handler->flags & SANDBOX_VERSION_2 ? CREATE_LONG : 0;

    if (field_bool(fields, "autoPause", false))
        flags |= CREATE_AUTO_PAUSE;
    if (flags & CREATE_AUTO_PAUSE && !field_bool(fields, "autoPauseMemory", true))
        flags |= CREATE_PAUSE_COLD;
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

/* Metadata with what the server stores beside it; the number of pairs. */
static int64_t add_metadata(struct fields *fields, const struct front_egress *egress,
                            const char *mask, const struct buf *volumes,
                            const struct buf *approvals, struct buf *strings)
{
    const char *key;
    json_t *value;

    json_object_foreach(field_get(fields, "metadata"), key, value)
    {
        if (*key == RECORD_HIDDEN)
            (void)field_reject(fields, "metadata");
    }
    int64_t count = field_add_pairs(fields, "metadata", false, strings);
    if (egress->count || egress->header_count) {
        strings_add(strings, RECORD_EGRESS);
        strings_add(strings, egress->shown.data ? egress->shown.data : "");
        count++;
    }
    if (volumes->len) {
        strings_add(strings, RECORD_VOLUMES);
        strings_add(strings, volumes->data);
        count++;
    }
    if (approvals->len) {
        strings_add(strings, RECORD_APPROVE);
        strings_add(strings, approvals->data);
        count++;
    }
    if (mask) {
        strings_add(strings, RECORD_MASK);
        strings_add(strings, mask);
        count++;
    }
    return count;
}

/* Fills the request; the message of an error, or NULL. */
static const char *fill_create(struct exchange *exchange, struct fields *fields,
                               struct front_egress *egress, struct request *request,
                               struct buf *strings)
{
    const char *template_name = field_text(fields, "templateID"), *mask;
    struct fields network = field_object(fields, "network");
    AUTO_BUF volumes = {.max = CHANNEL_PACKET}, shown = {.max = CHANNEL_PACKET};
    AUTO_BUF approvals = {.max = CHANNEL_PACKET};

    exchange_init_request(exchange, OP_CREATE, request);
    request->numbers[CREATE_VOLUMES] = front_take_volumes(fields, &volumes, &shown);
    request->flags = create_flags(exchange, fields);
    if (front_take_approvals(fields, &approvals))
        request->flags |= CREATE_APPROVE_EGRESS;
    const char *wrong =
        front_take_egress(&network, request->flags & CREATE_INTERNET, egress);
    const char *wrong_mask = front_take_mask(&network, &mask);
    strings_add(strings, template_name ? template_name : "");
    request->numbers[CREATE_TIMEOUT] = field_int(fields, "timeout", 0, INT32_MAX, -1);
    request->numbers[CREATE_METADATA] =
        add_metadata(fields, egress, mask, &shown, &approvals, strings);
    request->numbers[CREATE_ENV] = field_add_pairs(fields, "envVars", true, strings);
    request->numbers[CREATE_RULES] = egress->count;
    (void)buf_append(strings, egress->rules.data, egress->rules.len);
    request->numbers[CREATE_HEADERS] = egress->header_count;
    (void)buf_append(strings, egress->headers.data, egress->headers.len);
    (void)buf_append(strings, volumes.data, volumes.len);
    request->count =
        1 +
        (uint32_t)(2 * request->numbers[CREATE_METADATA] + request->numbers[CREATE_ENV] +
                   request->numbers[CREATE_RULES] + request->numbers[CREATE_HEADERS] +
                   request->numbers[CREATE_VOLUMES]);
    if (!template_name)
        (void)field_reject(fields, "templateID");
    return wrong                   ? wrong
           : wrong_mask            ? wrong_mask
           : request->count > 4096 ? "too much metadata or environment"
                                   : NULL;
}

static void create(struct exchange *exchange)
{
    json_t *root = front_take_body(exchange);
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];
    struct front_egress egress;
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};
    struct request request;

    if (!root)
        return;
    front_egress_init(&egress);
    const char *unsupported = find_unsupported(&fields);
    const char *wrong = fill_create(exchange, &fields, &egress, &request, &strings);
    if (unsupported)
        exchange_refuse(exchange, 501, unsupported);
    else if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else if (wrong)
        exchange_refuse(exchange, egress.status, wrong);
    else
        exchange_send(exchange, &request, &strings);
    front_egress_done(&egress);
    json_decref(root);
}

static void on_created(struct exchange *exchange, struct reply_packet *reply)
{
    respond_sandbox(exchange, reply, 201);
}

/* --- One sandbox --- */

/* Requests with a timeout in seconds, which some of them need. */
static void change_timeout(struct exchange *exchange)
{
    enum op op = exchange->handler->op;
    const char *name = op == OP_REFRESH ? "duration" : "timeout";
    struct request request;
    json_t *root = front_take_body(exchange);
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
    else {
        exchange_init_request(exchange, op, &request);
        request.flags = cold ? PAUSE_COLD : 0;
        request.numbers[TIMEOUT_SECONDS] = seconds;
        exchange_send(exchange, &request, NO_STRINGS);
    }
    json_decref(root);
}

static void on_connected(struct exchange *exchange, struct reply_packet *reply)
{
    respond_sandbox(exchange, reply, reply->head.numbers[SANDBOX_RESUMED] ? 201 : 200);
}

/* --- The server --- */

static void get_health(struct exchange *exchange)
{
    exchange_respond_empty(exchange, 204);
}

/* 404 and 503 are what HAProxy's http-check understands: no new sandboxes; nothing. */
static void on_ready(struct exchange *exchange, struct reply_packet *reply)
{
    static const struct {
        const char *word;
        unsigned status;
    } states[] = {[READY_YES] = {"ready", 200},
                  [READY_FULL] = {"full", 404},
                  [READY_DRAINING] = {"draining", 404},
                  [READY_CLAIMED] = {"the name of the node is taken", 503}};
    int64_t state = reply->head.numbers[READY_STATE];

    if (state < READY_YES || state > READY_CLAIMED) {
        exchange_refuse(exchange, 503, "the server is not ready");
        return;
    }
    struct json *json = exchange_json(exchange, SMALL);
    json_put_object(json);
    json_set_text(json, "state", states[state].word);
    json_set_int(json, "free", reply->head.numbers[READY_FREE]);
    exchange_end_json(exchange, states[state].status);
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
    PLAIN("GET", "/ready", OP_READY, on_ready),
    ON("POST", "/v2/sandboxes", create, on_created, .body_max = BODY_CONTROL,
       .flags = SANDBOX_VERSION_2, .kind = FRONT_CREATE),
    ON("POST", "/sandboxes", create, on_created, .body_max = BODY_CONTROL,
       .kind = FRONT_CREATE),
    ON("GET", "/v2/sandboxes", list, on_list),
    ON("GET", "/sandboxes", list, on_list, .flags = SANDBOX_PLAIN_LIST),
    PLAIN("GET", "/sandboxes/{id}", OP_INFO, on_info),
    PLAIN("DELETE", "/sandboxes/{id}", OP_KILL, exchange_on_done),
    TIMEOUT("/v2/sandboxes/{id}/connect", OP_CONNECT, on_connected),
    TIMEOUT("/sandboxes/{id}/connect", OP_CONNECT, on_connected),
    TIMEOUT("/sandboxes/{id}/resume", OP_RESUME, on_created),
    TIMEOUT("/sandboxes/{id}/timeout", OP_TIMEOUT, exchange_on_done),
    TIMEOUT("/sandboxes/{id}/refreshes", OP_REFRESH, exchange_on_done),
    TIMEOUT("/sandboxes/{id}/pause", OP_PAUSE, exchange_on_done),
    ON("PUT", "/sandboxes/{id}/network", front_change_network, exchange_on_done,
       .op = OP_NETWORK, .body_max = BODY_CONTROL),
    {0},
};
