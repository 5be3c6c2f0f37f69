/* SPDX-License-Identifier: Apache-2.0 */

/* A local sandbox is a native one without isolation: cay-init runs on the host as the
 * caller, tracks the descendants of each command, enforces timeouts and keeps output, as
 * it does wherever there are no namespaces; but there is no landlock, no seccomp and no
 * root of its own.  This file only finds the working directory and the environment of
 * commands. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "init/plan.h"
#include "native/native.h"
#include "native/record/idmap.h"
#include "sandbox/backend.h"

static const char op[] = "sandbox.create";

enum {
    WORK_DIR_MAX = sizeof((struct plan_defaults *)0)->workdir,
    NAME_MAX_HERE = sizeof((struct plan_defaults *)0)->user
};

struct local_options {
    struct cay_sandbox_options options;
    char work_dir[WORK_DIR_MAX];
    char user[NAME_MAX_HERE];
    char **given;     /* from the configuration */
    const char **env; /* including inherited variables */
    bool inherits;
};

static void auto_local_options(struct local_options *local_options)
{
    native_free_texts(local_options->given);
    free(local_options->env);
}

/* --- Working directory --- */

/* An absolute path, so that a later chdir(2) of the caller does not matter. */
static int take_work_dir(const cay_config *config, struct local_options *local_options,
                         struct cay_error *err)
{
    char here[PATH_MAX] = "";
    const char *given = cay_config_text(config, "work_dir");

    if (!given)
        given = getenv("SANDBOX_WORK_DIR");
    if (!given)
        given = "";
    if (*given != '/' && !getcwd(here, sizeof here))
        return cay_fail_errno(err, errno, op, "the current directory");
    const char *between = *given && *here && strcmp(here, "/") != 0 ? "/" : "";
    int len =
        snprintf(local_options->work_dir, WORK_DIR_MAX, "%s%s%s", here, between, given);
    if (len >= WORK_DIR_MAX)
        return cay_fail(err, CAY_E_INVALID, ENAMETOOLONG, op, *given ? given : here,
                        "the path of the working directory is too long",
                        "use at most %d bytes", WORK_DIR_MAX - 1);
    return CAY_OK;
}

static int make_work_dir(void *cookie, const char *path, struct cay_error *err)
{
    const struct cay_name_options missing = {.size = sizeof missing,
                                             .flags = CAY_NAME_EXIST_OK};
    cay_files *files = NULL;

    int code = native_files(cookie, NULL, &files, err);
    if (!code)
        code = cay_files_mkdir(files, path, &missing, err);
    cay_files_free(files);
    return code;
}

/* --- Environment --- */

/* The last variable with a name takes effect.  Entries of `environ` without a name or "="
 * are left out. */
static int join_env(struct local_options *local_options, struct cay_error *err)
{
    const char *const *own =
        local_options->inherits ? (const char *const *)environ : NULL;
    size_t used = 0, given = env_count((const char *const *)local_options->given);

    local_options->env = calloc(env_count(own) + given + 1, sizeof *local_options->env);
    if (!local_options->env)
        return cay_fail_memory(err, op);
    for (; own && *own; own++)
        if (**own != '=' && strchr(*own, '='))
            local_options->env[used++] = *own;
    memcpy(local_options->env + used, local_options->given,
           given * sizeof *local_options->env);
    return CAY_OK;
}

/* In a set-user-ID program the name of the real user is not that of the effective one. */
static void name_caller(struct local_options *local_options)
{
    if (getuid() == geteuid())
        (void)subids_user(local_options->user, sizeof local_options->user);
    else
        snprintf(local_options->user, sizeof local_options->user, "%u",
                 (unsigned)geteuid());
}

/* --- Options --- */

static int take_options(const cay_config *config, struct local_options *local_options,
                        struct cay_error *err)
{
    uint64_t ttl_ms = 0;

    local_options->inherits = cay_config_boolean(config, "inherit_env");
    int code = take_work_dir(config, local_options, err);
    if (!code)
        code = native_take_ttl(config, &ttl_ms, err);
    if (!code)
        code = native_take_env(config, &local_options->given, err);
    if (!code)
        code = join_env(local_options, err);
    name_caller(local_options);
    local_options->options = (struct cay_sandbox_options){
        .size = sizeof local_options->options,
        .env = local_options->env,
        .user = local_options->user,
        .workdir = local_options->work_dir,
        .network = CAY_NETWORK_HOST,
        .ttl_ms = ttl_ms,
        .ephemeral = cay_config_boolean(config, "ephemeral"),
    };
    return code;
}

static int start_local(const struct local_options *local_options, const char *id,
                       struct native *native, struct cay_error *err)
{
    int code = create_local(&local_options->options, id, native, err);

    if (code == CAY_E_LIMIT && local_options->inherits && err &&
        strcmp(err->subject, "env") == 0)
        return cay_fail(err, code, 0, op, "env", "the inherited environment is too large",
                        "the limit is %d variables and %d KiB in total; unset some in "
                        "this process, or set inherit_env: false",
                        ENV_COUNT_MAX, ENV_MAX >> 10);
    if (!code) {
        code = make_work_dir(native, local_options->work_dir, err);
        if (code)
            (void)native_kill(native, NULL);
    }
    return code;
}

static int create_local_sandbox(const cay_config *config, const char *id,
                                void **ret_cookie, struct cay_error *err)
{
    __attribute__((cleanup(auto_local_options))) struct local_options local_options = {0};
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, op);
    int code = take_options(config, &local_options, err);
    if (!code)
        code = start_local(&local_options, id, native, err);
    if (!code)
        *ret_cookie = TAKE_PTR(native);
    return code;
}

static int check(void *data, const cay_config *config, struct cay_error *err)
{
    __attribute__((cleanup(auto_local_options))) struct local_options local_options = {0};

    (void)data;
    return take_options(config, &local_options, err);
}

static int create(void *data, const cay_config *config, void **ret_cookie,
                  struct cay_error *err)
{
    (void)data;
    return create_local_sandbox(config, NULL, ret_cookie, err);
}

static int create_marked(void *data, const cay_config *config, const char *mark,
                         void **ret_cookie, struct cay_error *err)
{
    char id[CAY_ID_MAX];
    int code = native_mark_id(mark, id, err);

    (void)data;
    return code ? code : create_local_sandbox(config, id, ret_cookie, err);
}

static int find_marked(void *data, const cay_config *config, const char *mark,
                       void **ret_cookie, struct cay_error *err)
{
    (void)data;
    (void)config;
    return native_open_marked(mark, true, ret_cookie, err);
}

static int connect_local(void *data, const cay_config *config, const char *id,
                         void **ret_cookie, struct cay_error *err)
{
    (void)data;
    (void)config;
    return native_open(id, true, ret_cookie, err);
}

static const struct cay_field fields[] = {
    {.name = "work_dir",
     .alias = "_work_dir",
     .type = CAY_FIELD_PATH,
     .about = "working directory of commands, created if missing (default: "
              "$SANDBOX_WORK_DIR, or the current directory)"},
    {.name = "inherit_env",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "true",
     .about = "whether commands also inherit the environment of the process that creates "
              "the sandbox"},
    {.name = "ttl",
     .alias = "timeout",
     .type = CAY_FIELD_NUMBER,
     .about = "time to live of the sandbox in seconds (default: unlimited)"},
    {.name = "ephemeral",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "false",
     .about = "whether the sandbox ends with the process that creates it"},
};

/* No pause: processes on the host cannot be frozen. */
const struct cay_backend backend_local = {
    .size = sizeof backend_local,
    .name = "local",
    .about = "warning: commands run on this machine without isolation",
    .fields = fields,
    .field_count = sizeof fields / sizeof *fields,
    .create = create,
    .connect = connect_local,
    NATIVE_CALLS,
    .create_marked = create_marked,
    .find_marked = find_marked,
    .check = check,
};
