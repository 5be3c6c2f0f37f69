/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/storage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/native/runtime.h"
#include "backend/native/state.h"
#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "sys/fs.h"
#include "sys/path.h"

static const char op[] = "sandbox.storage";

enum { OPTIONS_MAX = 4 << 20 };

static inline void auto_json_t(json_t **json)
{
    json_decref(*json);
}

static int open_sandboxes(bool make, struct cay_error *err)
{
    return state_open("sandboxes", make, err);
}

void storage_done(struct storage *storage)
{
    if (storage->disk >= 0)
        (void)close(storage->disk);
    if (storage->dir >= 0)
        (void)close(storage->dir);
    *storage = (struct storage)STORAGE_NONE;
}

/* --- The disk --- */

static int make_disk(int dir, int *ret_disk, struct cay_error *err)
{
    static const char *const names[] = {"disk", "disk/upper", "disk/work"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mkdirat(dir, names[i], 0755) != 0 || fchmodat(dir, names[i], 0755, 0) != 0)
            return cay_fail_errno(err, errno, op, names[i]);
    *ret_disk = path_open(dir, "disk", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return *ret_disk < 0 ? cay_fail_errno(err, -*ret_disk, op, "disk") : CAY_OK;
}

int storage_make(const char *id, struct storage *ret_storage, struct cay_error *err)
{
    AUTO_FD sandboxes = open_sandboxes(true, err);

    *ret_storage = (struct storage)STORAGE_NONE;
    if (sandboxes < 0)
        return sandboxes;
    if (mkdirat(sandboxes, id, 0700) != 0)
        return cay_fail_errno(err, errno, op, id);
    ret_storage->dir = path_open(sandboxes, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (ret_storage->dir < 0 || flock(ret_storage->dir, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, op, id,
                        "somebody else holds the new sandbox's disk", "try again");
    return make_disk(ret_storage->dir, &ret_storage->disk, err);
}

static int fail_unknown(const char *id, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "there is no such sandbox",
                    "it was removed, or was in memory only; make a new one");
}

static int hold(int sandboxes, const char *id, struct cay_error *err)
{
    struct stat st;
    AUTO_FD dir = path_open(sandboxes, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (dir < 0)
        return fail_unknown(id, err);
    if (flock(dir, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, op, id,
                        "somebody else is starting or removing this sandbox",
                        "try again");
    if (fstat(dir, &st) != 0 || st.st_nlink == 0)
        return fail_unknown(id, err);
    return TAKE_FD(dir);
}

int storage_hold(const char *id, struct storage *ret_storage, struct cay_error *err)
{
    AUTO_FD sandboxes = open_sandboxes(false, err);

    *ret_storage = (struct storage)STORAGE_NONE;
    if (sandboxes < 0)
        return sandboxes == CAY_E_NOT_FOUND ? fail_unknown(id, err) : sandboxes;
    int dir = hold(sandboxes, id, err);
    if (dir < 0)
        return dir;
    ret_storage->dir = dir;
    ret_storage->disk = path_open(dir, "disk", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (ret_storage->disk < 0) {
        int error = -ret_storage->disk;
        storage_done(ret_storage);
        return cay_fail_errno(err, error, op, "disk");
    }
    return CAY_OK;
}

/* Out of everybody's sight first: what is half removed is no sandbox. */
static int bury(int sandboxes, const char *id, struct cay_error *err)
{
    char grave[NAME_MAX + 1];
    AUTO_FD draft = state_draft(sandboxes, ".old-", grave, err);

    if (draft < 0)
        return draft;
    if (renameat(sandboxes, id, draft, id) != 0)
        return cay_fail_errno(err, errno, op, id);
    return tree_remove(&fs_direct, op, sandboxes, grave, id, err);
}

int storage_remove(const char *id, struct cay_error *err)
{
    AUTO_FD sandboxes = open_sandboxes(false, err);

    if (sandboxes < 0)
        return sandboxes == CAY_E_NOT_FOUND ? fail_unknown(id, err) : sandboxes;
    AUTO_FD dir = hold(sandboxes, id, err);
    return dir < 0 ? dir : bury(sandboxes, id, err);
}

/* --- The options --- */

/* Where it is, whatever the caller called it: the next start may be from elsewhere. */
static json_t *pack_bind(const struct bind *bind)
{
    char link[64], path[PATH_MAX];

    snprintf(link, sizeof link, "/proc/self/fd/%d", bind->fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len <= 0)
        return NULL;
    path[len] = '\0';
    return json_pack("{s:s, s:s, s:b}", "source", path, "target", bind->target,
                     "writable", bind->writable);
}

static json_t *pack_binds(const struct binds *binds)
{
    json_t *list = json_array();

    for (size_t i = 0; i < binds->count; i++)
        if (json_array_append_new(list, pack_bind(&binds->list[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *pack_env(const char *const *env)
{
    json_t *list = json_array();

    for (; env && *env; env++)
        if (json_array_append_new(list, json_string(*env)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int storage_save(const struct storage *storage, const struct cay_sandbox_options *options,
                 const struct binds *binds, struct cay_error *err)
{
    AUTO(json_t)
    json = json_pack(
        "{s:i, s:I, s:s?, s:I, s:i, s:i, s:i, s:s?, s:i, s:b, s:I, s:s?, s:s?, s:i, s:o, "
        "s:o}",
        "version", 1, "created_ms", (json_int_t)now_ms(), "template",
        options->template_name, "memory_bytes", (json_int_t)options->memory_bytes, "pids",
        (int)options->pids, "cpu_percent", (int)options->cpu_percent, "network",
        (int)options->network, "hostname", options->hostname, "require",
        (int)options->require, "ephemeral", options->ephemeral, "ttl_ms",
        (json_int_t)options->ttl_ms, "user", options->user, "workdir", options->workdir,
        "rung", (int)options->rung, "binds", pack_binds(binds), "env",
        pack_env(options->env));
    AUTO_FREE char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;

    if (!text)
        return cay_fail(err, CAY_E_INVALID, 0, op, "options",
                        "the sandbox's options cannot be saved: some are not UTF-8",
                        "use UTF-8 text for paths and the environment of a sandbox that "
                        "is to persist");
    return state_write(storage->dir, "options", text, strlen(text), err);
}

static const char *text_of(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key));
}

static uint64_t number_of(const json_t *json, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(json, key));
}

static bool take_lists(const json_t *json, struct storage_saved *saved)
{
    const json_t *binds = json_object_get(json, "binds");
    const json_t *env = json_object_get(json, "env");
    size_t count = json_array_size(binds);

    saved->binds = calloc(count + 1, sizeof *saved->binds);
    saved->env = calloc(json_array_size(env) + 1, sizeof *saved->env);
    if (!saved->binds || !saved->env)
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *bind = json_array_get(binds, i);
        saved->binds[i] = (struct cay_bind){
            .source = text_of(bind, "source"),
            .target = text_of(bind, "target"),
            .writable = json_is_true(json_object_get(bind, "writable"))};
    }
    size_t kept = 0;
    for (size_t i = 0; i < json_array_size(env); i++) {
        const char *text = json_string_value(json_array_get(env, i));
        if (text)
            saved->env[kept++] = text;
    }
    saved->options.binds = saved->binds;
    saved->options.bind_count = count;
    saved->options.env = saved->env;
    return true;
}

static void take_options(const json_t *json, struct storage_saved *saved)
{
    saved->created_ms = (int64_t)number_of(json, "created_ms");
    saved->options = (struct cay_sandbox_options){
        .size = sizeof saved->options,
        .template_name = text_of(json, "template"),
        .memory_bytes = number_of(json, "memory_bytes"),
        .pids = (uint32_t)number_of(json, "pids"),
        .cpu_percent = (uint32_t)number_of(json, "cpu_percent"),
        .network = (enum cay_network)number_of(json, "network"),
        .hostname = text_of(json, "hostname"),
        .require = (unsigned)number_of(json, "require"),
        .ephemeral = json_is_true(json_object_get(json, "ephemeral")),
        .ttl_ms = number_of(json, "ttl_ms"),
        .user = text_of(json, "user"),
        .workdir = text_of(json, "workdir"),
        .storage = CAY_STORAGE_DISK,
        .rung = (enum cay_rung)number_of(json, "rung"),
    };
}

int storage_load(const char *id, struct storage_saved *ret_saved, struct cay_error *err)
{
    size_t len = 0;
    AUTO_FD sandboxes = open_sandboxes(false, err);

    *ret_saved = (struct storage_saved){0};
    if (sandboxes < 0)
        return sandboxes == CAY_E_NOT_FOUND ? fail_unknown(id, err) : sandboxes;
    AUTO_FD dir = path_open(sandboxes, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_FREE char *text = dir < 0 ? NULL : state_read(dir, "options", OPTIONS_MAX, &len);
    if (!text)
        return fail_unknown(id, err);
    ret_saved->json = json_loadb(text, len, 0, NULL);
    if (!json_is_object((json_t *)ret_saved->json)) {
        storage_saved_done(ret_saved);
        return cay_fail(err, CAY_E_IO, 0, op, id, "the sandbox's options are damaged",
                        "remove the sandbox and make a new one");
    }
    take_options(ret_saved->json, ret_saved);
    if (take_lists(ret_saved->json, ret_saved))
        return CAY_OK;
    storage_saved_done(ret_saved);
    return cay_fail_memory(err, op);
}

void storage_saved_done(struct storage_saved *saved)
{
    free(saved->binds);
    free(saved->env);
    json_decref(saved->json);
    *saved = (struct storage_saved){0};
}

/* --- All of them --- */

static bool has_options(int sandboxes, const char *id)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "%.32s/options", id);
    return fstatat(sandboxes, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int storage_visit(void (*visit)(const char *id, void *cookie), void *cookie,
                  struct cay_error *err)
{
    struct cay_error own;
    AUTO_FD sandboxes = open_sandboxes(false, &own);

    if (sandboxes == CAY_E_NOT_FOUND)
        return CAY_OK;
    if (sandboxes < 0) {
        if (err)
            *err = own;
        return sandboxes;
    }
    DIR *directory = state_list(sandboxes);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (runtime_is_id(entry->d_name) && has_options(sandboxes, entry->d_name))
            visit(entry->d_name, cookie);
    if (directory)
        closedir(directory);
    return CAY_OK;
}

/* It may live all the same: its maker died just before it could say so. */
static bool lives(const char *id)
{
    struct record record;

    return runtime_load(id, &record, NULL) == CAY_OK && record.init > 0 &&
           runtime_start_time(record.init) == record.init_start;
}

size_t storage_sweep(void)
{
    AUTO_FD sandboxes = open_sandboxes(false, NULL);
    size_t count = 0;

    if (sandboxes < 0)
        return 0;
    DIR *directory = state_list(sandboxes);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *id = entry->d_name;
        if (!runtime_is_id(id) || has_options(sandboxes, id))
            continue;
        AUTO_FD dir = hold(sandboxes, id, NULL);
        if (dir >= 0 && !has_options(sandboxes, id) && !lives(id))
            count += bury(sandboxes, id, NULL) == CAY_OK;
    }
    if (directory)
        closedir(directory);
    return count + state_sweep(sandboxes, ".old-");
}
