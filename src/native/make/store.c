/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/build.h"

int store_mkdir(int dir, const char *name, unsigned mode, uint32_t owner)
{
    if (mkdirat(dir, name, mode) != 0)
        return -errno;
    /* The umask belongs to the whole process. */
    return fchmodat(dir, name, mode, 0) == 0 &&
                   (!owner || fchownat(dir, name, owner, owner, AT_SYMLINK_NOFOLLOW) == 0)
               ? 0
               : -errno;
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
