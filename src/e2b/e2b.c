/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/e2b.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/command.h"
#include "e2b/entry.h"
#include "e2b/messages.h"
#include "sandbox/backend.h"

/* --- Handles --- */

void e2b_free(struct e2b *e2b)
{
    if (!e2b)
        return;
    e2b_http_done(&e2b->http);
    e2b_settings_done(&e2b->settings);
    if (e2b->token)
        explicit_bzero(e2b->token, strlen(e2b->token));
    free(e2b->token);
    free(e2b->traffic_token);
    e2b_names_free(e2b->users);
    e2b_names_free(e2b->groups);
    free(e2b);
}

static void free_it(void *cookie)
{
    e2b_free(cookie);
}

static int new_handle(const char *op, struct e2b **ret_e2b, struct cay_error *err)
{
    struct e2b *e2b = calloc(1, sizeof *e2b);

    if (!e2b)
        return cay_fail_memory(err, op);
    int code = e2b_http_init(&e2b->http, op, err);
    if (code)
        e2b_free(e2b);
    else
        *ret_e2b = e2b;
    return code;
}

static bool copy_text(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

int e2b_dup(const struct e2b *e2b, const char *op, struct e2b **ret_copy,
            struct cay_error *err)
{
    const struct e2b_settings *settings = &e2b->settings;
    AUTO_E2B copy = NULL;
    int code = new_handle(op, &copy, err);

    if (code)
        return code;
    copy->settings = *settings;
    copy->settings.key = copy->settings.domain = NULL;
    copy->settings.sandbox_url = copy->settings.workdir = NULL;
    memcpy(copy->id, e2b->id, sizeof copy->id);
    copy->envd = e2b->envd;
    copy->version = e2b->version;
    copy->extended_ms = e2b->extended_ms;
    if (!copy_text(&copy->settings.key, settings->key) ||
        !copy_text(&copy->settings.domain, settings->domain) ||
        !copy_text(&copy->settings.sandbox_url, settings->sandbox_url) ||
        !copy_text(&copy->settings.workdir, settings->workdir) ||
        !copy_text(&copy->token, e2b->token) ||
        !copy_text(&copy->traffic_token, e2b->traffic_token))
        return cay_fail_memory(err, op);
    *ret_copy = TAKE_PTR(copy);
    return CAY_OK;
}

static int open_handle(const cay_config *config, const char *op, struct e2b **ret_e2b,
                       struct cay_error *err)
{
    AUTO_E2B e2b = NULL;
    int code = new_handle(op, &e2b, err);

    if (!code)
        code = e2b_settings_read(config, op, &e2b->settings, err);
    if (!code)
        *ret_e2b = TAKE_PTR(e2b);
    return code;
}

/* --- Making and reaching one --- */

static int check_mark(const char *mark, struct cay_error *err)
{
    if (strlen(mark) == 16 &&
        strspn(mark, "abcdefghijklmnopqrstuvwxyz234567") == strlen(mark))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "sandbox.mark", mark, "this is no mark",
                    "a mark has 16 letters a to z and digits 2 to 7");
}

static int create_marked(void *data, const cay_config *config, const char *mark,
                         void **ret_cookie, struct cay_error *err)
{
    AUTO_E2B e2b = NULL;
    int code = mark ? check_mark(mark, err) : CAY_OK;

    (void)data;
    if (!code)
        code = open_handle(config, "sandbox.create", &e2b, err);
    if (!code)
        code = e2b_api_create(e2b, config, mark, err);
    if (code) {
        if (e2b && *e2b->id) /* it was made, but cannot be used */
            (void)e2b_api_kill(e2b, NULL);
        return code;
    }
    if (cay_config_has(config, "work_dir"))
        code = e2b_script_make_workdir(e2b, err);
    if (code) {
        (void)e2b_api_kill(e2b, NULL);
        return code;
    }
    *ret_cookie = TAKE_PTR(e2b);
    return CAY_OK;
}

static int create(void *data, const cay_config *config, void **ret_cookie,
                  struct cay_error *err)
{
    return create_marked(data, config, NULL, ret_cookie, err);
}

/* To reach one that is paused would be to resume it. */
static int find_marked(void *data, const cay_config *config, const char *mark,
                       void **ret_cookie, struct cay_error *err)
{
    static const char op[] = "sandbox.find";
    AUTO_E2B e2b = NULL;
    bool is_paused = false;
    int code = check_mark(mark, err);

    (void)data;
    if (!code)
        code = open_handle(config, op, &e2b, err);
    if (!code)
        code = e2b_api_find(e2b, op, mark, &is_paused, err);
    if (!code && !is_paused)
        code = e2b_api_connect(e2b, op, err);
    if (!code)
        *ret_cookie = TAKE_PTR(e2b);
    return code;
}

static int connect_to(void *data, const cay_config *config, const char *id,
                      void **ret_cookie, struct cay_error *err)
{
    static const char op[] = "sandbox.connect";
    AUTO_E2B e2b = NULL;

    (void)data;
    int code = open_handle(config, op, &e2b, err);
    if (code)
        return code;
    if (strlen(id) >= sizeof e2b->id)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no sandbox has such an id",
                        "an id has up to 63 letters, digits, \"-\" and \"_\"");
    cay_copy_text(e2b->id, sizeof e2b->id, id);
    code = e2b_api_connect(e2b, op, err);
    if (!code)
        *ret_cookie = TAKE_PTR(e2b);
    return code;
}

static const char *id_of(const void *cookie)
{
    return ((const struct e2b *)cookie)->id;
}

/* --- Its life --- */

static int read_state(const struct e2b *e2b, const json_t *detail, const char *op,
                      enum cay_state *ret_state, struct cay_error *err)
{
    const char *state = e2b_value_text(detail, "state");

    if (!state || (strcmp(state, "running") != 0 && strcmp(state, "paused") != 0))
        return e2b_reply_malformed(op, e2b->id, "the sandbox is in no known state", err);
    *ret_state = *state == 'r' ? CAY_STATE_RUNNING : CAY_STATE_PAUSED;
    return CAY_OK;
}

static int state_of(void *cookie, enum cay_state *ret_state, struct cay_error *err)
{
    static const char op[] = "sandbox.state";
    AUTO_JSON detail = NULL;
    int code = e2b_api_detail(cookie, op, &detail, NULL, err);

    return code ? code : read_state(cookie, detail, op, ret_state, err);
}

static int inspect(void *cookie, struct cay_sandbox_info *ret_info, struct cay_error *err)
{
    static const char op[] = "sandbox.inspect";
    const struct e2b *e2b = cookie;
    struct cay_sandbox_info info = {.network = CAY_NETWORK_HOST,
                                    .storage = CAY_STORAGE_DISK};
    AUTO_JSON detail = NULL;
    int64_t now = 0;

    int code = e2b_api_detail(cookie, op, &detail, &now, err);
    if (!code)
        code = read_state(e2b, detail, op, &info.state, err);
    if (code)
        return code;
    const char *alias = e2b_value_text(detail, "alias");
    const char *template_id = e2b_value_text(detail, "templateID");
    int64_t left = e2b_value_time(detail, "endAt") / 1000000 - now * 1000;
    cay_copy_text(info.id, sizeof info.id, e2b->id);
    cay_copy_text(info.template_name, sizeof info.template_name,
                  alias && *alias ? alias
                  : template_id   ? template_id
                                  : "");
    cay_copy_text(info.workdir, sizeof info.workdir, e2b->settings.workdir);
    info.created_ms = e2b_value_time(detail, "startedAt") / 1000000;
    info.ttl_left_ms = left > 0 && info.state == CAY_STATE_RUNNING ? (uint64_t)left : 0;
    info.memory_bytes = (uint64_t)e2b_value_int(detail, "memoryMB") << 20;
    info.disk_bytes = (uint64_t)e2b_value_int(detail, "diskSizeMB") << 20;
    info.cpu_percent = (uint32_t)e2b_value_int(detail, "cpuCount") * 100;
    if (json_is_false(json_object_get(detail, "allowInternetAccess")))
        info.network = CAY_NETWORK_NONE;
    *ret_info = info;
    return CAY_OK;
}

static int pause_it(void *cookie, struct cay_error *err)
{
    return e2b_api_pause(cookie, err);
}

static int resume(void *cookie, struct cay_error *err)
{
    return e2b_api_connect(cookie, "sandbox.resume", err);
}

static int set_ttl(void *cookie, uint64_t ttl_ms, struct cay_error *err)
{
    static const char op[] = "sandbox.ttl";
    struct e2b *e2b = cookie;

    if (ttl_ms == 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, e2b->id,
                        "an E2B sandbox always has a time to live",
                        "give it a long one; keepalive_interval prolongs it while used");
    return e2b_api_set_timeout(e2b, op, (ttl_ms + 999) / 1000, err);
}

static int kill_it(void *cookie, struct cay_error *err)
{
    return e2b_api_kill(cookie, err);
}

const struct cay_backend backend_e2b = {
    .size = sizeof backend_e2b,
    .name = "e2b",
    .about = "Sandboxes of the E2B cloud, or of a server that speaks its protocol.",
    .fields = e2b_fields,
    .field_count = E2B_FIELDS,
    .create = create,
    .connect = connect_to,
    .free = free_it,
    .id = id_of,
    .state = state_of,
    .inspect = inspect,
    .pause = pause_it,
    .resume = resume,
    .set_ttl = set_ttl,
    .kill = kill_it,
    .exec = e2b_exec,
    .files = &e2b_files,
    .processes = &e2b_processes,
    .create_marked = create_marked,
    .find_marked = find_marked,
    .late_ms = 2 * E2B_REPLY_MS,
};
