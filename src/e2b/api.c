/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/api.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/messages.h"
#include "e2b/reply.h"
#include "json/json.h"

enum {
    BODY_MAX = 4 << 20,
    PATH_MAX_LEN = 1024,
    LIST_MAX = 16 << 20,
    PAGES_MAX = 1000,
    KEEP_ALIVE_MS = 5000,
    REFRESH_MAX_S = 3600 /* the longest extension that /refreshes accepts */
};

/* The key in the metadata by which a sandbox is found if the reply of its creation was
 * lost. */
static const char mark_key[] = "cay-mark";

/* --- Sending --- */

struct api_request {
    const char *op, *method;
    bool repeatable;
    const struct buf *body; /* NULL: none */
    uint64_t until_ms;      /* 0: E2B_REPLY_MS from now */
    size_t reply_max;       /* 0: E2B_REPLY_MAX */
};

/* `path` is appended to the URL of the service. */
static int send_request(struct e2b *e2b, const struct api_request *api, const char *path,
                        struct e2b_request *request, struct cay_error *err)
{
    e2b_request_init(request, api->op, api->method, &e2b->settings.api);
    buf_text(&request->path, path);
    request->repeatable = api->repeatable;
    request->reply_max = api->reply_max;
    e2b_request_header(request, "X-API-KEY", e2b->settings.key);
    e2b_request_header(request, "User-Agent", "cay/" CAY_VERSION);
    if (api->body) {
        request->body = api->body->data;
        request->body_len = api->body->len;
        e2b_request_header(request, "Content-Type", "application/json");
    }
    return e2b_http_send(&e2b->http, request, e2b->settings.retries,
                         api->until_ms ? api->until_ms : clock_ms() + E2B_REPLY_MS, err);
}

/* Older servers have no /v2. */
static int send_either(struct e2b *e2b, const struct api_request *api,
                       const struct buf *old_body, const char *path,
                       struct e2b_request *request, struct cay_error *err)
{
    struct api_request old = *api;
    char newer[PATH_MAX_LEN];

    snprintf(newer, sizeof newer, "/v2%s", path);
    int code = send_request(e2b, api, newer, request, err);
    if (code || (request->status != 404 && request->status != 405))
        return code;
    e2b_request_done(request);
    old.body = old_body;
    return send_request(e2b, &old, path, request, err);
}

/* Sends a request about the sandbox.  `field`: the name of `seconds` in the body; NULL
 * for an empty object.  Only a POST has a body. */
static int send_action(struct e2b *e2b, const struct api_request *api, const char *action,
                       const char *field, uint64_t seconds, struct e2b_request *request,
                       struct cay_error *err)
{
    struct api_request whole = *api;
    char path[128];
    AUTO_BUF body;

    buf_init(&body, 128);
    if (field)
        buf_format(&body, "{\"%s\":%llu}", field, (unsigned long long)seconds);
    else
        buf_text(&body, "{}");
    snprintf(path, sizeof path, "/sandboxes/%s%s", e2b->id, action);
    if (strcmp(api->method, "POST") == 0)
        whole.body = &body;
    if (strcmp(action, "/connect") == 0)
        return send_either(e2b, &whole, &body, path, request, err);
    return send_request(e2b, &whole, path, request, err);
}

static int check(const struct e2b *e2b, const struct e2b_request *request,
                 struct cay_error *err)
{
    return e2b_reply_check(e2b, request, e2b->id, CAY_E_UNAVAILABLE, err);
}

/* --- The description of a sandbox --- */

static int check_id(const char *id, const char *op, int code, struct cay_error *err)
{
    size_t len = strlen(id);

    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)id[i]) && id[i] != '-' && id[i] != '_')
            len = 0;
    if (len > 0 && len < sizeof((struct e2b *)0)->id && isalnum((unsigned char)*id))
        return CAY_OK;
    return cay_fail(err, code, 0, op, "sandbox_id", "invalid id of a sandbox",
                    "an id has up to 63 letters, digits, \"-\" and \"_\"");
}

/* An unknown version counts as the newest. */
static unsigned read_version(const char *text)
{
    unsigned version = 0;

    if (!text || !isdigit((unsigned char)*text))
        return UINT_MAX;
    for (int i = 0; i < 3; i++) {
        unsigned part = 0;
        for (; isdigit((unsigned char)*text); text++)
            if (part < 256)
                part = part * 10 + (unsigned)(*text - '0');
        version = version << 8 | (part > 255 ? 255 : part);
        text += *text == '.';
    }
    return version;
}

/* A token is sent as a header: a line end in it would start another header. */
static int read_token(const json_t *reply, const char *name, const char *op,
                      char **ret_token, struct cay_error *err)
{
    const char *text = e2b_value_text(reply, name);
    char *token = NULL;

    for (const char *at = text; at && *at; at++)
        if (!isgraph((unsigned char)*at))
            return e2b_reply_malformed(op, name, "a token is not one word of ASCII", err);
    if (text && *text && !(token = strdup(text)))
        return cay_fail_memory(err, op);
    free(*ret_token);
    *ret_token = token;
    return CAY_OK;
}

/* On these domains all sandboxes share one host name. */
static bool is_shared_domain(const char *domain)
{
    static const char *const domains[] = {"e2b.app", "e2b.dev", "e2b.pro",
                                          "e2b-staging.dev"};

    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++)
        if (strcmp(domain, domains[i]) == 0)
            return true;
    return false;
}

static int set_envd_url(struct e2b *e2b, const char *domain, const char *op,
                        struct cay_error *err)
{
    const struct e2b_settings *settings = &e2b->settings;
    char url[512];

    if (*settings->sandbox.url) {
        e2b->envd = settings->sandbox;
        return CAY_OK;
    }
    if (!domain || !*domain)
        domain = settings->domain;
    if (!e2b_origin_is_domain(domain))
        return e2b_reply_malformed(op, "domain", "invalid domain of the sandbox", err);
    if (is_shared_domain(domain) && !settings->force_http)
        snprintf(url, sizeof url, "https://sandbox.%s", domain);
    else
        snprintf(url, sizeof url, "%s://%d-%s.%s",
                 settings->force_http ? "http" : "https", E2B_ENVD_PORT, e2b->id, domain);
    return e2b_origin_parse(url, op, "domain", &e2b->envd, err);
}

static int read_sandbox(struct e2b *e2b, const struct e2b_request *request,
                        struct cay_error *err)
{
    const char *op = request->op;
    AUTO_JSON reply = NULL;
    int code = e2b_reply_object(request, &reply, err);

    if (code)
        return code;
    const char *id = e2b_value_text(reply, "sandboxID");
    if (!id || check_id(id, op, CAY_E_PROTOCOL, NULL))
        return e2b_reply_malformed(op, "sandboxID", "the sandbox has no valid id", err);
    cay_copy_text(e2b->id, sizeof e2b->id, id);
    e2b->version = read_version(e2b_value_text(reply, "envdVersion"));
    e2b->extended_ms = clock_ms();
    code = read_token(reply, "envdAccessToken", op, &e2b->token, err);
    if (!code)
        code = read_token(reply, "trafficAccessToken", op, &e2b->traffic_token, err);
    return code ? code : set_envd_url(e2b, e2b_value_text(reply, "domain"), op, err);
}

/* --- Create --- */

static void put_map(struct json *json, const cay_config *config, const char *field)
{
    const char *key, *value;

    json_put_object(json);
    for (size_t i = 0; cay_config_item(config, field, i, &key, &value); i++)
        json_set_text(json, key, value);
}

static bool write_create(struct buf *body, const struct e2b *e2b,
                         const cay_config *config, const char *mark, bool is_old)
{
    const char *after = cay_config_text(config, "status_after_run");
    struct json json;

    buf_init(body, BODY_MAX);
    json_to_buf(&json, body);
    json_put_object(&json);
    json_set_text(&json, "templateID", cay_config_text(config, "template"));
    json_set_uint(&json, "timeout", e2b->settings.timeout_s);
    json_set_bool(&json, "autoPause",
                  after ? strcmp(after, "pause") == 0
                        : cay_config_boolean(config, "persist_sandbox"));
    json_put_key(&json, "metadata");
    put_map(&json, config, "metadata");
    if (mark)
        json_set_text(&json, mark_key, mark);
    json_put_end(&json);
    json_put_key(&json, "envVars");
    put_map(&json, config, "envs");
    json_put_end(&json);
    if (is_old) /* /v2 always issues a token for envd */
        json_set_bool(&json, "secure", true);
    json_put_end(&json);
    return json_finish(&json);
}

int e2b_api_create(struct e2b *e2b, const cay_config *config, const char *mark,
                   struct cay_error *err)
{
    static const char op[] = "sandbox.create";
    AUTO_BUF body, old_body;
    E2B_REQUEST request = {0};
    struct api_request api = {.op = op, .method = "POST", .body = &body};

    bool is_written = write_create(&body, e2b, config, mark, false);
    is_written = write_create(&old_body, e2b, config, mark, true) && is_written;
    if (!is_written)
        return cay_fail(err, CAY_E_INVALID, 0, op, "metadata",
                        "the metadata and variables are too large, or not UTF-8",
                        "the limit is 4 MiB");
    int code = send_either(e2b, &api, &old_body, "/sandboxes", &request, err);
    if (!code)
        code = e2b_reply_check(e2b, &request, cay_config_text(config, "template"),
                               CAY_E_UNAVAILABLE, err);
    return code ? code : read_sandbox(e2b, &request, err);
}

/* --- Find --- */

/* The service decodes the filter three times; in a mark and its key only "=" needs it. */
static void write_list_path(struct buf *path, const char *mark, const char *page)
{
    path->len = 0;
    buf_format(path, "/sandboxes?metadata=%s%%3D%s&state=running,paused", mark_key, mark);
    if (*page)
        buf_text(path, "&nextToken=");
    for (; *page; page++)
        buf_format(path, isalnum((unsigned char)*page) ? "%c" : "%%%02X",
                   (unsigned char)*page);
}

/* Compares the marks again, since some servers ignore the filter. */
static bool find_in_page(struct e2b *e2b, const json_t *list, const char *mark,
                         bool *ret_is_paused)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *id = e2b_value_text(one, "sandboxID");
        const char *state = e2b_value_text(one, "state");
        const char *its_mark = e2b_value_text(json_object_get(one, "metadata"), mark_key);
        if (!its_mark || strcmp(its_mark, mark) != 0 || !id ||
            check_id(id, "sandbox.find", CAY_E_PROTOCOL, NULL))
            continue;
        cay_copy_text(e2b->id, sizeof e2b->id, id);
        *ret_is_paused = state && strcmp(state, "paused") == 0;
        return true;
    }
    return false;
}

int e2b_api_find(struct e2b *e2b, const char *op, const char *mark, bool *ret_is_paused,
                 struct cay_error *err)
{
    const struct api_request api = {
        .op = op, .method = "GET", .repeatable = true, .reply_max = LIST_MAX};
    char page[sizeof((struct e2b_request *)0)->next_page] = "";
    AUTO_BUF path;

    buf_init(&path, PATH_MAX_LEN - 4);
    for (int i = 0; i < PAGES_MAX && (i == 0 || *page); i++) {
        E2B_REQUEST request = {0};
        write_list_path(&path, mark, page);
        if (path.failed)
            return cay_fail_memory(err, op);
        int code = send_either(e2b, &api, NULL, path.data, &request, err);
        if (!code)
            code = e2b_reply_check(e2b, &request, mark, CAY_E_UNAVAILABLE, err);
        if (code)
            return code;
        AUTO_JSON list = e2b_reply_load(&request);
        if (!json_is_array(list))
            return e2b_reply_malformed(op, request.origin->host,
                                       "the list of sandboxes is not an array", err);
        if (find_in_page(e2b, list, mark, ret_is_paused))
            return CAY_OK;
        memcpy(page, request.next_page, sizeof page);
    }
    return cay_fail(err, *page ? CAY_E_LIMIT : CAY_E_NOT_FOUND, 0, op, mark,
                    "no sandbox has this mark",
                    "the sandbox was never created, or has ended");
}

/* --- Connect, pause, kill --- */

int e2b_api_connect(struct e2b *e2b, const char *op, struct cay_error *err)
{
    E2B_REQUEST request = {0};
    const struct api_request api = {.op = op, .method = "POST", .repeatable = true};

    int code = check_id(e2b->id, op, CAY_E_NOT_FOUND, err);
    if (!code)
        code = send_action(e2b, &api, "/connect", "timeout", e2b->settings.timeout_s,
                           &request, err);
    if (!code)
        code = check(e2b, &request, err);
    return code ? code : read_sandbox(e2b, &request, err);
}

int e2b_api_detail(struct e2b *e2b, const char *op, uint64_t until_ms,
                   json_t **ret_detail, int64_t *ret_now_s, struct cay_error *err)
{
    const struct api_request api = {
        .op = op, .method = "GET", .repeatable = true, .until_ms = until_ms};
    E2B_REQUEST request = {0};

    int code = send_action(e2b, &api, "", NULL, 0, &request, err);
    if (!code)
        code = check(e2b, &request, err);
    if (!code)
        code = e2b_reply_object(&request, ret_detail, err);
    if (!code && ret_now_s)
        *ret_now_s = request.date_s > 0 ? request.date_s : time(NULL);
    return code;
}

bool e2b_api_is_paused(struct e2b *e2b, const char *op, int *ret_code)
{
    AUTO_JSON detail = NULL;
    struct cay_error error;

    *ret_code = e2b_api_detail(e2b, op, 0, &detail, NULL, &error);
    const char *state = e2b_value_text(detail, "state");
    return state && strcmp(state, "paused") == 0;
}

int e2b_api_pause(struct e2b *e2b, struct cay_error *err)
{
    static const char op[] = "sandbox.pause";
    const struct api_request api = {.op = op, .method = "POST", .repeatable = true};
    E2B_REQUEST request = {0};

    int unused, code = send_action(e2b, &api, "/pause", NULL, 0, &request, err);
    if (!code && request.status == 409 && e2b_api_is_paused(e2b, op, &unused))
        return CAY_OK;
    return code ? code : check(e2b, &request, err);
}

int e2b_api_kill(struct e2b *e2b, struct cay_error *err)
{
    const struct api_request api = {
        .op = "sandbox.kill", .method = "DELETE", .repeatable = true};
    E2B_REQUEST request = {0};

    int code = send_action(e2b, &api, "", NULL, 0, &request, err);
    if (!code && request.status == 404) /* it has ended already */
        return CAY_OK;
    return code ? code : check(e2b, &request, err);
}

/* --- Lifetime --- */

int e2b_api_set_timeout(struct e2b *e2b, const char *op, uint64_t seconds,
                        uint64_t until_ms, struct cay_error *err)
{
    const struct api_request api = {
        .op = op, .method = "POST", .repeatable = true, .until_ms = until_ms};
    E2B_REQUEST request = {0};

    int code = send_action(e2b, &api, "/timeout", "timeout", seconds, &request, err);
    if (!code)
        code = check(e2b, &request, err);
    if (!code)
        e2b->extended_ms = clock_ms();
    return code;
}

uint64_t e2b_api_keep_alive_due(const struct e2b *e2b)
{
    return e2b->settings.keepalive_s
               ? e2b->extended_ms + (uint64_t)e2b->settings.keepalive_s * 1000
               : UINT64_MAX;
}

/* Compares with the server's clock: with ours, a clock that is slow would shorten the
 * lifetime. */
static void extend_by_timeout(struct e2b *e2b, const char *op, uint64_t until_ms)
{
    AUTO_JSON detail = NULL;
    int64_t now = 0;

    if (e2b_api_detail(e2b, op, until_ms, &detail, &now, NULL))
        return;
    const char *state = e2b_value_text(detail, "state");
    int64_t end = e2b_value_time(detail, "endAt") / 1000000000;
    if (end > 0 && end < now + (int64_t)e2b->settings.timeout_s && state &&
        strcmp(state, "running") == 0)
        (void)e2b_api_set_timeout(e2b, op, e2b->settings.timeout_s, until_ms, NULL);
}

void e2b_api_keep_alive(struct e2b *e2b, uint64_t until_ms)
{
    static const char op[] = "sandbox.keep-alive";
    uint64_t now = clock_ms();
    const struct api_request api = {
        .op = op,
        .method = "POST",
        .repeatable = true,
        .until_ms = until_ms < now + KEEP_ALIVE_MS ? until_ms : now + KEEP_ALIVE_MS};
    E2B_REQUEST request = {0};

    if (now < e2b_api_keep_alive_due(e2b) || now >= until_ms)
        return;
    e2b->extended_ms = now;
    /* /refreshes never shortens the lifetime; some servers do not have it. */
    bool is_sent = e2b->settings.timeout_s <= REFRESH_MAX_S &&
                   send_action(e2b, &api, "/refreshes", "duration",
                               e2b->settings.timeout_s, &request, NULL) == CAY_OK;
    if (!is_sent || request.status == 404 || request.status == 405 ||
        request.status == 501)
        extend_by_timeout(e2b, op, api.until_ms);
}
