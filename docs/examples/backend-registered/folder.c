/* SPDX-License-Identifier: Apache-2.0 */

/* A backend whose sandboxes are folders.
 *
 * Each sandbox is a directory below `prefix`.  It needs no memory and no process while no
 * handle is open, survives a reboot, and can be inspected with any program.  Create and
 * connect start a native sandbox with the folder as the working directory; it ends with
 * the handle.
 *
 * So there is nothing to pause, no time to live and no process that outlives a handle:
 * these functions are NULL, and callers get CAY_E_UNSUPPORTED. */
#define _GNU_SOURCE 1 /* asprintf() */
#include "folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder {
    char *path; /* PREFIX/ID */
    const char *id;
    cay_sandbox *around;
};

/* Fills every field of an error: operation, subject, message and hint. */
static int fail(struct cay_error *err, int code, const char *op, const char *subject,
                const char *message, const char *hint)
{
    if (err) {
        *err = (struct cay_error){.code = code};
        snprintf(err->op, sizeof err->op, "%s", op);
        snprintf(err->subject, sizeof err->subject, "%s", subject);
        snprintf(err->message, sizeof err->message, "%s", message);
        snprintf(err->hint, sizeof err->hint, "%s", hint);
    }
    return code;
}

static int fail_gone(struct cay_error *err, const char *id)
{
    return fail(err, CAY_E_NOT_FOUND, "folder.connect", id, "there is no such folder",
                "list the prefix to see those that there are");
}

static int fail_memory(struct cay_error *err)
{
    return fail(err, CAY_E_NO_MEMORY, "folder.open", "", "memory is exhausted",
                "try again later");
}

/* --- Handles --- */

static void folder_free(void *cookie)
{
    struct folder *folder = cookie;

    if (folder->around)
        (void)!cay_sandbox_kill(folder->around, NULL);
    cay_sandbox_free(folder->around);
    free(folder->path);
    free(folder);
}

/* `name` is the last part of the path. */
static struct folder *folder_new(const char *prefix, const char *name)
{
    struct folder *folder = calloc(1, sizeof *folder);

    if (folder && asprintf(&folder->path, "%s/%s", prefix, name) < 0) {
        free(folder);
        return NULL;
    }
    if (folder)
        folder->id = folder->path + strlen(prefix) + 1;
    return folder;
}

static const char *prefix_of(const cay_config *config, struct cay_error *err)
{
    const char *prefix = cay_config_text(config, "prefix");

    if (!prefix)
        (void)fail(err, CAY_E_INVALID, "folder.create", "prefix",
                   "there is no directory for the folders", "set prefix: to one");
    return prefix;
}

/* "NAME=value" of each of envs, NULL-terminated; NULL for lack of memory. */
static char **env_of(const cay_config *config)
{
    size_t count = cay_config_count(config, "envs");
    char **env = calloc(count + 1, sizeof *env);
    const char *name, *value;

    for (size_t i = 0; env && cay_config_item(config, "envs", i, &name, &value); i++)
        if (asprintf(&env[i], "%s=%s", name, value) < 0)
            env[i] = NULL;
    return env;
}

static void free_env(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}

/* The folder's owner is `user` inside; nothing else of this machine is visible. */
static int surround(struct folder *folder, const cay_config *config,
                    struct cay_error *err)
{
    const struct cay_bind bind = {folder->path, cay_config_text(config, "work_dir"),
                                  true};
    char **env = env_of(config);
    const struct cay_sandbox_options options = {
        .size = sizeof options,
        .template_name = cay_config_text(config, "template"),
        .memory_bytes = (uint64_t)cay_config_integer(config, "limits.memory"),
        .binds = &bind,
        .bind_count = 1,
        .workdir = bind.target,
        .env = (const char *const *)env,
        .ephemeral = true,
    };

    int code =
        env ? cay_sandbox_create(&options, &folder->around, err) : fail_memory(err);
    free_env(env);
    return code;
}

/* --- Creating, finding and removing folders --- */

static int folder_create(void *data, const cay_config *config, void **ret_cookie,
                         struct cay_error *err)
{
    const char *prefix = prefix_of(config, err);

    (void)data;
    if (!prefix)
        return CAY_E_INVALID;
    struct folder *folder = folder_new(prefix, "fd-XXXXXX");
    if (!folder)
        return fail_memory(err);
    int code = CAY_OK;
    if ((mkdir(prefix, 0700) != 0 && errno != EEXIST) || !mkdtemp(folder->path))
        code = fail(err, CAY_E_IO, "folder.create", prefix, strerror(errno),
                    "choose a prefix that you may write to");
    if (!code)
        code = surround(folder, config, err);
    if (code) {
        (void)rmdir(folder->path);
        folder_free(folder);
        return code;
    }
    *ret_cookie = folder;
    return CAY_OK;
}

static bool is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int folder_connect(void *data, const cay_config *config, const char *id,
                          void **ret_cookie, struct cay_error *err)
{
    const char *prefix = prefix_of(config, err);

    (void)data;
    if (!prefix)
        return CAY_E_INVALID;
    if (strncmp(id, "fd-", 3) != 0 || strchr(id, '/'))
        return fail_gone(err, id);
    struct folder *folder = folder_new(prefix, id);
    if (!folder)
        return fail_memory(err);
    int code =
        is_there(folder->path) ? surround(folder, config, err) : fail_gone(err, id);
    if (code)
        folder_free(folder);
    else
        *ret_cookie = folder;
    return code;
}

/* The file tools of the library follow no link out of the folder. */
static int remove_all(const struct folder *folder, struct cay_error *err)
{
    const struct cay_name_options all = {.size = sizeof all, .flags = CAY_NAME_RECURSIVE};
    struct cay_mount mount = CAY_MOUNT_INIT;
    const struct cay_policy_config rules = {.size = sizeof rules,
                                            .style = CAY_STYLE_ROOT,
                                            .mounts = &mount,
                                            .mount_count = 1};
    char *prefix = strndup(folder->path, (size_t)(folder->id - 1 - folder->path));
    cay_policy *policy = NULL;
    cay_files *files = NULL;

    mount.host = prefix;
    mount.writable = true;
    mount.write_approval = false;
    int code = prefix ? cay_policy_new(&rules, &policy, err) : fail_memory(err);
    if (!code)
        code = cay_files_open(policy, NULL, &files, err);
    if (!code)
        code = cay_files_delete(files, folder->id, &all, err);
    cay_files_free(files);
    cay_policy_free(policy);
    free(prefix);
    return code;
}

static int folder_kill(void *cookie, struct cay_error *err)
{
    struct folder *folder = cookie;
    int code = cay_sandbox_kill(folder->around, err);

    return code || !is_there(folder->path) ? code : remove_all(folder, err);
}

/* --- State --- */

static const char *folder_id(const void *cookie)
{
    return ((const struct folder *)cookie)->id;
}

static unsigned folder_layers(const void *cookie)
{
    return cay_sandbox_layers(((const struct folder *)cookie)->around);
}

static int folder_state(void *cookie, enum cay_state *ret_state, struct cay_error *err)
{
    const struct folder *folder = cookie;

    if (!is_there(folder->path))
        return fail_gone(err, folder->id);
    *ret_state = CAY_STATE_RUNNING;
    return CAY_OK;
}

/* --- Commands and files --- */

static int folder_exec(void *cookie, const struct cay_exec_options *options,
                       struct cay_exec_result *ret_result, struct cay_error *err)
{
    return cay_sandbox_exec(((struct folder *)cookie)->around, options, ret_result, err);
}

static int folder_files(void *cookie, const char *user, cay_files **ret_files,
                        struct cay_error *err)
{
    return cay_sandbox_files(((struct folder *)cookie)->around, user, ret_files, err);
}

/* --- The table --- */

static const struct cay_field fields[] = {
    {"prefix", NULL, CAY_FIELD_PATH, NULL, "directory that contains the folders"},
    {"work_dir", "_work_dir", CAY_FIELD_TEXT, "/home/user", "path of the folder inside"},
    {"template", NULL, CAY_FIELD_TEXT, "host", "template of the sandbox"},
    {"limits.memory", NULL, CAY_FIELD_BYTES, NULL, "memory limit", .least = 1 << 20,
     .most = INT64_MAX},
};

const struct cay_backend folder_backend = {
    .size = sizeof folder_backend,
    .name = "folder",
    .about = "directories of this machine, with a native sandbox while they are used",
    .fields = fields,
    .field_count = sizeof fields / sizeof *fields,
    .create = folder_create,
    .connect = folder_connect,
    .free = folder_free,
    .id = folder_id,
    .layers = folder_layers,
    .state = folder_state,
    .kill = folder_kill,
    .exec = folder_exec,
    .open_files = folder_files,
};
