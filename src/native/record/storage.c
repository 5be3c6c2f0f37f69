/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/storage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/record/image.h"
#include "native/record/names.h"
#include "native/record/remove.h"
#include "native/record/state.h"
#include "sys/path.h"
#include "sys/state-home.h"

static const char op[] = "sandbox.storage";

enum { OPTIONS_MAX = 4 << 20 };

static int fail_unknown(const char *id, int error, struct cay_error *err)
{
    if (cay_errno_is_shortage(error))
        return cay_fail_errno(err, error, op, id);
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "there is no such sandbox",
                    "it was removed, or its storage was in memory; create a new one");
}

/* Opens the directory of all sandboxes, if it has one with that id. */
static int open_sandboxes_with(const char *id, struct cay_error *err)
{
    int sandboxes = state_open("sandboxes", false, err);

    return sandboxes == CAY_E_NOT_FOUND ? fail_unknown(id, ENOENT, err) : sandboxes;
}

void storage_done(struct storage *storage)
{
    auto_close(&storage->disk);
    auto_close(&storage->dir);
    *storage = (struct storage)STORAGE_NONE;
}

/* --- The disk --- */

/* "disk", or the root of an image. */
static int open_disk(int dir, struct cay_error *err)
{
    int disk = path_open(dir, "disk", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (disk == -ENOENT)
        return image_mount(dir, op, "disk", err);
    return disk < 0 ? cay_fail_errno(err, -disk, op, "disk") : disk;
}

static int make_directory(int dir, const char *name, struct cay_error *err)
{
    if (mkdirat(dir, name, 0755) != 0 || fchmodat(dir, name, 0755, 0) != 0)
        return cay_fail_errno(err, errno, op, name);
    return CAY_OK;
}

static int make_disk(int dir, uint64_t bytes, int *ret_disk, struct cay_error *err)
{
    if (!bytes)
        TRY(make_directory(dir, "disk", err));
    *ret_disk = bytes ? image_create(dir, bytes, op, "disk", err) : open_disk(dir, err);
    if (*ret_disk < 0)
        return *ret_disk;
    TRY(make_directory(*ret_disk, "upper", err));
    return make_directory(*ret_disk, "work", err);
}

int storage_create(const char *id, uint64_t bytes, struct storage *ret_storage,
                   struct cay_error *err)
{
    AUTO_FD sandboxes = state_open("sandboxes", true, err);

    *ret_storage = (struct storage)STORAGE_NONE;
    if (sandboxes < 0)
        return sandboxes;
    int error = state_home_make(sandboxes, id);
    if (error)
        return cay_fail_errno(err, -error, op, id);
    ret_storage->dir = path_open(sandboxes, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (cay_errno_is_shortage(-ret_storage->dir))
        return cay_fail_errno(err, -ret_storage->dir, op, id);
    if (ret_storage->dir < 0 || flock(ret_storage->dir, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, op, id,
                        "another process has locked the new sandbox's disk", "try again");
    return make_disk(ret_storage->dir, bytes, &ret_storage->disk, err);
}

/* `how` is LOCK_EX or LOCK_SH. */
static int hold(int sandboxes, const char *id, int how, struct cay_error *err)
{
    struct stat st;
    AUTO_FD dir = path_open(sandboxes, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (dir < 0)
        return fail_unknown(id, -dir, err);
    if (flock(dir, how | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, op, id,
                        "another process is starting, forking or removing this sandbox",
                        "try again");
    if (fstat(dir, &st) != 0 || st.st_nlink == 0)
        return fail_unknown(id, ENOENT, err);
    return TAKE_FD(dir);
}

static int open_locked(const char *id, int how, struct storage *ret_storage,
                       struct cay_error *err)
{
    AUTO_FD sandboxes = open_sandboxes_with(id, err);

    *ret_storage = (struct storage)STORAGE_NONE;
    if (sandboxes < 0)
        return sandboxes;
    int dir = hold(sandboxes, id, how, err);
    if (dir < 0)
        return dir;
    ret_storage->dir = dir;
    int disk = ret_storage->disk = open_disk(dir, err);
    if (disk < 0)
        storage_done(ret_storage);
    return disk < 0 ? disk : CAY_OK;
}

int storage_lock(const char *id, struct storage *ret_storage, struct cay_error *err)
{
    return open_locked(id, LOCK_EX, ret_storage, err);
}

int storage_share(const char *id, struct storage *ret_storage, struct cay_error *err)
{
    return open_locked(id, LOCK_SH, ret_storage, err);
}

/* --- Forks in memory of a sandbox on disk --- */

struct below {
    const char *id;
    bool is_used;
};

/* A sandbox whose record is unreadable may be a fork of any. */
static void check_below(const char *id, void *cookie)
{
    struct below *below = cookie;
    struct record record;
    int code = runtime_load(id, &record, NULL);

    if (code == CAY_E_INTERNAL)
        below->is_used |= record_recover(id, &record) != 0;
    else if (code)
        below->is_used |= code != CAY_E_NOT_FOUND;
    else
        below->is_used |=
            strcmp(record.below, below->id) == 0 && runtime_is_alive(&record);
}

/* Whether the files are those of a running fork.  The caller has the lock, which a
 * process that creates a fork shares. */
static bool is_below(const char *id)
{
    struct below below = {.id = id};

    return runtime_visit(check_below, &below, NULL) != CAY_OK || below.is_used;
}

static bool lives(const char *id)
{
    struct record record;
    int code = runtime_load(id, &record, NULL);

    if (code == CAY_E_INTERNAL)
        return record_recover(id, &record) != 0;
    return code ? code != CAY_E_NOT_FOUND : runtime_is_alive(&record);
}

int storage_check(const char *id, struct cay_error *err)
{
    struct stat st;
    AUTO_FD sandboxes = open_sandboxes_with(id, err);

    if (sandboxes < 0)
        return sandboxes;
    if (fstatat(sandboxes, id, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return CAY_OK;
    return errno == ENOENT ? fail_unknown(id, ENOENT, err)
                           : cay_fail_errno(err, errno, op, id);
}

bool storage_in_other_home(const struct record *record)
{
    char own[PATH_MAX], path[PATH_MAX];

    if (!record->home[0] ||
        (state_home_path(own, NULL) == CAY_OK && strcmp(own, record->home) == 0))
        return false;
    snprintf(path, sizeof path, "%s/sandboxes/%s", record->home, record->id);
    return access(path, F_OK) == 0;
}

static void release_name(const char *id)
{
    struct storage_saved saved;

    if (storage_load(id, &saved, NULL) != CAY_OK)
        return;
    if (saved.options.name)
        names_release(saved.options.name, id);
    storage_saved_done(&saved);
}

int storage_remove(const char *id, struct cay_error *err)
{
    AUTO_FD sandboxes = open_sandboxes_with(id, err);

    if (sandboxes < 0)
        return sandboxes;
    AUTO_FD dir = hold(sandboxes, id, LOCK_EX, err);
    if (dir < 0)
        return dir;
    if (lives(
            id)) /* from now on no process can start it, but one may have just done so */
        return cay_fail(err, CAY_E_BUSY, 0, op, id,
                        "another process has just started this sandbox", "try again");
    release_name(id);
    if (!is_below(id))
        return state_remove(sandboxes, id, op, err);
    /* storage_sweep() removes the rest. */
    return unlinkat(dir, "options", 0) == 0 || errno == ENOENT
               ? CAY_OK
               : cay_fail_errno(err, errno, op, id);
}

static const char paused_file[] = "paused";

static int open_own(const char *id, struct cay_error *err)
{
    AUTO_FD sandboxes = open_sandboxes_with(id, err);

    if (sandboxes < 0)
        return TAKE_FD(sandboxes);
    int dir = path_open(sandboxes, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return dir < 0 ? fail_unknown(id, -dir, err) : dir;
}

int storage_set_paused(const char *id, bool is_paused, struct cay_error *err)
{
    AUTO_FD dir = open_own(id, err);

    if (dir < 0)
        return TAKE_FD(dir);
    if (is_paused)
        return state_write(dir, paused_file, "", 0, err);
    return unlinkat(dir, paused_file, 0) == 0 || errno == ENOENT
               ? CAY_OK
               : cay_fail_errno(err, errno, op, paused_file);
}

bool storage_is_paused(const char *id)
{
    AUTO_FD dir = open_own(id, NULL);

    return dir >= 0 && faccessat(dir, paused_file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int storage_take(const struct storage *storage, int to, const char *name,
                 struct cay_error *err)
{
    return renameat(storage->disk, "upper", to, name) == 0
               ? CAY_OK
               : cay_fail_errno(err, errno, op, name);
}

/* --- The options --- */

/* Saves the resolved path, because the next start may run in another directory. */
static bool save_bind(struct buf *file, const struct bind *bind)
{
    char path[PATH_MAX];

    if (bind->volume < 0 && !*bind_path(bind, path))
        return false;
    kvfile_add(file, "source", bind->volume < 0 ? path : bind->source);
    kvfile_add(file, "target", bind->target);
    kvfile_add_number(file, "writable", bind->writable);
    return true;
}

int storage_save(const struct storage *storage, const struct cay_sandbox_options *options,
                 const struct idmap *map, unsigned given, const char *template_name,
                 const struct binds *binds, struct cay_error *err)
{
    char ids[IDMAP_TEXT];
    struct buf file;
    int code = CAY_OK;

    idmap_text(map, ids);

    kvfile_begin(&file, OPTIONS_MAX);
    kvfile_add_number(&file, "created_ms", (uint64_t)clock_since_1970_ms());
    kvfile_add(&file, "template", template_name);
    kvfile_add(&file, "map", *ids ? ids : NULL);
    kvfile_add_number(&file, "given", given);
    kvfile_add_number(&file, "memory_bytes", options->memory_bytes);
    kvfile_add_number(&file, "disk_bytes", options->disk_bytes);
    kvfile_add_number(&file, "pids", options->pids);
    kvfile_add_number(&file, "cpu_percent", options->cpu_percent);
    kvfile_add_number(&file, "network", options->network);
    kvfile_add(&file, "hostname", options->hostname);
    kvfile_add(&file, "name", options->name);
    kvfile_add_number(&file, "require", options->require);
    kvfile_add_number(&file, "ephemeral", options->ephemeral);
    kvfile_add_number(&file, "checkpoint_each", options->checkpoint_each);
    kvfile_add_number(&file, "ttl_ms", options->ttl_ms);
    kvfile_add(&file, "user", options->user);
    kvfile_add(&file, "workdir", options->workdir);
    /* 0.1.0 saved the isolation level under this key. */
    kvfile_add_number(&file, "rung", options->level);
    for (const char *const *env = options->env; env && *env; env++)
        kvfile_add(&file, "env", *env);
    for (const char *const *join = options->networks; join && *join; join++)
        kvfile_add(&file, "join", *join);
    for (const char *const *at = options->approve; at && *at; at++)
        kvfile_add(&file, "approve", *at);
    kvfile_add(&file, "approve_scope", options->approve_scope);
    kvfile_add_number(&file, "approve_timeout_ms", options->approve_timeout_ms);
    for (size_t i = 0; !code && i < binds->count; i++)
        if (!save_bind(&file, &binds->list[i]))
            code = cay_fail_errno(err, errno, op, binds->list[i].source);
    if (!code && file.failed)
        code =
            cay_fail(err, CAY_E_LIMIT, 0, op, "options",
                     "the sandbox's options are too long to save",
                     "pass less than %d MiB of options to a sandbox with storage on disk",
                     OPTIONS_MAX >> 20);
    if (!code)
        code = state_write(storage->dir, "options", file.data, file.len, err);
    buf_done(&file);
    return code;
}

static bool take_binds(struct storage_saved *saved)
{
    const struct kvfile *kvfile = &saved->kvfile;
    const char *source = NULL, *target = NULL, *writable = NULL;
    size_t count = kvfile_count(kvfile, "source");

    saved->binds = calloc(count + 1, sizeof *saved->binds);
    if (!saved->binds)
        return false;
    for (size_t i = 0; i < count; i++) {
        source = kvfile_next(kvfile, "source", source);
        target = kvfile_next(kvfile, "target", target);
        writable = kvfile_next(kvfile, "writable", writable);
        if (!target || !writable)
            break;
        saved->binds[saved->options.bind_count++] =
            (struct cay_bind){source, target, *writable == '1'};
    }
    saved->options.binds = saved->binds;
    return true;
}

/* The values of one key, NULL-terminated; NULL if memory is exhausted. */
static const char **take_texts(const struct kvfile *kvfile, const char *key)
{
    size_t count = kvfile_count(kvfile, key);
    const char **texts = calloc(count + 1, sizeof *texts), *last = NULL;

    for (size_t i = 0; texts && i < count; i++)
        texts[i] = last = kvfile_next(kvfile, key, last);
    return texts;
}

static bool take_lists(struct storage_saved *saved)
{
    saved->options.env = saved->env = take_texts(&saved->kvfile, "env");
    saved->options.networks = saved->networks = take_texts(&saved->kvfile, "join");
    saved->options.approve = saved->approve = take_texts(&saved->kvfile, "approve");
    return saved->env && saved->networks && saved->approve && take_binds(saved);
}

static void take_options(struct storage_saved *saved)
{
    const struct kvfile *kvfile = &saved->kvfile;

    saved->created_ms = (int64_t)kvfile_number(kvfile, "created_ms");
    saved->map = kvfile_text(kvfile, "map");
    saved->given = kvfile_text(kvfile, "given") /* not saved by older versions */
                       ? (unsigned)kvfile_number(kvfile, "given")
                       : UINT_MAX;
    saved->options = (struct cay_sandbox_options){
        .size = sizeof saved->options,
        .template_name = kvfile_text(kvfile, "template"),
        .memory_bytes = kvfile_number(kvfile, "memory_bytes"),
        .disk_bytes = kvfile_number(kvfile, "disk_bytes"),
        .pids = (uint32_t)kvfile_number(kvfile, "pids"),
        .cpu_percent = (uint32_t)kvfile_number(kvfile, "cpu_percent"),
        .network = (enum cay_network)kvfile_number(kvfile, "network"),
        .hostname = kvfile_text(kvfile, "hostname"),
        .name = kvfile_text(kvfile, "name"),
        .require = (unsigned)kvfile_number(kvfile, "require"),
        .ephemeral = kvfile_number(kvfile, "ephemeral"),
        .checkpoint_each = kvfile_number(kvfile, "checkpoint_each"),
        .approve_scope = kvfile_text(kvfile, "approve_scope"),
        .approve_timeout_ms = kvfile_number(kvfile, "approve_timeout_ms"),
        .ttl_ms = kvfile_number(kvfile, "ttl_ms"),
        .user = kvfile_text(kvfile, "user"),
        .workdir = kvfile_text(kvfile, "workdir"),
        .storage = CAY_STORAGE_DISK,
        .level = (enum cay_level)kvfile_number(kvfile, "rung"),
    };
}

int storage_load(const char *id, struct storage_saved *ret_saved, struct cay_error *err)
{
    struct kvfile *kvfile = &ret_saved->kvfile;
    AUTO_FD sandboxes = open_sandboxes_with(id, err);

    *ret_saved = (struct storage_saved){0};
    if (sandboxes < 0)
        return sandboxes;
    AUTO_FD dir = path_open(sandboxes, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    kvfile->data = dir < 0 ? NULL : state_read(dir, "options", OPTIONS_MAX, &kvfile->len);
    int error = dir < 0 ? -dir : kvfile->data ? 0 : errno;
    if (dir < 0 || error == ENOENT || cay_errno_is_shortage(error))
        return fail_unknown(id, error, err);
    if (!kvfile->data || !kvfile_is_valid(kvfile)) {
        storage_saved_done(ret_saved);
        return cay_fail(
            err, CAY_E_IO, 0, op, id,
            "the sandbox's saved options are damaged, or from another version of cay",
            "remove the sandbox and create a new one");
    }
    take_options(ret_saved);
    if (take_lists(ret_saved))
        return CAY_OK;
    storage_saved_done(ret_saved);
    return cay_fail_memory(err, op);
}

void storage_saved_done(struct storage_saved *saved)
{
    free(saved->binds);
    free(saved->env);
    free(saved->networks);
    free(saved->approve);
    free(saved->kvfile.data);
    *saved = (struct storage_saved){0};
}

static int open_storage(const char *id, struct cay_error *err)
{
    AUTO_FD sandboxes = open_sandboxes_with(id, err);

    if (sandboxes < 0)
        return sandboxes;
    int dir = path_open(sandboxes, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return dir < 0 ? fail_unknown(id, -dir, err) : dir;
}

int storage_save_rules(const char *id, const char *text, size_t len,
                       struct cay_error *err)
{
    AUTO_FD dir = open_storage(id, err);

    return dir < 0 ? dir : state_write(dir, "rules", text, len, err);
}

int storage_load_rules(const char *id, char **ret_text, size_t *ret_len,
                       struct cay_error *err)
{
    AUTO_FD dir = open_storage(id, err);

    if (dir < 0)
        return dir;
    *ret_text = state_read(dir, "rules", OPTIONS_MAX, ret_len);
    return *ret_text ? CAY_OK : cay_fail_errno(err, errno, op, id);
}

/* --- All disks --- */

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
    char home[PATH_MAX];
    AUTO_FD sandboxes = state_open("sandboxes", false, &own);

    /* A user without a state directory has no sandboxes on disk. */
    if (sandboxes == CAY_E_NOT_FOUND || state_home_path(home, NULL) != CAY_OK)
        return CAY_OK;
    if (sandboxes < 0) {
        if (err)
            *err = own;
        return sandboxes;
    }
    AUTO_DIR directory = path_list(sandboxes);
    if (!directory)
        return cay_fail_errno(err, errno, op, "sandboxes");
    for (struct dirent *entry; (entry = path_next(directory));)
        if (runtime_is_id(entry->d_name) && has_options(sandboxes, entry->d_name))
            visit(entry->d_name, cookie);
    return CAY_OK;
}

size_t storage_sweep(void)
{
    AUTO_FD sandboxes = state_open("sandboxes", false, NULL);
    size_t count = 0;

    if (sandboxes < 0)
        return 0;
    AUTO_DIR directory = path_list(sandboxes);
    for (struct dirent *entry; (entry = path_next(directory));) {
        const char *id = entry->d_name;
        if (!runtime_is_id(id) || has_options(sandboxes, id))
            continue;
        /* A creator holds the lock of the record before the disk exists and
         * afterwards. */
        AUTO_FD lock = runtime_lock(id);
        if (lock < 0 && errno != ENOENT)
            continue;
        AUTO_FD dir = hold(sandboxes, id, LOCK_EX, NULL);
        /* The sandbox may be running: its creator died before it could save the
         * options. */
        if (dir >= 0 && !has_options(sandboxes, id) && !lives(id) && !is_below(id))
            count += state_remove(sandboxes, id, op, NULL) == CAY_OK;
    }
    return count + state_sweep(sandboxes, ".old-");
}
