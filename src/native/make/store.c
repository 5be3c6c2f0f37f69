/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/build.h"
#include "sys/path.h"

int store_mkdir(int dir, const char *name, unsigned mode, uint32_t owner)
{
    if (mkdirat(dir, name, mode) != 0)
        return -errno;
    /* The umask belongs to the whole process.  In the root of a sandbox the name may be a
     * link meanwhile. */
    struct stat st;
    int error = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
    if (!error && (st.st_mode & 07777) != mode)
        error = path_chmod(dir, name, mode);
    if (!error && owner && fchownat(dir, name, owner, owner, AT_SYMLINK_NOFOLLOW) != 0)
        error = -errno;
    return error;
}

/* The root's owner, mode and time are those of its upper layer. */
int store_mkdir_like(int dir, const char *name, int like)
{
    struct stat st;

    if (fstat(like, &st) != 0)
        return -errno;
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (mkdirat(dir, name, 0700) != 0 ||
        fchownat(dir, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    int error = path_chmod(dir, name, st.st_mode & 07777);
    if (!error && utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) != 0)
        error = -errno;
    return error;
}

int store_open_part(int store, uint32_t id, const char *part)
{
    char path[48];
    const char *flat = id & LAYER_FLAT ? "/flat" : "";
    uint32_t number = id & ~(uint32_t)LAYER_FLAT;

    if (number == LAYER_FIRST)
        snprintf(path, sizeof path, ".%s/%s", flat, part);
    else
        snprintf(path, sizeof path, "layers/%u%s/%s", number, flat, part);
    return path_open(store, path, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
}

int store_open_layer(int store, uint32_t id)
{
    return store_open_part(store, id, ".");
}

void store_done(struct store *store)
{
    auto_close(&store->dev);
    auto_close(&store->dir);
    auto_close(&store->top);
    *store = (struct store)STORE_NONE;
}

static int fill(struct store *store)
{
    int error = store_mkdir(store->top, PLAN_BOTTOM_ROOT, 0755, 0);

    if (!error)
        error = store_mkdir(store->top, "store", 0700, 0);
    if (error)
        return error;
    store->dir = openat(store->top, "store", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (store->dir < 0)
        return -errno;
    error = store_mkdir(store->dir, "dev", 0755, 0);
    if (error)
        return error;
    store->dev = build_part(store->dir, "dev", PLAN_WITH_DEVICES);
    return store->dev < 0 ? store->dev : 0;
}

int store_create(uint64_t size, struct store *ret_store)
{
    const struct plan_step step = {.kind = PLAN_TREE, .mode = 0755, .number = size};
    int error = 0;

    *ret_store = (struct store)STORE_NONE;
    ret_store->top = build_tree(&step, 0, 0);
    error = ret_store->top < 0 ? ret_store->top : fill(ret_store);
    if (error)
        store_done(ret_store);
    return error == -EINVAL ? 0 : error;
}
