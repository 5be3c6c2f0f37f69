/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/e2b.h"

#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/api.h"
#include "e2b/messages.h"
#include "e2b/reply.h"
#include "e2b/script.h"
#include "sandbox/backend.h"

/* --- Create and connect --- */

static int check_mark(const char *mark, struct cay_error *err)
{
    if (strlen(mark) == 16 &&
        strspn(mark, "abcdefghijklmnopqrstuvwxyz234567") == strlen(mark))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "sandbox.mark", mark, "invalid mark",
                    "a mark has 16 letters a to z and digits 2 to 7");
}

/* Creates settings.workdir, owned by the default user. */
static int make_workdir(struct e2b *e2b, struct cay_error *err)
{
    static const char op[] = "sandbox.create";
    const char *path = e2b->settings.workdir;
    const struct e2b_script print_uid = {.text = "id -u\n"};
    struct e2b_script make = {.text = "mkdir -p -- \"$1\" && chown -- \"$2\" \"$1\"\n",
                              .user = "root"};
    struct cay_error error;
    int exit_code = 1;
    AUTO_BUF uid = {0};

    int code = e2b_files.mkdir(e2b, NULL, path, CAY_NAME_EXIST_OK, &error);
    if (code == CAY_E_DENIED) {
        buf_init(&uid, 64);
        code = e2b_script_run(e2b, &print_uid, op, &uid, &exit_code, &error);
        if (uid.len)
            uid.data[strcspn(uid.data, "\n")] = '\0';
        make.words[0] = path;
        make.words[1] = uid.data;
        if (!code && exit_code == 0)
            code = e2b_script_run(e2b, &make, op, NULL, &exit_code, &error);
        if (!code && exit_code)
            code = cay_fail(&error, CAY_E_DENIED, 0, op, path,
                            "the working directory cannot be created",
                            "choose a directory below the home directory");
    }
    if (code && err)
        *err = error;
    return code;
}

static int create_marked(void *data, const cay_config *config, const char *mark,
                         void **ret_cookie, struct cay_error *err)
{
    AUTO_E2B e2b = NULL;
    int code = mark ? check_mark(mark, err) : CAY_OK;

    (void)data;
    if (!code)
        code = e2b_new(config, "sandbox.create", &e2b, err);
    if (!code)
        code = e2b_api_create(e2b, config, mark, err);
    if (!code && cay_config_has(config, "work_dir"))
        code = make_workdir(e2b, err);
    if (!code)
        *ret_cookie = TAKE_PTR(e2b);
    else if (e2b && *e2b->id) /* the sandbox was created, but is not usable */
        (void)e2b_api_kill(e2b, NULL);
    return code;
}

static int create(void *data, const cay_config *config, void **ret_cookie,
                  struct cay_error *err)
{
    return create_marked(data, config, NULL, ret_cookie, err);
}

/* Does not connect to a paused sandbox: that would resume it. */
static int find_marked(void *data, const cay_config *config, const char *mark,
                       void **ret_cookie, struct cay_error *err)
{
    static const char op[] = "sandbox.find";
    AUTO_E2B e2b = NULL;
    bool is_paused = false;
    int code = check_mark(mark, err);

    (void)data;
    if (!code)
        code = e2b_new(config, op, &e2b, err);
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
    int code = e2b_new(config, op, &e2b, err);
    if (code)
        return code;
    if (strlen(id) >= sizeof e2b->id)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no sandbox has this id",
                        "an id has up to 63 letters, digits, \"-\" and \"_\"");
    cay_copy_text(e2b->id, sizeof e2b->id, id);
    code = e2b_api_connect(e2b, op, err);
    if (!code)
        *ret_cookie = TAKE_PTR(e2b);
    return code;
}

static void free_handle(void *cookie)
{
    e2b_free(cookie);
}

static const char *id_of(const void *cookie)
{
    return ((const struct e2b *)cookie)->id;
}

/* --- State and lifetime --- */

static int read_state(const struct e2b *e2b, const json_t *detail, const char *op,
                      enum cay_state *ret_state, struct cay_error *err)
{
    const char *state = e2b_value_text(detail, "state");

    if (!state || (strcmp(state, "running") != 0 && strcmp(state, "paused") != 0))
        return e2b_reply_malformed(op, e2b->id, "unknown state of the sandbox", err);
    *ret_state = *state == 'r' ? CAY_STATE_RUNNING : CAY_STATE_PAUSED;
    return CAY_OK;
}

static int state_of(void *cookie, enum cay_state *ret_state, struct cay_error *err)
{
    static const char op[] = "sandbox.state";
    AUTO_JSON detail = NULL;
    int code = e2b_api_detail(cookie, op, 0, &detail, NULL, err);

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

    int code = e2b_api_detail(cookie, op, 0, &detail, &now, err);
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

static int pause_sandbox(void *cookie, struct cay_error *err)
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
        return cay_fail(
            err, CAY_E_UNSUPPORTED, 0, op, e2b->id,
            "an E2B sandbox always has a time to live",
            "set a long one; keepalive_interval extends it while the sandbox is used");
    return e2b_api_set_timeout(e2b, op, (ttl_ms + 999) / 1000, 0, err);
}

static int kill_sandbox(void *cookie, struct cay_error *err)
{
    return e2b_api_kill(cookie, err);
}

const struct cay_backend backend_e2b = {
    .size = sizeof backend_e2b,
    .name = "e2b",
    .about = "sandboxes of the E2B cloud, or of a server with the same protocol",
    .fields = e2b_fields,
    .field_count = E2B_FIELDS,
    .create = create,
    .connect = connect_to,
    .free = free_handle,
    .id = id_of,
    .state = state_of,
    .inspect = inspect,
    .pause = pause_sandbox,
    .resume = resume,
    .set_ttl = set_ttl,
    .kill = kill_sandbox,
    .exec = e2b_exec,
    .files = &e2b_files,
    .processes = &e2b_processes,
    .create_marked = create_marked,
    .find_marked = find_marked,
    .late_ms = 2 * E2B_REPLY_MS,
};
