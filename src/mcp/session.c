/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/session.h"

#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/volume.h"

enum { RENEW_PART = 16 /* of the time to live, between renewals */ };

static const char op[] = "mcp.session";

/* --- Roots --- */

void mcp_session_init(struct mcp_session *session, const struct mcp_options *options)
{
    *session = (struct mcp_session){.options = options, .box_count = 1};
}

static void drop_roots(struct mcp_session *session)
{
    for (size_t i = 0; i < session->root_count; i++) {
        free((void *)(uintptr_t)session->roots[i].source);
        free((void *)(uintptr_t)session->roots[i].target);
    }
    session->root_count = 0;
}

static int hex_of(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    letter = (char)(letter | 32);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* The path of "file:///PATH" or "file://localhost/PATH"; NULL if it is no such thing. */
static char *path_of(const char *uri)
{
    static const char scheme[] = "file://", local[] = "localhost";

    if (!uri || strncmp(uri, scheme, strlen(scheme)) != 0)
        return NULL;
    uri += strlen(scheme);
    if (strncmp(uri, local, strlen(local)) == 0)
        uri += strlen(local);
    char *path = *uri == '/' ? malloc(strlen(uri) + 1) : NULL, *to = path;
    while (path && *uri) {
        int high = *uri == '%' ? hex_of(uri[1]) : -1;
        int low = high >= 0 ? hex_of(uri[2]) : -1;
        *to++ = low >= 0 ? (char)(high * 16 + low) : *uri;
        uri += low >= 0 ? 3 : 1;
    }
    if (path)
        *to = '\0';
    return path;
}

/* A directory has the same path inside, so that paths in its files stay right; but only
 * root enters /root, and /usr and others belong to the system. */
static char *place_of(const char *dir)
{
    static const char *const closed[] = {"/root", "/usr", "/etc",  "/bin", "/lib",
                                         "/sbin", "/dev", "/proc", "/sys"};
    bool is_closed = strcmp(dir, "/") == 0;
    char *place = NULL;

    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        size_t len = strlen(closed[i]);
        is_closed = is_closed ||
                    (strncmp(dir, closed[i], len) == 0 && (dir[len] == '/' || !dir[len]));
    }
    if (!is_closed)
        return strdup(dir);
    const char *name = strrchr(dir, '/') + 1;
    return asprintf(&place, "/workspace%s%s", *name ? "/" : "", name) < 0 ? NULL : place;
}

void mcp_session_set_roots(struct mcp_session *session, const json_t *roots)
{
    json_t *root;
    size_t i;

    if (session->options->roots == MCP_ROOTS_NONE)
        return;
    drop_roots(session);
    json_array_foreach(roots, i, root)
    {
        AUTO_FREE char *path = path_of(json_string_value(json_object_get(root, "uri")));
        char *real = path ? realpath(path, NULL) : NULL;
        char *place = real ? place_of(real) : NULL;
        if (!place || session->root_count == MCP_ROOTS_MAX) {
            free(real);
            free(place);
            continue;
        }
        session->roots[session->root_count++] =
            (struct cay_bind){.source = real,
                              .target = place,
                              .writable = session->options->roots == MCP_ROOTS_RW};
    }
}

/* --- Sandboxes --- */

static void close_box(struct mcp_box *box)
{
    cay_files_free(box->files);
    cay_sandbox_free(box->sandbox);
    *box = (struct mcp_box){.id = ""};
}

uint64_t mcp_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A call is a use of the kept sandbox: its time to live begins again. */
static void renew(struct mcp_session *session)
{
    const struct mcp_options *options = session->options;
    const struct mcp_box *box = &session->boxes[0];
    uint64_t now = mcp_now_ms();

    if (!box->sandbox || !options->keep || !options->keep_ms || session->is_worker ||
        (session->renewed_ms &&
         now - session->renewed_ms < options->keep_ms / RENEW_PART))
        return;
    session->renewed_ms = now;
    (void)!cay_sandbox_set_ttl(box->sandbox, options->keep_ms, NULL);
}

void mcp_session_done(struct mcp_session *session)
{
    session->renewed_ms = 0; /* the end of the session is a use, too */
    renew(session);
    for (size_t i = 0; i < session->box_count; i++) {
        struct mcp_box *box = &session->boxes[i];
        if (box->sandbox && !box->is_opened && (i || !session->options->keep))
            (void)!cay_sandbox_remove(box->sandbox, NULL);
        close_box(box);
    }
    drop_roots(session);
}

static int create_box(struct mcp_session *session, bool is_default, struct mcp_box *box,
                      struct cay_error *err)
{
    const struct mcp_options *options = session->options;
    struct cay_sandbox_options wanted = options->sandbox;
    AUTO_FREE struct cay_bind *binds =
        calloc(wanted.bind_count + session->root_count + 1, sizeof *binds);

    if (!binds)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < wanted.bind_count; i++)
        binds[i] = wanted.binds[i];
    for (size_t i = 0; i < session->root_count; i++)
        binds[wanted.bind_count++] = session->roots[i];
    wanted.binds = binds;
    wanted.ephemeral = !is_default || !options->keep;
    if (!is_default)
        wanted.name = NULL;
    TRY(cay_sandbox_create(&wanted, &box->sandbox, err));
    snprintf(box->id, sizeof box->id, "%s", cay_sandbox_id(box->sandbox));
    int code =
        options->created ? options->created(options->cookie, box->sandbox, err) : CAY_OK;
    if (code) {
        (void)!cay_sandbox_remove(box->sandbox, NULL);
        close_box(box);
    }
    return code;
}

/* One that an earlier session has left, and that may have been stopped since. */
static int open_kept(const char *name, struct mcp_box *box, struct cay_error *err)
{
    struct cay_sandbox_info info = {.state = CAY_STATE_RUNNING};

    TRY(cay_sandbox_open(name, &box->sandbox, err));
    int code = cay_sandbox_inspect(box->sandbox, &info, err);
    if (!code && info.state == CAY_STATE_STOPPED)
        code = cay_sandbox_start(box->sandbox, err);
    if (code) {
        close_box(box);
        return code;
    }
    box->is_opened = true;
    snprintf(box->id, sizeof box->id, "%s", cay_sandbox_id(box->sandbox));
    return CAY_OK;
}

/* With a name and keep, another session may create it at the same time. */
static int open_default(struct mcp_session *session, struct mcp_box *box,
                        struct cay_error *err)
{
    const struct mcp_options *options = session->options;
    const char *name = options->keep ? options->sandbox.name : NULL;
    struct cay_error failure = {0};
    int code = name ? open_kept(name, box, &failure) : CAY_E_NOT_FOUND;

    if (code == CAY_E_NOT_FOUND)
        code = create_box(session, true, box, &failure);
    if (code == CAY_E_EXISTS && name)
        code = open_kept(name, box, &failure);
    return code ? cay_fail_as(err, code, &failure) : CAY_OK;
}

/* A worker has handles of its own. */
static int reopen(struct mcp_box *box, struct cay_error *err)
{
    box->files = NULL;
    box->sandbox = NULL;
    return cay_sandbox_open(box->id, &box->sandbox, err);
}

int mcp_session_box(struct mcp_session *session, const char *id, struct mcp_box **ret_box,
                    struct cay_error *err)
{
    struct mcp_box *box = &session->boxes[0];

    if (id) {
        size_t i = 0;
        while (i < session->box_count && strcmp(session->boxes[i].id, id) != 0)
            i++;
        if (i == session->box_count || !*id)
            return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no such sandbox",
                            "list_sandboxes lists those of this session");
        box = &session->boxes[i];
    }
    *ret_box = box;
    if (!box->sandbox)
        TRY(open_default(session, box, err));
    else if (session->is_worker)
        return reopen(box, err);
    renew(session);
    return CAY_OK;
}

int mcp_session_create(struct mcp_session *session, struct mcp_box **ret_box,
                       struct cay_error *err)
{
    size_t limit = session->options->sandboxes < MCP_BOXES_MAX - 1
                       ? session->options->sandboxes
                       : MCP_BOXES_MAX - 1;

    if (session->box_count > limit)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "this session has the most sandboxes that it may create",
                        "kill_sandbox removes one; the limit is %zu", limit);
    struct mcp_box *box = &session->boxes[session->box_count];
    TRY(create_box(session, false, box, err));
    session->box_count++;
    *ret_box = box;
    return CAY_OK;
}

int mcp_session_kill(struct mcp_session *session, const char *id, struct cay_error *err)
{
    struct mcp_box *box;

    TRY(mcp_session_box(session, id, &box, err));
    if (box == &session->boxes[0])
        return cay_fail(err, CAY_E_DENIED, 0, op, id, "this is the session's own sandbox",
                        "it is removed when the session ends");
    int code = cay_sandbox_remove(box->sandbox, err);
    if (code && code != CAY_E_NOT_FOUND)
        return code;
    close_box(box);
    struct mcp_box *last = &session->boxes[--session->box_count];
    if (box != last) {
        *box = *last;
        *last = (struct mcp_box){.id = ""};
    }
    return CAY_OK;
}

/* --- Files of the host --- */

bool mcp_session_has_host(const struct mcp_options *options)
{
    bool has_any = options->roots != MCP_ROOTS_NONE;

    for (size_t i = 0; i < options->sandbox.bind_count; i++)
        has_any = has_any || !cay_volume_is_source(options->sandbox.binds[i].source);
    return has_any;
}

static bool is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) == 0 &&
           (!path[len] || path[len] == '/' || strcmp(dir, "/") == 0);
}

/* Of two mounts of which one is in the other, the first one counts. */
static void add_mount(const struct cay_bind *bind, struct cay_mount *mounts,
                      size_t *count)
{
    struct stat st;

    if (bind->changes || cay_volume_is_source(bind->source) ||
        stat(bind->source, &st) != 0 || !S_ISDIR(st.st_mode))
        return;
    for (size_t i = 0; i < *count; i++)
        if (is_below(bind->source, mounts[i].host) ||
            is_below(mounts[i].host, bind->source))
            return;
    mounts[(*count)++] = (struct cay_mount){.size = sizeof *mounts,
                                            .name = bind->source,
                                            .host = bind->source,
                                            .writable = bind->writable,
                                            .max_file_bytes = CAY_NO_LIMIT};
}

int mcp_session_host(const struct mcp_session *session, cay_files **ret_files,
                     struct cay_error *err)
{
    const struct cay_sandbox_options *sandbox = &session->options->sandbox;
    AUTO_FREE struct cay_mount *mounts =
        calloc(sandbox->bind_count + session->root_count + 1, sizeof *mounts);
    size_t count = 0;
    cay_policy *policy = NULL;

    if (!mounts)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < sandbox->bind_count; i++)
        add_mount(&sandbox->binds[i], mounts, &count);
    for (size_t i = 0; i < session->root_count; i++)
        add_mount(&session->roots[i], mounts, &count);
    if (!count)
        return cay_fail(err, CAY_E_OUTSIDE, 0, op, NULL,
                        "no directory of the host is shown",
                        "the client names its directories as roots, or cay mcp has -v");
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = CAY_STYLE_MOUNTS,
                                             .mounts = mounts,
                                             .mount_count = count};
    int code = cay_policy_new(&config, &policy, err);
    if (!code)
        code = cay_files_open(policy, NULL, ret_files, err);
    cay_policy_free(policy);
    return code;
}

/* --- Calls --- */

const char *mcp_text(const struct mcp_call *call, const char *name, const char *fallback)
{
    const char *text = json_string_value(json_object_get(call->arguments, name));

    return text ? text : fallback;
}

const char *mcp_bytes(const struct mcp_call *call, const char *name, size_t *ret_len)
{
    const json_t *value = json_object_get(call->arguments, name);

    *ret_len = json_string_length(value);
    return json_is_string(value) ? json_string_value(value) : "";
}

int64_t mcp_number(const struct mcp_call *call, const char *name, int64_t fallback)
{
    const json_t *value = json_object_get(call->arguments, name);

    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

bool mcp_flag(const struct mcp_call *call, const char *name)
{
    return json_is_true(json_object_get(call->arguments, name));
}

char **mcp_env(const struct mcp_call *call, const char *name)
{
    json_t *map = json_object_get(call->arguments, name);
    char **env = calloc(json_object_size(map) + 1, sizeof *env);
    size_t count = 0;
    const char *key;
    json_t *value;

    json_object_foreach(map, key, value)
    {
        if (env && asprintf(&env[count], "%s=%s", key, json_string_value(value)) >= 0)
            count++;
    }
    if (env)
        env[count] = NULL;
    return env;
}

void mcp_free_env(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}

int mcp_files(struct mcp_call *call, cay_files **ret_files, struct cay_error *err)
{
    struct mcp_box *box = call->box;

    if (!box->files)
        TRY(cay_sandbox_files(box->sandbox, NULL, &box->files, err));
    *ret_files = box->files;
    return CAY_OK;
}

char *mcp_base64(const void *data, size_t len)
{
    char *text = malloc(BASE64_ENCODE_RAW_LENGTH(len) + 1);

    if (!text)
        return NULL;
    base64_encode_raw(text, len, data);
    text[BASE64_ENCODE_RAW_LENGTH(len)] = '\0';
    return text;
}

void mcp_put_image(struct mcp_call *call, const char *mime, const char *base64)
{
    struct json json;

    (void)buf_text(call->more, ",");
    json_to_unicode(&json, call->more);
    json_put_object(&json);
    json_set_text(&json, "type", "image");
    json_set_text(&json, "mimeType", mime);
    json_set_text(&json, "data", base64);
    json_put_end(&json);
}
