/* SPDX-License-Identifier: Apache-2.0 */
#include "cay/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/record/image.h"
#include "native/record/state.h"
#include "native/record/volume.h"
#include "sys/path.h"

static const char op[] = "volume.create";

enum { INFO_MAX = 4096 };

/* Makes the file system of a volume with a size. */
static int make_image(int dir, const struct cay_volume_options *options,
                      struct cay_error *err)
{
    AUTO_FD root = image_create(dir, options->bytes, op, options->name, err);

    return root < 0 ? TAKE_FD(root) : volume_prepare_root(root, ".", op, err);
}

/* --- create --- */

static int save_info(int dir, uint64_t bytes, struct cay_error *err)
{
    struct buf file;

    kvfile_begin(&file, INFO_MAX);
    kvfile_add_number(&file, "created_ms", (uint64_t)clock_since_1970_ms());
    kvfile_add_number(&file, "bytes", bytes);
    int code = file.failed ? cay_fail_memory(err, op)
                           : state_write(dir, "info", file.data, file.len, err);
    buf_done(&file);
    return code;
}

static int finish(int store, const char *draft, int dir,
                  const struct cay_volume_options *options, struct cay_error *err)
{
    const char *name = options->name;

    TRY(options->bytes ? make_image(dir, options, err) : volume_make_root(dir, op, err));
    TRY(save_info(dir, options->bytes, err));
    if (fsync(dir) != 0)
        return cay_fail_errno(err, errno, op, name);
    int error = path_rename(store, draft, store, name, RENAME_NOREPLACE);
    if (error == -EEXIST)
        return cay_fail(err, CAY_E_EXISTS, 0, op, name, "a volume with this name exists",
                        "remove it first, or use another name");
    if (!error && fsync(store) != 0)
        error = -errno;
    return error ? cay_fail_errno(err, -error, op, name) : CAY_OK;
}

int cay_volume_create(const struct cay_volume_options *options, struct cay_error *err)
{
    struct cay_volume_options known;
    char draft[NAME_MAX + 1];

    TRY(cay_take_struct(&known, sizeof known, options, op, err));
    TRY(volume_check_name(known.name, op, err));
    if (known.bytes)
        TRY(image_check(known.bytes, op, known.name, err));
    AUTO_FD store = state_open(VOLUME_STORE, true, err);
    if (store < 0)
        return store;
    AUTO_FD dir = state_draft(store, ".new-", draft, err);
    if (dir < 0)
        return dir;
    int code = finish(store, draft, dir, &known, err);
    if (code)
        (void)state_remove_tree(store, draft, op, known.name, NULL);
    return code;
}

/* --- list --- */

static int pick(const struct dirent *entry)
{
    return volume_is_name(entry->d_name);
}

static bool load_info(int store, const char *name, const struct volume_users *users,
                      struct cay_volume_info *ret_info)
{
    struct kvfile kvfile = {0};
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_FREE char *data =
        dir < 0 ? NULL : state_read(dir, "info", INFO_MAX, &kvfile.len);

    kvfile.data = data;
    if (!data || !kvfile_is_valid(&kvfile))
        return false;
    *ret_info = (struct cay_volume_info){
        .created_ms = (int64_t)kvfile_number(&kvfile, "created_ms"),
        .bytes = kvfile_number(&kvfile, "bytes"),
    };
    cay_copy_text(ret_info->name, sizeof ret_info->name, name);
    for (size_t i = 0; i < users->count; i++)
        ret_info->sandboxes += volume_is_used_by(&users->list[i], name);
    return true;
}

static int list_all(int store, const struct volume_users *users,
                    struct cay_volume_info **ret_infos, size_t *ret_count,
                    struct cay_error *err)
{
    char path[32];
    struct dirent **names = NULL;

    snprintf(path, sizeof path, "/proc/self/fd/%d", store);
    int count = scandir(path, &names, pick, alphasort);
    if (count < 0)
        return cay_fail_errno(err, errno, "volume.list", VOLUME_STORE);
    struct cay_volume_info *infos = calloc((size_t)count + 1, sizeof *infos);
    for (int i = 0; i < count; i++) {
        if (infos)
            *ret_count += load_info(store, names[i]->d_name, users, &infos[*ret_count]);
        free(names[i]);
    }
    free(names);
    *ret_infos = infos;
    return infos ? CAY_OK : cay_fail_memory(err, "volume.list");
}

int cay_volume_list(struct cay_volume_info **ret_infos, size_t *ret_count,
                    struct cay_error *err)
{
    struct cay_error own;
    struct volume_users users;
    AUTO_FD store = state_open(VOLUME_STORE, false, &own);

    *ret_count = 0;
    *ret_infos = NULL;
    if (store == CAY_E_NOT_FOUND) {
        *ret_infos = calloc(1, sizeof **ret_infos);
        return *ret_infos ? CAY_OK : cay_fail_memory(err, "volume.list");
    }
    if (store < 0)
        return cay_fail_as(err, store, &own);
    TRY(volume_find_users(&users, err));
    int code = list_all(store, &users, ret_infos, ret_count, err);
    free(users.list);
    return code;
}

/* --- remove --- */

static int fail_used(const char *name, const struct volume_user *user, const char *who,
                     struct cay_error *err)
{
    if (user->pool[0])
        return cay_fail(err, CAY_E_BUSY, 0, who, name, "a pool uses this volume",
                        "stop the pool first: cay pool stop %s", user->pool);
    return cay_fail(err, CAY_E_BUSY, 0, who, name, "a sandbox uses this volume",
                    "remove the sandbox first: %s", user->id);
}

static int check_unused(const char *name, const char *who, struct cay_error *err)
{
    struct volume_users users;
    int code = CAY_OK;

    TRY(volume_find_users(&users, err));
    for (size_t i = 0; !code && i < users.count; i++)
        if (volume_is_used_by(&users.list[i], name))
            code = fail_used(name, &users.list[i], who, err);
    free(users.list);
    return code;
}

int cay_volume_remove(const char *name, struct cay_error *err)
{
    static const char who[] = "volume.remove";

    TRY(volume_check_name(name, who, err));
    AUTO_FD store = state_open(VOLUME_STORE, false, err);
    if (store < 0)
        return store == CAY_E_NOT_FOUND ? volume_fail_unknown(name, who, err) : store;
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (dir < 0)
        return dir == -ENOENT ? volume_fail_unknown(name, who, err)
                              : cay_fail_errno(err, -dir, who, name);
    /* A creator holds the lock until its sandbox has a record. */
    if (flock(dir, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, who, name,
                        "a sandbox is being created with this volume", "try again");
    if (!volume_is_current(store, name, dir))
        return volume_fail_unknown(name, who, err);
    TRY(check_unused(name, who, err));
    return state_remove(store, name, who, err);
}

/* --- open --- */

int cay_volume_open(const char *name, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    const struct cay_bind bind = {name, CAY_VOLUME_PATH, true};
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .binds = &bind,
                                                .bind_count = 1,
                                                .workdir = CAY_VOLUME_PATH,
                                                .ephemeral = true};

    TRY(volume_check_name(name, "volume.open", err));
    return cay_sandbox_create(&options, ret_sandbox, err);
}
