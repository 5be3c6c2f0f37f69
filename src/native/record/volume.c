/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/plan.h"
#include "native/record/idmap.h"
#include "native/record/image.h"
#include "native/record/remove.h"
#include "native/record/runtime.h"
#include "native/record/state.h"
#include "native/record/storage.h"
#include "sys/path.h"

static const char op[] = "volume.open";

bool cay_volume_is_source(const char *source)
{
    return source && *source && !strchr(source, '/') && strcmp(source, ".") != 0 &&
           strcmp(source, "..") != 0;
}

bool volume_is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";
    size_t len = strspn(name, letters);

    return len > 0 && len < CAY_NAME_MAX && !name[len] && *name != '.' && *name != '-';
}

int volume_check_name(const char *name, const char *who, struct cay_error *err)
{
    if (name && volume_is_name(name))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, who, name, "invalid volume name",
                    "use up to %d letters, digits, \"_\", \"-\" and \".\", starting with "
                    "a letter, a digit or \"_\"",
                    CAY_NAME_MAX - 1);
}

int volume_fail_unknown(const char *name, const char *who, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, who, name, "there is no such volume",
                    "cay volume create %s creates it, cay volume ls lists all; the path "
                    "of a host directory has a slash: ./%s",
                    name, name);
}

/* Every user inside may write to it; no other user of the host reaches it, because the
 * directory of all volumes is 0700.  The files of an ordinary user are those of `user`
 * inside already. */
int volume_prepare_root(int dir, const char *name, const char *who, struct cay_error *err)
{
    if (fchmodat(dir, name, 0777, 0) != 0 ||
        (idmap_is_root() &&
         fchownat(dir, name, PLAN_USER, PLAN_USER, AT_SYMLINK_NOFOLLOW) != 0))
        return cay_fail_errno(err, errno, who, "root");
    return CAY_OK;
}

int volume_make_root(int dir, const char *who, struct cay_error *err)
{
    return mkdirat(dir, "root", 0700) == 0 ? volume_prepare_root(dir, "root", who, err)
                                           : cay_fail_errno(err, errno, who, "root");
}

bool volume_is_current(int store, const char *name, int dir)
{
    struct stat own, named;

    return fstat(dir, &own) == 0 &&
           fstatat(store, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

int volume_open(const char *name, int *ret_dir, int *ret_root, bool *ret_is_mount,
                struct cay_error *err)
{

    TRY(volume_check_name(name, op, err));
    AUTO_FD store = state_open(VOLUME_STORE, false, err);
    if (store < 0)
        return store == CAY_E_NOT_FOUND ? volume_fail_unknown(name, op, err) : store;
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (dir < 0 && cay_errno_is_shortage(-dir))
        return cay_fail_errno(err, -dir, op, name);
    /* A process that removes it has it locked. */
    if (dir < 0 || flock(dir, LOCK_SH | LOCK_NB) != 0 ||
        !volume_is_current(store, name, dir))
        return volume_fail_unknown(name, op, err);
    AUTO_FD root = path_open(dir, "root", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (root < 0 && root != -ENOENT)
        return cay_fail_errno(err, -root, op, name);
    *ret_is_mount = root < 0;
    if (root < 0)
        root = image_mount(dir, op, name, err);
    if (root < 0)
        return TAKE_FD(root);
    *ret_dir = TAKE_FD(dir);
    *ret_root = TAKE_FD(root);
    return CAY_OK;
}

/* --- Sandboxes that use volumes --- */

struct search {
    struct volume_users *users;
    size_t room;
    int code;
    struct cay_error error;
};

static struct volume_user *add(struct search *search, const char *id)
{
    struct volume_users *users = search->users;

    if (users->count == search->room) {
        size_t room = search->room ? 2 * search->room : 16;
        struct volume_user *list = reallocarray(users->list, room, sizeof *list);
        if (!list) {
            search->code = cay_fail_memory(&search->error, op);
            return NULL;
        }
        users->list = list;
        search->room = room;
    }
    struct volume_user *user = &users->list[users->count++];
    *user = (struct volume_user){0};
    cay_copy_text(user->id, sizeof user->id, id);
    return user;
}

/* If a sandbox cannot be checked, it may use any volume. */
static void doubt(struct search *search, const struct cay_error *why)
{
    if (!cay_errno_is_shortage(why->sys_errno) || search->code)
        return;
    search->code = why->code;
    search->error = *why;
}

static void add_running(const char *id, void *cookie)
{
    struct search *search = cookie;
    struct record record;
    struct cay_error why;
    struct volume_user *user = NULL;
    int code = runtime_load(id, &record, &why);

    if (code == CAY_E_INTERNAL && record_recover(id, &record) != 0) {
        user = add(search, id);
        if (user)
            user->is_unknown = true;
    } else if (code) {
        doubt(search, &why);
    } else if (record.volumes[0] && runtime_is_alive(&record)) {
        user = add(search, id);
        if (user)
            memcpy(user->names, record.volumes, sizeof user->names);
        if (user && record.is_spare)
            cay_copy_text(user->pool, sizeof user->pool, record.pool);
    }
}

static bool is_listed(const struct volume_users *users, const char *id)
{
    for (size_t i = 0; i < users->count; i++)
        if (strcmp(users->list[i].id, id) == 0)
            return true;
    return false;
}

/* A stopped sandbox on disk could not be started any more. */
static void add_stored(const char *id, void *cookie)
{
    struct search *search = cookie;
    struct storage_saved saved;
    struct cay_error why;
    struct volume_user *user = NULL;

    if (is_listed(search->users, id))
        return;
    if (storage_load(id, &saved, &why) != CAY_OK) {
        doubt(search, &why);
        return;
    }
    for (size_t i = 0; i < saved.options.bind_count && !search->code; i++) {
        const char *source = saved.binds[i].source;
        if (!cay_volume_is_source(source) || (!user && !(user = add(search, id))))
            continue;
        (void)volume_add_name(user->names, source); /* they did fit at its creation */
    }
    storage_saved_done(&saved);
}

int volume_find_users(struct volume_users *ret_users, struct cay_error *err)
{
    struct search search = {.users = ret_users};

    *ret_users = (struct volume_users){0};
    int code = runtime_visit(add_running, &search, err);
    if (!code)
        code = storage_visit(add_stored, &search, err);
    if (!code && search.code)
        code = cay_fail_as(err, search.code, &search.error);
    if (code) {
        free(ret_users->list);
        *ret_users = (struct volume_users){0};
    }
    return code;
}

bool volume_add_name(char names[VOLUME_NAMES], const char *name)
{
    size_t used = strlen(names), room = VOLUME_NAMES - used;

    if (snprintf(names + used, room, "%s%s", used ? " " : "", name) < (int)room)
        return true;
    names[used] = '\0';
    return false;
}

bool volume_is_used_by(const struct volume_user *user, const char *name)
{
    size_t len = strlen(name);

    for (const char *next = user->names; *next;) {
        size_t own = strcspn(next, " ");
        if (own == len && memcmp(next, name, len) == 0)
            return true;
        next += own + (next[own] == ' ');
    }
    return user->is_unknown;
}

size_t volume_sweep(void)
{
    AUTO_FD store = state_open(VOLUME_STORE, false, NULL);

    return store < 0 ? 0 : state_sweep(store, ".new-") + state_sweep(store, ".old-");
}
