/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/e2b.h"
#include "e2b/messages.h"
#include "json/json.h"

enum {
    BODY_MAX = 4 << 20,
    PATH_MAX_LEN = 1024,
    LIST_MAX = 16 << 20,
    PAGES_MAX = 1000,
    KEEP_ALIVE_MS = 5000
};

/* In the metadata: by this a sandbox is found whose maker never heard its id. */
static const char mark_key[] = "cay-mark";

/* --- Asking --- */

struct question {
    const char *op, *method, *subject;
    bool repeatable;
    const struct buf *body; /* NULL: none */
    uint64_t until_ms;      /* 0: E2B_REPLY_MS from now */
    size_t reply_max;       /* 0: E2B_REPLY_MAX */
};

/* `path` is below the service's address. */
static int ask(struct e2b *e2b, const struct question *question, const char *path,
               struct e2b_request *request, struct cay_error *err)
{
    e2b_request_init(request, question->op, question->method, &e2b->settings.api);
    buf_text(&request->path, path);
    request->repeatable = question->repeatable;
    request->reply_max = question->reply_max;
    e2b_request_header(request, "X-API-KEY", e2b->settings.key);
    e2b_request_header(request, "User-Agent", "cay/" CAY_VERSION);
    if (question->body) {
        request->body = question->body->data;
        request->body_len = question->body->len;
        e2b_request_header(request, "Content-Type", "application/json");
    }
    return e2b_http_send(
        &e2b->http, request, e2b->settings.retries,
        question->until_ms ? question->until_ms : clock_ms() + E2B_REPLY_MS, err);
}

/* What is not /v2/ is the same for all; older servers have no /v2/. */
static int ask_either(struct e2b *e2b, const struct question *question,
                      const struct buf *old_body, const char *path,
                      struct e2b_request *request, struct cay_error *err)
{
    struct question old = *question;
    char newer[PATH_MAX_LEN];

    snprintf(newer, sizeof newer, "/v2%s", path);
    int code = ask(e2b, question, newer, request, err);
    if (code || (request->status != 404 && request->status != 405))
        return code;
    e2b_request_done(request);
    old.body = old_body;
    return ask(e2b, &old, path, request, err);
}

static int check_id(const char *id, const char *op, int code, struct cay_error *err)
{
    size_t len = strlen(id);

    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)id[i]) && id[i] != '-' && id[i] != '_')
            len = 0;
    if (len > 0 && len < sizeof((struct e2b *)0)->id && isalnum((unsigned char)*id))
        return CAY_OK;
    return cay_fail(err, code, 0, op, "sandbox_id", "this cannot be the id of a sandbox",
                    "an id has up to 63 letters, digits, \"-\" and \"_\"");
}

/* --- What a sandbox is like --- */

/* Of one that does not tell, the best is assumed. */
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

/* Header values: a line end in one would begin another header. */
static int take_token(const json_t *reply, const char *name, const char *op,
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

static bool is_shared_domain(const char *domain)
{
    static const char *const domains[] = {"e2b.app", "e2b.dev", "e2b.pro",
                                          "e2b-staging.dev"};

    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++)
        if (strcmp(domain, domains[i]) == 0)
            return true;
    return false;
}

static int find_envd(struct e2b *e2b, const char *domain, const char *op,
                     struct cay_error *err)
{
    const struct e2b_settings *settings = &e2b->settings;
    char url[512];

    if (settings->sandbox_url)
        return e2b_origin_parse(settings->sandbox_url, op, "sandbox_url", &e2b->envd,
                                err);
    if (!domain || !*domain)
        domain = settings->domain;
    if (!e2b_origin_is_domain(domain))
        return e2b_reply_malformed(op, "domain", "the sandbox's domain is not one", err);
    if (is_shared_domain(domain) && !settings->force_http)
        snprintf(url, sizeof url, "https://sandbox.%s", domain);
    else
        snprintf(url, sizeof url, "%s://%d-%s.%s",
                 settings->force_http ? "http" : "https", E2B_ENVD_PORT, e2b->id, domain);
    return e2b_origin_parse(url, op, "domain", &e2b->envd, err);
}

static int adopt(struct e2b *e2b, const struct e2b_request *request,
                 struct cay_error *err)
{
    AUTO_JSON reply = NULL;
    int code = e2b_reply_json(request, &reply, err);

    if (code)
        return code;
    const char *id = e2b_value_text(reply, "sandboxID");
    if (!id || check_id(id, request->op, CAY_E_PROTOCOL, NULL))
        return e2b_reply_malformed(request->op, "sandboxID",
                                   "the sandbox has no id, or an odd one", err);
    cay_copy_text(e2b->id, sizeof e2b->id, id);
    e2b->version = read_version(e2b_value_text(reply, "envdVersion"));
    e2b->extended_ms = clock_ms();
    code = take_token(reply, "envdAccessToken", request->op, &e2b->token, err);
    if (!code)
        code = take_token(reply, "trafficAccessToken", request->op, &e2b->traffic_token,
                          err);
    if (!code)
        code = find_envd(e2b, e2b_value_text(reply, "domain"), request->op, err);
    return code;
}

/* --- Making one --- */

static void put_map(struct json *json, const cay_config *config, const char *field)
{
    const char *key, *value;

    json_put_object(json);
    for (size_t i = 0; cay_config_item(config, field, i, &key, &value); i++)
        json_set_text(json, key, value);
}

/* What happens to it when its time is over. */
static bool pauses(const cay_config *config)
{
    const char *after = cay_config_text(config, "status_after_run");

    return after ? strcmp(after, "pause") == 0
                 : cay_config_boolean(config, "persist_sandbox");
}

static bool write_new(struct buf *body, const struct e2b *e2b, const cay_config *config,
                      const char *mark, bool is_old)
{
    struct json json;

    buf_init(body, BODY_MAX);
    json_to_buf(&json, body);
    json_put_object(&json);
    json_set_text(&json, "templateID", cay_config_text(config, "template"));
    json_set_uint(&json, "timeout", e2b->settings.timeout_s);
    json_set_bool(&json, "autoPause", pauses(config));
    json_put_key(&json, "metadata");
    put_map(&json, config, "metadata");
    if (mark)
        json_set_text(&json, mark_key, mark);
    json_put_end(&json);
    json_put_key(&json, "envVars");
    put_map(&json, config, "envs");
    json_put_end(&json);
    if (is_old) /* later ones always are */
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
    struct question question = {.op = op, .method = "POST", .body = &body};

    bool fine = write_new(&body, e2b, config, mark, false);
    fine = write_new(&old_body, e2b, config, mark, true) && fine;
    if (!fine)
        return cay_fail(err, CAY_E_INVALID, 0, op, "metadata",
                        "the metadata and variables are too much, or not text",
                        "keep them below 4 MiB");
    int code = ask_either(e2b, &question, &old_body, "/sandboxes", &request, err);
    if (!code)
        code = e2b_reply_check(e2b, &request, cay_config_text(config, "template"),
                               CAY_E_UNAVAILABLE, err);
    return code ? code : adopt(e2b, &request, err);
}

/* --- Finding one --- */

/* A query, escaped three times over; a mark and its key need that for "=" only. */
static void write_list(struct buf *path, const char *mark, const char *page)
{
    path->len = 0;
    buf_format(path, "/sandboxes?metadata=%s%%3D%s&state=running,paused", mark_key, mark);
    if (*page)
        buf_text(path, "&nextToken=");
    for (; *page; page++)
        buf_format(path, isalnum((unsigned char)*page) ? "%c" : "%%%02X",
                   (unsigned char)*page);
}

/* True if it is in this part of the list; servers that do not filter are no harm. */
static bool take_listed(struct e2b *e2b, const json_t *list, const char *mark,
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
    const struct question question = {
        .op = op, .method = "GET", .repeatable = true, .reply_max = LIST_MAX};
    char page[sizeof((struct e2b_request *)0)->next_page] = "";
    AUTO_BUF path;

    buf_init(&path, PATH_MAX_LEN - 4);
    for (int i = 0; i < PAGES_MAX && (i == 0 || *page); i++) {
        E2B_REQUEST request = {0};
        write_list(&path, mark, page);
        if (path.failed)
            return cay_fail_memory(err, op);
        int code = ask_either(e2b, &question, NULL, path.data, &request, err);
        if (!code)
            code = e2b_reply_check(e2b, &request, mark, CAY_E_UNAVAILABLE, err);
        if (code)
            return code;
        AUTO_JSON list = json_loadb(request.reply.data ? request.reply.data : "",
                                    request.reply.len, 0, NULL);
        if (!json_is_array(list))
            return e2b_reply_malformed(op, request.origin->host,
                                       "the sandboxes are not a list", err);
        if (take_listed(e2b, list, mark, ret_is_paused))
            return CAY_OK;
        memcpy(page, request.next_page, sizeof page);
    }
    return cay_fail(err, *page ? CAY_E_LIMIT : CAY_E_NOT_FOUND, 0, op, mark,
                    "no sandbox has this mark", "it was never made, or has ended");
}

/* --- The one that there is --- */

static int ask_seconds(struct e2b *e2b, const struct question *question,
                       const char *action, const char *name, uint64_t seconds,
                       struct e2b_request *request, struct cay_error *err)
{
    struct question whole = *question;
    char path[128];
    AUTO_BUF body;

    buf_init(&body, 128);
    buf_format(&body, "{\"%s\":%llu}", name, (unsigned long long)seconds);
    snprintf(path, sizeof path, "/sandboxes/%s/%s", e2b->id, action);
    whole.body = &body;
    if (strcmp(action, "connect") == 0)
        return ask_either(e2b, &whole, &body, path, request, err);
    return ask(e2b, &whole, path, request, err);
}

int e2b_api_connect(struct e2b *e2b, const char *op, struct cay_error *err)
{
    E2B_REQUEST request = {0};
    const struct question question = {.op = op, .method = "POST", .repeatable = true};

    int code = check_id(e2b->id, op, CAY_E_NOT_FOUND, err);
    if (!code)
        code = ask_seconds(e2b, &question, "connect", "timeout", e2b->settings.timeout_s,
                           &request, err);
    if (!code)
        code = e2b_reply_check(e2b, &request, e2b->id, CAY_E_UNAVAILABLE, err);
    return code ? code : adopt(e2b, &request, err);
}

static int ask_plain(struct e2b *e2b, const struct question *question, const char *action,
                     struct e2b_request *request, struct cay_error *err)
{
    char path[128];

    snprintf(path, sizeof path, "/sandboxes/%s%s", e2b->id, action);
    return ask(e2b, question, path, request, err);
}

static int ask_detail(struct e2b *e2b, const char *op, uint64_t until_ms,
                      json_t **ret_detail, int64_t *ret_now_s, struct cay_error *err)
{
    const struct question question = {
        .op = op, .method = "GET", .repeatable = true, .until_ms = until_ms};
    E2B_REQUEST request = {0};

    int code = ask_plain(e2b, &question, "", &request, err);
    if (!code)
        code = e2b_reply_check(e2b, &request, e2b->id, CAY_E_UNAVAILABLE, err);
    if (!code)
        code = e2b_reply_json(&request, ret_detail, err);
    if (!code && ret_now_s)
        *ret_now_s = request.date_s > 0 ? request.date_s : time(NULL);
    return code;
}

int e2b_api_detail(struct e2b *e2b, const char *op, json_t **ret_detail,
                   int64_t *ret_now_s, struct cay_error *err)
{
    return ask_detail(e2b, op, 0, ret_detail, ret_now_s, err);
}

bool e2b_api_is_paused(struct e2b *e2b, const char *op, int *ret_code)
{
    AUTO_JSON detail = NULL;
    struct cay_error error;

    *ret_code = e2b_api_detail(e2b, op, &detail, NULL, &error);
    const char *state = e2b_value_text(detail, "state");
    return state && strcmp(state, "paused") == 0;
}

int e2b_api_pause(struct e2b *e2b, struct cay_error *err)
{
    static const char op[] = "sandbox.pause";
    AUTO_BUF body;
    const struct question question = {
        .op = op, .method = "POST", .repeatable = true, .body = &body};
    E2B_REQUEST request = {0};

    buf_init(&body, 16);
    buf_text(&body, "{}");
    int unused, code = ask_plain(e2b, &question, "/pause", &request, err);
    if (!code && request.status == 409 && e2b_api_is_paused(e2b, op, &unused))
        return CAY_OK;
    return code ? code : e2b_reply_check(e2b, &request, e2b->id, CAY_E_UNAVAILABLE, err);
}

/* One that is gone is what was wanted. */
int e2b_api_kill(struct e2b *e2b, struct cay_error *err)
{
    const struct question question = {
        .op = "sandbox.kill", .method = "DELETE", .repeatable = true};
    E2B_REQUEST request = {0};

    int code = ask_plain(e2b, &question, "", &request, err);
    if (!code && request.status == 404)
        return CAY_OK;
    return code ? code : e2b_reply_check(e2b, &request, e2b->id, CAY_E_UNAVAILABLE, err);
}

static int set_timeout(struct e2b *e2b, const char *op, uint64_t seconds,
                       uint64_t until_ms, struct cay_error *err)
{
    const struct question question = {
        .op = op, .method = "POST", .repeatable = true, .until_ms = until_ms};
    E2B_REQUEST request = {0};

    int code = ask_seconds(e2b, &question, "timeout", "timeout", seconds, &request, err);
    if (!code)
        code = e2b_reply_check(e2b, &request, e2b->id, CAY_E_UNAVAILABLE, err);
    if (!code)
        e2b->extended_ms = clock_ms();
    return code;
}

int e2b_api_set_timeout(struct e2b *e2b, const char *op, uint64_t seconds,
                        struct cay_error *err)
{
    return set_timeout(e2b, op, seconds, 0, err);
}

/* --- Its life --- */

uint64_t e2b_keep_alive_due(const struct e2b *e2b)
{
    return e2b->settings.keepalive_s
               ? e2b->extended_ms + (uint64_t)e2b->settings.keepalive_s * 1000
               : UINT64_MAX;
}

/* By the server's clock, so that two that differ cannot shorten a life. */
static void prolong_by_hand(struct e2b *e2b, const char *op, uint64_t until_ms)
{
    AUTO_JSON detail = NULL;
    int64_t now = 0;

    if (ask_detail(e2b, op, until_ms, &detail, &now, NULL))
        return;
    const char *state = e2b_value_text(detail, "state");
    int64_t end = e2b_value_time(detail, "endAt") / 1000000000;
    if (end > 0 && end < now + (int64_t)e2b->settings.timeout_s && state &&
        strcmp(state, "running") == 0)
        (void)set_timeout(e2b, op, e2b->settings.timeout_s, until_ms, NULL);
}

void e2b_keep_alive(struct e2b *e2b, uint64_t until_ms)
{
    static const char op[] = "sandbox.keep-alive";
    uint64_t now = clock_ms();
    const struct question question = {
        .op = op,
        .method = "POST",
        .repeatable = true,
        .until_ms = until_ms < now + KEEP_ALIVE_MS ? until_ms : now + KEEP_ALIVE_MS};
    E2B_REQUEST request = {0};

    if (now < e2b_keep_alive_due(e2b) || now >= until_ms)
        return;
    e2b->extended_ms = now;
    /* This prolongs and never shortens, in one step; but not every server has it. */
    bool can = e2b->settings.timeout_s <= E2B_REFRESH_MAX &&
               ask_seconds(e2b, &question, "refreshes", "duration",
                           e2b->settings.timeout_s, &request, NULL) == CAY_OK;
    if (!can || request.status == 404 || request.status == 405 || request.status == 501)
        prolong_by_hand(e2b, op, question.until_ms);
}
