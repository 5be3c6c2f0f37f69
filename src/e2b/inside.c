/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "e2b/entry.h"

/* No password: the token has already said that everything is allowed. */
static void put_user(struct e2b_request *request, const char *user)
{
    size_t len = strlen(user) + 1, room = BASE64_ENCODE_RAW_LENGTH(len) + 1;
    AUTO_FREE char *plain = malloc(len + 1);
    AUTO_FREE char *value = malloc(6 + room);

    if (!plain || !value) {
        request->is_out_of_memory = true;
        return;
    }
    snprintf(plain, len + 1, "%s:", user);
    memcpy(value, "Basic ", 6);
    base64_encode_raw(value + 6, len, (const uint8_t *)plain);
    value[6 + room - 1] = '\0';
    e2b_request_header(request, "Authorization", value);
}

void e2b_envd_headers(const struct e2b *e2b, struct e2b_request *request,
                      const char *user)
{
    char port[16];

    snprintf(port, sizeof port, "%d", E2B_ENVD_PORT);
    request->is_envd = true;
    e2b_request_header(request, "E2b-Sandbox-Id", e2b->id);
    e2b_request_header(request, "E2b-Sandbox-Port", port);
    e2b_request_header(request, "User-Agent", "cay/" CAY_VERSION);
    if (e2b->token)
        e2b_request_header(request, "X-Access-Token", e2b->token);
    if (e2b->traffic_token)
        e2b_request_header(request, "E2B-Traffic-Access-Token", e2b->traffic_token);
    if (!user && e2b->version < E2B_HAS_DEFAULT_USER)
        user = "user";
    if (user)
        put_user(request, user);
}

int e2b_call(struct e2b *e2b, const struct e2b_call *call, const struct buf *body,
             json_t **ret_reply, struct cay_error *err)
{
    E2B_REQUEST request;
    AUTO_JSON reply = NULL;

    const char *user = e2b_envd_user(e2b, call->user);
    e2b_request_init(&request, call->op, "POST", &e2b->envd);
    if (body->failed)
        return cay_fail_memory(err, call->op);
    buf_format(&request.path, "/%s", call->method);
    request.body = body->data;
    request.body_len = body->len;
    request.repeatable = call->repeatable;
    request.reply_max = call->reply_max;
    e2b_envd_headers(e2b, &request, user);
    e2b_request_header(&request, "Content-Type", "application/json");
    e2b_request_header(&request, "Connect-Protocol-Version", "1");
    int code =
        e2b_http_send(&e2b->http, &request, e2b->settings.retries,
                      call->until_ms ? call->until_ms : clock_ms() + E2B_REPLY_MS, err);
    if (!code)
        code = e2b_reply_check(e2b, &request, call->subject, call->fallback, err);
    if (!code)
        code = e2b_reply_json(&request, &reply, err);
    if (!code && ret_reply)
        *ret_reply = TAKE_PTR(reply);
    return code;
}

int e2b_check_text(const char *op, const char *what, const char *text,
                   struct cay_error *err)
{
    if (utf8_is_valid(text, strlen(text)))
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, what,
                    "not UTF-8: the E2B protocol carries only text",
                    "use names, arguments and variables that are valid UTF-8");
}

/* Without "", "." and "..", as the daemon would do it; so what it answers can be held
 * against what it was asked. */
static void tidy(char *path)
{
    char *put = path;

    for (const char *at = path; *at;) {
        size_t len = strcspn(at, "/");
        if (len == 2 && at[0] == '.' && at[1] == '.') {
            while (put > path && *--put != '/')
                continue;
        } else if (len > 0 && !(len == 1 && *at == '.')) {
            *put++ = '/';
            memmove(put, at, len);
            put += len;
        }
        at += len;
        at += *at == '/';
    }
    if (put == path)
        *put++ = '/';
    *put = '\0';
}

int e2b_path(const struct e2b *e2b, const char *op, const char *path, char **ret_path,
             struct cay_error *err)
{
    size_t room = strlen(e2b->settings.workdir) + strlen(path) + 3;

    int code = e2b_check_text(op, path, path, err);
    if (code)
        return code;
    char *whole = malloc(room);
    if (!whole)
        return cay_fail_memory(err, op);
    if (*path == '/')
        snprintf(whole, room, "%s", path);
    else
        snprintf(whole, room, "%s/%s", e2b->settings.workdir, path);
    tidy(whole);
    *ret_path = whole;
    return CAY_OK;
}
