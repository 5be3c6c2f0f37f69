/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/storage.h"
#include "sys/path.h"

static const char op[] = "sandbox.name";

bool names_is_valid(const char *name)
{
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789";
    size_t len = strlen(name), plain = 0;

    while (plain < len && (strchr(first, name[plain]) || strchr("_.-", name[plain])))
        plain++;
    return len > 0 && len < CAY_NAME_MAX && plain == len && strchr(first, name[0]) &&
           strncmp(name, "sb-", 3) != 0;
}

/* --- Links --- */

struct owner {
    char id[CAY_ID_MAX];
    char home[sizeof((struct record *)0)->home];
};

static bool read_owner(int names, const char *name, struct owner *ret_owner)
{
    char text[sizeof *ret_owner];
    ssize_t len = readlinkat(names, name, text, sizeof text - 1);

    *ret_owner = (struct owner){0};
    if (len <= 0)
        return false;
    text[len] = '\0';
    size_t id_len = strcspn(text, ":");
    if (id_len >= sizeof ret_owner->id)
        return false;
    memcpy(ret_owner->id, text, id_len);
    if (text[id_len])
        snprintf(ret_owner->home, sizeof ret_owner->home, "%s", text + id_len + 1);
    return runtime_is_id(ret_owner->id);
}

/* By path, which works even when no more descriptors are available. */
static bool read_by_path(const char *name, char ret_path[PATH_MAX],
                         struct owner *ret_owner)
{
    char directory[PATH_MAX];

    if (runtime_directory(directory, NULL) != CAY_OK)
        return false;
    snprintf(ret_path, PATH_MAX, "%.4000s/names/%s", directory, name);
    return read_owner(AT_FDCWD, ret_path, ret_owner);
}

/* In memory, and not running: no process holds the lock, which its creator would. */
static bool has_ended(const char *id)
{
    struct record record;
    AUTO_FD lock = runtime_is_running(id) ? -1 : runtime_lock(id);

    return lock >= 0 && runtime_load(id, &record, NULL) == CAY_OK &&
           record.storage != CAY_STORAGE_DISK && !runtime_is_alive(&record);
}

/* If the record or the disk cannot be checked, the sandbox is assumed to exist. */
static bool is_there(const struct owner *owner)
{
    char path[sizeof owner->home + 64];

    if (runtime_changed_ms(owner->id))
        return !has_ended(owner->id);
    snprintf(path, sizeof path, "%s/sandboxes/%s", owner->home, owner->id);
    return owner->home[0] && (access(path, F_OK) == 0 || errno != ENOENT);
}

/* Locked, so that one process at a time removes or replaces a stale link. */
static int open_locked(struct cay_error *err)
{
    AUTO_FD names = runtime_open_dir("names", err);

    if (names < 0)
        return names;
    AUTO_FD fd = path_open(names, ".", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        return cay_fail_errno(err, fd < 0 ? -fd : errno, op, "names");
    return TAKE_FD(fd);
}

/* --- Sandboxes on disk, whose links are gone after a reboot --- */

struct name_query {
    const char *name;
    char id[CAY_ID_MAX]; /* the result, or "" */
};

static void compare(const char *id, void *cookie)
{
    struct name_query *name_query = cookie;
    struct storage_saved saved;

    if (name_query->id[0] || storage_load(id, &saved, NULL) != CAY_OK)
        return;
    if (saved.options.name && strcmp(saved.options.name, name_query->name) == 0)
        cay_copy_text(name_query->id, sizeof name_query->id, id);
    storage_saved_done(&saved);
}

/* --- Names --- */

static int fail_taken(const char *name, const char *id, struct cay_error *err)
{
    char message[sizeof err->message];

    snprintf(message, sizeof message, "the name is in use by %s", id);
    return cay_fail(err, CAY_E_EXISTS, 0, op, name, message,
                    "use another name, or remove that sandbox: cay rm %s", name);
}

int names_claim(const struct record *record, struct cay_error *err)
{
    struct name_query stored = {.name = record->name};
    char target[sizeof(struct owner) + 2];
    struct owner owner;
    AUTO_FD names = open_locked(err);

    if (names < 0)
        return names;
    if (read_owner(names, record->name, &owner) && is_there(&owner))
        return strcmp(owner.id, record->id) == 0
                   ? CAY_OK
                   : fail_taken(record->name, owner.id, err);
    int code = storage_visit(compare, &stored, err);
    if (code)
        return code;
    if (stored.id[0] && strcmp(stored.id, record->id) != 0)
        return fail_taken(record->name, stored.id, err);
    snprintf(target, sizeof target, "%s%s%s", record->id, record->home[0] ? ":" : "",
             record->home);
    (void)unlinkat(names, record->name, 0);
    return symlinkat(target, names, record->name) == 0
               ? CAY_OK
               : runtime_fail(errno, record->name, err);
}

/* The link cannot be replaced meanwhile, since the sandbox still exists. */
void names_release(const char *name, const char *id)
{
    char path[PATH_MAX];
    struct owner owner;

    if (names_is_valid(name) && read_by_path(name, path, &owner) &&
        strcmp(owner.id, id) == 0)
        (void)unlink(path);
}

int names_find(const char *name, char ret_id[CAY_ID_MAX], struct cay_error *err)
{
    char path[PATH_MAX];
    struct name_query stored = {.name = name};
    struct owner owner;

    if (!read_by_path(name, path, &owner) || !is_there(&owner))
        owner.id[0] = '\0';
    int code = owner.id[0] ? CAY_OK : storage_visit(compare, &stored, err);
    if (code)
        return code;
    const char *id = owner.id[0] ? owner.id : stored.id;
    if (!id[0])
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, name, "no sandbox has this name",
                        "run cay ls to list the sandboxes");
    cay_copy_text(ret_id, CAY_ID_MAX, id);
    return CAY_OK;
}

void names_sweep(void)
{
    char directory[PATH_MAX], path[PATH_MAX];
    struct owner owner;

    if (runtime_directory(directory, NULL) != CAY_OK)
        return;
    snprintf(path, sizeof path, "%.4000s/names", directory);
    if (access(path, F_OK) != 0)
        return;
    AUTO_FD names = open_locked(NULL);
    AUTO_DIR list = names < 0 ? NULL : path_list(names);
    for (struct dirent *entry; (entry = path_next(list));)
        if (read_owner(names, entry->d_name, &owner) && !is_there(&owner))
            (void)unlinkat(names, entry->d_name, 0);
}
