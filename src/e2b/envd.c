/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envd.h"

#include <ctype.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "e2b/api.h"
#include "e2b/messages.h"
#include "e2b/reply.h"
#include "json/json.h"

enum { BODY_MAX = 64 << 10, PASSWD_MAX = 1 << 20 };

/* --- Requests --- */

/* The password stays empty: the token authenticates the request. */
static void set_user(struct e2b_request *request, const char *user)
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
        set_user(request, user);
}

void e2b_envd_file_request(const struct e2b *e2b, struct e2b_request *request,
                           const char *op, const char *method, const char *user,
                           const char *path)
{
    e2b_request_init(request, op, method, &e2b->envd);
    buf_text(&request->path, "/files?path=");
    e2b_request_escape(request, path);
    if (!user && e2b->version < E2B_HAS_DEFAULT_USER)
        user = "user";
    if (user) {
        buf_text(&request->path, "&username=");
        e2b_request_escape(request, user);
    }
    e2b_envd_headers(e2b, request, user);
}

int e2b_envd_fail_absent(struct e2b *e2b, const char *op, struct cay_error *err)
{
    int code;
    bool is_paused = e2b_api_is_paused(e2b, op, &code);

    if (is_paused)
        return cay_fail(err, CAY_E_BUSY, 0, op, e2b->id, "the sandbox is paused",
                        "resume the sandbox first");
    if (code == CAY_E_NOT_FOUND)
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, e2b->id, "the sandbox has ended",
                        "create a new one; a longer timeout extends its lifetime");
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, e2b->id, "the sandbox does not reply",
                    "try again in a moment");
}

int e2b_envd_check(struct e2b *e2b, const struct e2b_request *request,
                   const char *subject, int fallback, struct cay_error *err)
{
    if (request->status == 502)
        return e2b_envd_fail_absent(e2b, request->op, err);
    return e2b_reply_check(e2b, request, subject, fallback, err);
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
        code = e2b_envd_check(e2b, &request, call->subject, call->fallback, err);
    if (!code)
        code = e2b_reply_object(&request, &reply, err);
    if (!code && ret_reply)
        *ret_reply = TAKE_PTR(reply);
    return code;
}

int e2b_call_texts(struct e2b *e2b, const struct e2b_call *call,
                   const char *const *fields, json_t **ret_reply, struct cay_error *err)
{
    struct json json;
    AUTO_BUF body;

    buf_init(&body, BODY_MAX);
    json_to_buf(&json, &body);
    json_put_object(&json);
    for (; *fields; fields += 2)
        json_set_text(&json, fields[0], fields[1]);
    json_put_end(&json);
    return e2b_call(e2b, call, &body, ret_reply, err);
}

/* --- Paths and texts --- */

int e2b_check_text(const char *op, const char *what, const char *text,
                   struct cay_error *err)
{
    if (utf8_is_valid(text, strlen(text)))
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, what,
                    "not UTF-8: the E2B protocol carries only text",
                    "use names, arguments and variables that are valid UTF-8");
}

/* Removes "", "." and ".." as envd does, so that the paths in its replies can be compared
 * with the path of the request. */
static void normalize(char *path)
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
    normalize(whole);
    *ret_path = whole;
    return CAY_OK;
}

/* --- Users and groups --- */

/* envd reports owners by name.  The sandbox's /etc/passwd and /etc/group have the
 * numbers; each is read once, and counts as empty if it cannot be read. */
static const char *read_names(struct e2b *e2b, char **cache, const char *path)
{
    E2B_REQUEST request = {0};
    const char *known = *cache;

    if (known)
        return known;
    e2b_envd_file_request(e2b, &request, "files.stat", "GET", "root", path);
    request.reply_max = PASSWD_MAX;
    request.repeatable = true;
    if (e2b_http_send(&e2b->http, &request, e2b->settings.retries,
                      clock_ms() + E2B_REPLY_MS, NULL) == CAY_OK &&
        e2b_request_succeeded(&request))
        *cache = buf_take(&request.reply);
    if (!*cache)
        *cache = strdup("");
    return *cache;
}

/* Reads the line "name:x:number:..." at *text and moves *text to the next line. */
static void read_name(const char **text, char *ret_name, size_t room,
                      uint32_t *ret_number)
{
    const char *line = *text, *number = line;
    size_t len = strcspn(line, ":\n"), end = strcspn(line, "\n");

    *ret_name = '\0';
    *ret_number = UINT32_MAX;
    *text += end + (line[end] == '\n');
    for (int colons = 0; colons < 2; colons++) {
        number = memchr(number, ':', (size_t)(line + end - number));
        if (!number++)
            return;
    }
    unsigned long value = strtoul(number, NULL, 10);
    if (len == 0 || len >= room || !isdigit((unsigned char)*number) ||
        value >= UINT32_MAX)
        return;
    memcpy(ret_name, line, len);
    ret_name[len] = '\0';
    *ret_number = (uint32_t)value;
}

/* UINT32_MAX if it is unknown. */
static uint32_t number_of(struct e2b *e2b, char **cache, const char *path,
                          const char *name)
{
    char known[sizeof e2b->user_name], *end;
    uint32_t number;

    if (!name || !*name)
        return UINT32_MAX;
    unsigned long value = strtoul(name, &end, 10);
    if (isdigit((unsigned char)*name) && !*end && value < UINT32_MAX)
        return (uint32_t)value;
    if (strcmp(name, "root") == 0)
        return 0;
    for (const char *text = read_names(e2b, cache, path); text && *text;) {
        read_name(&text, known, sizeof known, &number);
        if (strcmp(known, name) == 0)
            return number;
    }
    return UINT32_MAX;
}

const char *e2b_envd_user(struct e2b *e2b, const char *user)
{
    uint32_t number;

    if (!user || !*user || user[strspn(user, "0123456789")])
        return user;
    for (const char *text = read_names(e2b, &e2b->passwd, "/etc/passwd");
         text && *text;) {
        read_name(&text, e2b->user_name, sizeof e2b->user_name, &number);
        if (*e2b->user_name && number == strtoul(user, NULL, 10))
            return e2b->user_name;
    }
    return user;
}

/* --- Entries --- */

static enum cay_type read_type(const json_t *json)
{
    const char *name = e2b_value_text(json, "type");
    const char *permissions = e2b_value_text(json, "permissions");

    /* A link without a target, or a device; only some versions tell which. */
    if (!name || strcmp(name, "FILE_TYPE_UNSPECIFIED") == 0)
        return permissions && *permissions && *permissions != 'L' ? CAY_TYPE_OTHER : 0;
    return strcmp(name, "FILE_TYPE_FILE") == 0        ? CAY_TYPE_FILE
           : strcmp(name, "FILE_TYPE_DIRECTORY") == 0 ? CAY_TYPE_DIRECTORY
           : strcmp(name, "FILE_TYPE_SYMLINK") == 0   ? CAY_TYPE_LINK
                                                      : CAY_TYPE_OTHER;
}

const char *e2b_entry_read(struct e2b *e2b, const json_t *json,
                           struct e2b_entry *ret_entry)
{
    int64_t size = e2b_value_int(json, "size");
    int64_t mode = e2b_value_int(json, "mode");
    const char *target = e2b_value_text(json, "symlinkTarget");

    if (!json_is_object(json))
        return "an entry is not an object";
    *ret_entry = (struct e2b_entry){
        .path = e2b_value_text(json, "path"),
        .is_link = target && *target,
        .stat = {.type = read_type(json),
                 .mode = (uint32_t)mode & 07777,
                 .uid = number_of(e2b, &e2b->passwd, "/etc/passwd",
                                  e2b_value_text(json, "owner")),
                 .gid = number_of(e2b, &e2b->group, "/etc/group",
                                  e2b_value_text(json, "group")),
                 .bytes = (uint64_t)size,
                 .links = 1,
                 .mtime_ns = e2b_value_time(json, "modifiedTime")},
    };
    if (!ret_entry->path || *ret_entry->path != '/')
        return "an entry has no absolute path";
    return size < 0 ? "an entry has a negative size" : NULL;
}

int e2b_envd_stat(struct e2b *e2b, const char *op, const char *user, const char *path,
                  const char *subject, struct e2b_entry *ret_entry, struct cay_error *err)
{
    const struct e2b_call call = {.op = op,
                                  .subject = subject,
                                  .method = "filesystem.Filesystem/Stat",
                                  .user = user,
                                  .repeatable = true,
                                  .fallback = CAY_E_IO};
    AUTO_JSON reply = NULL;

    int code = e2b_call_texts(e2b, &call, (const char *const[]){"path", path, NULL},
                              &reply, err);
    if (code)
        return code;
    const char *wrong = e2b_entry_read(e2b, json_object_get(reply, "entry"), ret_entry);
    ret_entry->path = NULL;
    return wrong ? e2b_reply_malformed(op, subject, wrong, err) : CAY_OK;
}
