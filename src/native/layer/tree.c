/* SPDX-License-Identifier: Apache-2.0 */
#include "native/layer/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/make/store.h"
#include "native/record/state.h"
#include "sys/path.h"

static const char op[] = "sandbox.checkpoint";

enum { FILE_MAX = 64 << 10, SIZE_DEPTH_MAX = 200 };

/* --- Files --- */

static int read_file(int dir, const char *name, struct kvfile *ret_file,
                     struct cay_error *err)
{
    ret_file->data = state_read(dir, name, FILE_MAX, &ret_file->len);
    if (!ret_file->data)
        return errno == ENOENT ? CAY_E_NOT_FOUND : cay_fail_errno(err, errno, op, name);
    if (kvfile_is_valid(ret_file))
        return CAY_OK;
    free(ret_file->data);
    return cay_fail(err, CAY_E_IO, 0, op, name, "a record of the checkpoints is damaged",
                    "create a new sandbox");
}

static int write_file(int dir, const char *name, struct buf *file, struct cay_error *err)
{
    int code = file->failed ? cay_fail_memory(err, op)
                            : state_write(dir, name, file->data, file->len, err);

    buf_done(file);
    return code;
}

int layer_tree_load(int store, struct layer_tree *ret_tree, struct cay_error *err)
{
    struct kvfile file;
    int code = read_file(store, "tree", &file, err);

    *ret_tree = (struct layer_tree){.live = LAYER_FIRST};
    if (code)
        return code == CAY_E_NOT_FOUND ? CAY_OK : code;
    ret_tree->live = (uint32_t)kvfile_number(&file, "live");
    ret_tree->parent = (uint32_t)kvfile_number(&file, "parent");
    ret_tree->next = (uint32_t)kvfile_number(&file, "next");
    ret_tree->next_parent = (uint32_t)kvfile_number(&file, "next_parent");
    ret_tree->device = kvfile_number(&file, "device");
    free(file.data);
    return CAY_OK;
}

int layer_tree_save(int store, const struct layer_tree *tree, struct cay_error *err)
{
    struct buf file;

    kvfile_begin(&file, FILE_MAX);
    kvfile_add_number(&file, "live", tree->live);
    kvfile_add_number(&file, "parent", tree->parent);
    kvfile_add_number(&file, "next", tree->next);
    kvfile_add_number(&file, "next_parent", tree->next_parent);
    kvfile_add_number(&file, "device", tree->device);
    return write_file(store, "tree", &file, err);
}

/* --- Layers --- */

int layer_open(int store, uint32_t id)
{
    char path[32];

    snprintf(path, sizeof path, "layers/%u", id);
    return path_open(store, id == LAYER_FIRST ? "." : path, O_PATH | O_DIRECTORY, 0,
                     PATH_PLAIN);
}

/* The root's owner, mode and time are those of its upper layer. */
static int copy_top(int from, int to, const char *name)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    int error = store_mkdir(to, name, 0700, 0);
    if (error)
        return error;
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    return fchownat(to, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) == 0 &&
                   fchmodat(to, name, st.st_mode & 07777, 0) == 0 &&
                   utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) == 0
               ? 0
               : -errno;
}

static int fill(int store, uint32_t id, uint32_t like, bool has_usr)
{
    AUTO_FD from = layer_open(store, like);
    AUTO_FD to = layer_open(store, id);

    if (from < 0 || to < 0)
        return from < 0 ? TAKE_FD(from) : TAKE_FD(to);
    int error = copy_top(from, to, "upper");
    if (!error)
        error = store_mkdir(to, "work", 0755, 0);
    if (!error && has_usr)
        error = copy_top(from, to, "usr");
    if (!error && has_usr)
        error = store_mkdir(to, "usr-work", 0755, 0);
    return error;
}

int layer_create(int store, uint32_t like, bool has_usr, struct cay_error *err)
{
    char path[32];
    int error = store_mkdir(store, "layers", 0700, 0);
    uint32_t id = LAYER_FIRST;

    if (!error || error == -EEXIST)
        do {
            snprintf(path, sizeof path, "layers/%u", ++id);
            error = store_mkdir(store, path, 0755, 0);
        } while (error == -EEXIST && id < LAYERS_MAX);
    if (error == -EEXIST)
        return cay_fail(err, CAY_E_LIMIT, 0, op, "checkpoints",
                        "the sandbox has too many checkpoints", "the limit is %d",
                        LAYERS_MAX);
    if (!error)
        error = fill(store, id, like, has_usr);
    return error ? cay_fail_errno(err, -error, op, "layer") : (int)id;
}

static int has_entries(int dir, const char *name)
{
    AUTO_FD fd = path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_DIR list = fd < 0 ? NULL : path_list(fd);

    if (!list)
        return fd == -ENOENT ? 0 : fd < 0 ? TAKE_FD(fd) : -errno;
    return path_next(list) != NULL;
}

int layer_is_empty(int store, uint32_t id)
{
    AUTO_FD dir = layer_open(store, id);

    if (dir < 0)
        return TAKE_FD(dir);
    int upper = has_entries(dir, "upper");
    int usr = upper ? 0 : has_entries(dir, "usr");
    return upper < 0 ? upper : usr < 0 ? usr : !upper && !usr;
}

int layer_save(int store, const struct cay_checkpoint *checkpoint, struct cay_error *err)
{
    AUTO_FD dir = layer_open(store, checkpoint->id);
    struct buf file;

    if (dir < 0)
        return cay_fail_errno(err, -dir, op, "layer");
    kvfile_begin(&file, FILE_MAX);
    kvfile_add_number(&file, "id", checkpoint->id);
    kvfile_add_number(&file, "parent", checkpoint->parent);
    kvfile_add_number(&file, "created_ms", (uint64_t)checkpoint->created_ms);
    kvfile_add(&file, "name", checkpoint->name);
    kvfile_add(&file, "cause", checkpoint->cause);
    kvfile_add(&file, "marks", "trusted");
    return write_file(dir, "layer", &file, err);
}

int layer_load(int store, uint32_t id, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err)
{
    AUTO_FD dir = layer_open(store, id);
    struct kvfile file;

    *ret_checkpoint = (struct cay_checkpoint){.id = id};
    if (dir < 0)
        return dir == -ENOENT ? CAY_E_NOT_FOUND : cay_fail_errno(err, -dir, op, "layer");
    int code = read_file(dir, "layer", &file, err);
    if (code)
        return code;
    ret_checkpoint->parent = (uint32_t)kvfile_number(&file, "parent");
    ret_checkpoint->created_ms = (int64_t)kvfile_number(&file, "created_ms");
    cay_copy_text(ret_checkpoint->name, sizeof ret_checkpoint->name,
                  kvfile_text(&file, "name"));
    cay_copy_text(ret_checkpoint->cause, sizeof ret_checkpoint->cause,
                  kvfile_text(&file, "cause"));
    free(file.data);
    return CAY_OK;
}

int layer_unseal(int store, uint32_t id, struct cay_error *err)
{
    AUTO_FD dir = layer_open(store, id);

    return dir >= 0 && (unlinkat(dir, "layer", 0) == 0 || errno == ENOENT)
               ? CAY_OK
               : cay_fail_errno(err, dir < 0 ? -dir : errno, op, "layer");
}

void layer_drop(int store, uint32_t id)
{
    char name[16];
    AUTO_FD layers = path_open(store, "layers", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    snprintf(name, sizeof name, "%u", id);
    if (layers >= 0)
        (void)!state_remove_tree(layers, name, op, name, NULL);
}

/* --- Lists --- */

/* What the layer takes; of links and directories only their number. */
static void add_size(int dir, const char *name, int depth,
                     struct cay_checkpoint *checkpoint)
{
    AUTO_FD fd = path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_DIR list = fd < 0 || depth > SIZE_DEPTH_MAX ? NULL : path_list(fd);
    struct stat st;

    for (struct dirent *entry; (entry = path_next(list));) {
        if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            add_size(fd, entry->d_name, depth + 1, checkpoint);
            continue;
        }
        checkpoint->files++;
        checkpoint->bytes += (uint64_t)st.st_blocks * 512;
    }
}

static int compare(const void *a, const void *b)
{
    const struct cay_checkpoint *one = a, *other = b;

    return one->id < other->id ? -1 : one->id > other->id;
}

static int add_layer(int store, uint32_t id, bool with_sizes,
                     struct cay_checkpoint **list, size_t *count, struct cay_error *err)
{
    struct cay_checkpoint checkpoint;
    int code = layer_load(store, id, &checkpoint, err);

    if (code)
        return code == CAY_E_NOT_FOUND ? CAY_OK : code;
    if (with_sizes) {
        AUTO_FD dir = layer_open(store, id);
        add_size(dir, "upper", 0, &checkpoint);
        add_size(dir, "usr", 0, &checkpoint);
    }
    struct cay_checkpoint *more = reallocarray(*list, *count + 1, sizeof *more);
    if (!more)
        return cay_fail_memory(err, op);
    *list = more;
    more[(*count)++] = checkpoint;
    return CAY_OK;
}

int layer_list(int store, bool with_sizes, struct cay_checkpoint **ret_list,
               size_t *ret_count, struct cay_error *err)
{
    struct cay_checkpoint *list = NULL;
    size_t count = 0;
    AUTO_FD fd = path_open(store, "layers", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_DIR layers = fd < 0 ? NULL : path_list(fd);
    int code = add_layer(store, LAYER_FIRST, with_sizes, &list, &count, err);

    for (struct dirent *entry; !code && (entry = path_next(layers));)
        code = add_layer(store, (uint32_t)strtoul(entry->d_name, NULL, 10), with_sizes,
                         &list, &count, err);
    if (code) {
        free(list);
        return code;
    }
    if (count)
        qsort(list, count, sizeof *list, compare);
    *ret_list = list;
    *ret_count = count;
    return CAY_OK;
}

int layer_find(int store, const char *which, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err)
{
    struct cay_checkpoint *list;
    size_t count;
    char number[16];

    TRY(layer_list(store, false, &list, &count, err));
    size_t i = count; /* the newest of a name */
    while (i > 0) {
        snprintf(number, sizeof number, "%u", list[i - 1].id);
        if (strcmp(number, which) == 0 || strcmp(list[i - 1].name, which) == 0)
            break;
        i--;
    }
    if (i > 0)
        *ret_checkpoint = list[i - 1];
    free(list);
    return i > 0 ? CAY_OK
                 : cay_fail(err, CAY_E_NOT_FOUND, 0, "sandbox.rollback", which,
                            "the sandbox has no checkpoint with this number or name",
                            "cay checkpoints lists them");
}

void layer_stack_close(struct layer_stack *stack)
{
    while (stack->count > 0)
        (void)close(stack->fds[--stack->count]);
}

int layer_stack_open(int store, uint32_t id, const char *part,
                     struct layer_stack *ret_stack, struct cay_error *err)
{
    struct cay_checkpoint checkpoint = {0};
    int code = CAY_OK;

    ret_stack->count = 0;
    for (; !code && id; id = checkpoint.parent) {
        if (ret_stack->count == LAYER_DEPTH_MAX) {
            code = cay_fail(err, CAY_E_LIMIT, 0, op, "checkpoints",
                            "the sandbox has too many checkpoints above each other",
                            "the limit is %d; create a new sandbox from the files",
                            LAYER_DEPTH_MAX);
            break;
        }
        AUTO_FD dir = layer_open(store, id);
        int fd =
            dir < 0 ? dir : path_open(dir, part, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        if (fd < 0)
            code = cay_fail_errno(err, -fd, op, "layer");
        else
            ret_stack->fds[ret_stack->count++] = fd;
        if (!code)
            code = layer_load(store, id, &checkpoint, err);
        if (code == CAY_E_NOT_FOUND)
            code = cay_fail(err, CAY_E_IO, 0, op, "layer",
                            "a layer below this checkpoint has no record",
                            "create a new sandbox");
    }
    if (code)
        layer_stack_close(ret_stack);
    return code;
}
