/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/inherit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/make/layer.h"
#include "native/make/visit.h"
#include "native/record/runtime.h"
#include "native/record/state.h"
#include "sys/path.h"
#include "sys/shift.h"

static const char file_name[] = "inherited";

enum { FILE_MAX = 64 << 10 };

void inherited_init(struct inherited *ret_inherited)
{
    ret_inherited->namespace = -1;
    ret_inherited->store_count = ret_inherited->layer_count = 0;
    ret_inherited->template_dev = ret_inherited->template_ino = 0;
    ret_inherited->disk = (struct storage)STORAGE_NONE;
    ret_inherited->below[0] = ret_inherited->source[0] = '\0';
    ret_inherited->flatten = NULL;
}

static void close_all(int *fds, size_t *count)
{
    while (*count > 0)
        auto_close(&fds[--*count]);
}

void inherited_done(struct inherited *inherited)
{
    close_all(inherited->stores, &inherited->store_count);
    auto_close(&inherited->namespace);
    inherited->namespace = -1;
    storage_done(&inherited->disk);
}

int inherited_add_store(struct inherited *inherited, uint32_t id_base)
{
    if (inherited->store_count == INHERIT_STORES_MAX)
        return -E2BIG;
    inherited->bases[inherited->store_count] = id_base;
    inherited->stores[inherited->store_count++] = -1;
    return 0;
}

int inherited_add_layer(struct inherited *inherited, uint32_t store, uint32_t id)
{
    if (inherited->layer_count == LAYER_DEPTH_MAX)
        return -E2BIG;
    inherited->layers[inherited->layer_count++] = (struct inherited_layer){store, id};
    return 0;
}

/* --- The file --- */

static int save(const struct inherited *inherited, int store)
{
    struct cay_error err = {0};
    char text[32];
    AUTO_BUF file;

    kvfile_begin(&file, FILE_MAX);
    for (size_t i = 0; i < inherited->store_count; i++)
        kvfile_add_number(&file, "store", inherited->bases[i]);
    for (size_t i = 0; i < inherited->layer_count; i++) {
        snprintf(text, sizeof text, "%u:%u", inherited->layers[i].store,
                 inherited->layers[i].id);
        kvfile_add(&file, "layer", text);
    }
    if (file.failed)
        return -ENOMEM;
    return state_write(store, file_name, file.data, file.len, &err) == CAY_OK
               ? 0
               : -(err.sys_errno ? err.sys_errno : EIO);
}

static int parse(const struct kvfile *file, struct inherited *inherited)
{
    int error = 0;
    char *end;

    for (const char *at = NULL; !error && (at = kvfile_next(file, "store", at));)
        error = inherited_add_store(inherited, (uint32_t)strtoul(at, NULL, 10));
    for (const char *at = NULL; !error && (at = kvfile_next(file, "layer", at));) {
        uint32_t store = (uint32_t)strtoul(at, &end, 10);
        if (*end != ':' || store >= inherited->store_count)
            return -EINVAL;
        error =
            inherited_add_layer(inherited, store, (uint32_t)strtoul(end + 1, NULL, 10));
    }
    return error;
}

int inherited_load(int store, struct inherited *ret_inherited, struct cay_error *err)
{
    struct kvfile file;

    inherited_init(ret_inherited);
    file.data = state_read(store, file_name, FILE_MAX, &file.len);
    if (!file.data)
        return errno == ENOENT
                   ? CAY_OK
                   : cay_fail_errno(err, errno, "sandbox.checkpoint", file_name);
    int error = kvfile_is_valid(&file) ? parse(&file, ret_inherited) : -EINVAL;
    free(file.data);
    if (!error)
        return CAY_OK;
    inherited_init(ret_inherited);
    return cay_fail(err, CAY_E_IO, -error, "sandbox.checkpoint", file_name,
                    "a record of the fork is damaged", "create a new sandbox");
}

/* --- Mounts --- */

int inherited_open(const struct inherited *inherited, const char *part, int *ret_fds,
                   size_t *ret_count)
{
    *ret_count = 0;
    for (size_t i = 0; i < inherited->layer_count; i++) {
        const struct inherited_layer *layer = &inherited->layers[i];
        AUTO_FD dir = store_open_layer(inherited->stores[layer->store], layer->id);
        int fd =
            dir < 0 ? dir : path_open(dir, part, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        if (fd < 0)
            return fd;
        ret_fds[(*ret_count)++] = fd;
    }
    return 0;
}

/* The host's root owns the store itself.  On a disk, and where the owners are those of
 * inside, it has the id after them. */
static int open_map(uint32_t from, uint32_t to)
{
    uint32_t root_from = from == INHERIT_INSIDE ? RUNTIME_IDS : 0;
    uint32_t root_to = to == INHERIT_INSIDE ? RUNTIME_IDS : 0;
    char ids[64];

    snprintf(ids, sizeof ids, "%u %u %d\n%u %u 1\n", from, to, RUNTIME_IDS, root_from,
             root_to);
    return shift_map(ids, ids);
}

/* The first is the store of the sandbox that is forked.  Links to files are possible
 * only within one mount, so the disk itself stands for its mount if the owners are the
 * same. */
static int shift_store(const struct inherited *inherited, size_t i, uint32_t to)
{
    bool is_disk = i == 0 && inherited->disk.disk >= 0;

    if (is_disk && to == INHERIT_INSIDE) {
        int fd = fcntl(inherited->disk.disk, F_DUPFD_CLOEXEC, 0);
        return fd < 0 ? -errno : fd;
    }
    AUTO_FD map = open_map(inherited->bases[i], to);
    if (map < 0)
        return TAKE_FD(map);
    return is_disk ? shift_mount(inherited->disk.disk, map,
                                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY)
                   : visit_shift_store(inherited->namespace, (int)i - 1, map);
}

int inherited_shift(const struct inherited *inherited, uint32_t id_base,
                    struct inherited *ret_own)
{
    *ret_own = *inherited;
    ret_own->namespace = -1;
    ret_own->disk = (struct storage)STORAGE_NONE;
    for (size_t i = 0; i < inherited->store_count; i++) {
        int store = shift_store(inherited, i, id_base);
        if (store < 0)
            return store;
        ret_own->stores[i] = store;
    }
    return 0;
}

static int mount_overlay(const struct inherited *inherited, const struct overlay *overlay,
                         int map, uint32_t id_base, int *ret_usr)
{
    int layers[LAYER_DEPTH_MAX], usr_layers[LAYER_DEPTH_MAX];
    size_t count, usr_count = 0;
    struct overlay own = *overlay;
    int fd = inherited_open(inherited, "upper", layers, &count);

    if (!fd && overlay->usr >= 0)
        fd = inherited_open(inherited, "usr", usr_layers, &usr_count);
    own.layers = layers;
    own.usr_layers = usr_layers;
    own.layer_count = count;
    if (!fd)
        fd = overlay_mount(&own, map, id_base, ret_usr);
    close_all(layers, &count);
    close_all(usr_layers, &usr_count);
    return fd;
}

/* Only a detached mount can be a layer, so the overlay comes first. */
static int attach_stores(const struct inherited *inherited, const struct store *store)
{
    int error = store_mkdir(store->dir, INHERIT_DIRECTORY, 0700, 0);
    char path[32];

    for (size_t i = 0; !error && i < inherited->store_count; i++) {
        snprintf(path, sizeof path, INHERIT_DIRECTORY "/%zu", i);
        error = store_mkdir(store->dir, path, 0700, 0);
        if (!error && syscall(SYS_move_mount, inherited->stores[i], "", store->dir, path,
                              MOVE_MOUNT_F_EMPTY_PATH) != 0)
            error = -errno;
    }
    return error;
}

static int mount_memory(const struct inherited *inherited, const struct store *store,
                        const struct overlay *overlay, int map, uint32_t id_base,
                        int *ret_usr)
{
    struct inherited own;
    AUTO_FD root = -1;
    int error = inherited_shift(inherited, id_base, &own);

    if (!error) {
        root = mount_overlay(&own, overlay, map, id_base, ret_usr);
        error = root < 0 ? root : 0;
    }
    if (!error)
        error = attach_stores(&own, store);
    if (!error)
        error = save(&own, store->dir);
    inherited_done(&own);
    return error ? error : TAKE_FD(root);
}

int inherit_mount(const struct inherited *inherited, const struct store *store,
                  const struct overlay *overlay, int map, uint32_t id_base, int *ret_usr)
{
    if (store->dir < 0)
        return -EOPNOTSUPP;
    if (overlay->disk < 0)
        return mount_memory(inherited, store, overlay, map, id_base, ret_usr);
    int error = inherited->flatten(inherited, overlay, id_base);
    return error ? error : layer_mount(overlay, map, id_base, ret_usr);
}
