/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/record/state.h"
#include "sys/path.h"

static const char op[] = "sandbox.checkpoint", tree_file[] = "tree",
                  below_file[] = "below", marks[] = "trusted", reserve_file[] = "reserve";

enum {
    FILE_MAX = 64 << 10,
    SIZE_DEPTH_MAX = 200,
    LOCK_MS = 10000,
    RESERVE_BYTES = 256 << 10,
    PLENTY_BYTES = 16 * RESERVE_BYTES
};

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

static int write_file(int dir, const char *name, struct buf *file, bool is_durable,
                      struct cay_error *err)
{
    int code = file->failed ? cay_fail_memory(err, op)
               : is_durable ? state_write(dir, name, file->data, file->len, err)
                            : state_replace(dir, name, file->data, file->len, err);

    buf_done(file);
    return code;
}

int layer_tree_load(int store, struct layer_tree *ret_tree, struct cay_error *err)
{
    struct kvfile file;
    int code = read_file(store, tree_file, &file, err);

    *ret_tree = (struct layer_tree){.live = LAYER_FIRST};
    if (code)
        return code == CAY_E_NOT_FOUND ? CAY_OK : code;
    ret_tree->live = (uint32_t)kvfile_number(&file, "live");
    ret_tree->parent = (uint32_t)kvfile_number(&file, "parent");
    ret_tree->copy = (uint32_t)kvfile_number(&file, "copy");
    ret_tree->origin = (uint32_t)kvfile_number(&file, "origin");
    ret_tree->last = (uint32_t)kvfile_number(&file, "last");
    ret_tree->next = (uint32_t)kvfile_number(&file, "next");
    ret_tree->next_parent = (uint32_t)kvfile_number(&file, "next_parent");
    ret_tree->device = kvfile_number(&file, "device");
    free(file.data);
    return CAY_OK;
}

int layer_tree_save(int store, const struct layer_tree *tree, bool is_durable,
                    struct cay_error *err)
{
    struct buf file;

    kvfile_begin(&file, FILE_MAX);
    kvfile_add_number(&file, "live", tree->live);
    kvfile_add_number(&file, "parent", tree->parent);
    kvfile_add_number(&file, "copy", tree->copy);
    kvfile_add_number(&file, "origin", tree->origin);
    kvfile_add_number(&file, "last", tree->last);
    kvfile_add_number(&file, "next", tree->next);
    kvfile_add_number(&file, "next_parent", tree->next_parent);
    kvfile_add_number(&file, "device", tree->device);
    return write_file(store, tree_file, &file, is_durable, err);
}

int layer_tree_adopt(int store, struct layer_tree *tree, struct cay_error *err)
{
    struct cay_checkpoint checkpoint;

    if (layer_load(store, tree->live, &checkpoint, NULL) != CAY_OK)
        TRY(layer_seal(store, tree->live, tree, NULL, "recovered", &checkpoint, err));
    *tree = (struct layer_tree){
        .live = tree->next, .parent = tree->next_parent, .last = tree->last};
    return CAY_OK;
}

int layer_lock(int store)
{
    uint64_t end = clock_ms() + LOCK_MS;

    while (flock(store, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || clock_ms() >= end)
            return -errno;
        clock_sleep_ms(1);
    }
    return 0;
}

/* --- Layers --- */

static int make_like(int from, int to, const char *name)
{
    AUTO_FD like = path_open(from, name, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);

    return like < 0 ? TAKE_FD(like) : store_mkdir_like(to, name, like);
}

static int fill(int store, uint32_t id, uint32_t like, bool has_usr)
{
    AUTO_FD from = store_open_layer(store, like);
    AUTO_FD to = store_open_layer(store, id);

    if (from < 0 || to < 0)
        return from < 0 ? TAKE_FD(from) : TAKE_FD(to);
    int error = make_like(from, to, "upper");
    if (!error)
        error = store_mkdir(to, "work", 0755, 0);
    if (!error && has_usr)
        error = make_like(from, to, "usr");
    if (!error && has_usr)
        error = store_mkdir(to, "usr-work", 0755, 0);
    return error;
}

/* The highest number of a layer; removes those that nothing refers to. */
static int collect(int layers, uint32_t live, uint32_t *ret_last)
{
    char path[NAME_MAX + 8];
    struct stat st;
    AUTO_DIR list = path_list(layers);

    *ret_last = LAYER_FIRST;
    for (struct dirent *entry; (entry = path_next(list));) {
        uint32_t id = (uint32_t)strtoul(entry->d_name, NULL, 10);
        snprintf(path, sizeof path, "%s/layer", entry->d_name);
        if (id != live && fstatat(layers, path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno != ENOENT)
                return -errno;
            (void)!state_remove_tree(layers, entry->d_name, op, entry->d_name, NULL);
        } else if (id > *ret_last) {
            *ret_last = id;
        }
    }
    return list ? 0 : -errno;
}

/* On tmpfs, allocating it and releasing it each take as long as 20 other calls. */
static void release_reserve(int store)
{
    struct statvfs space;

    if (fstatvfs(store, &space) != 0 ||
        (uint64_t)space.f_bavail * space.f_frsize < PLENTY_BYTES)
        (void)unlinkat(store, reserve_file, 0);
}

void layer_reserve(int store)
{
    AUTO_FD file =
        path_open(store, reserve_file, O_WRONLY | O_CREAT | O_EXCL, 0600, PATH_PLAIN);

    if (file >= 0 && fallocate(file, 0, 0, RESERVE_BYTES) != 0)
        (void)unlinkat(store, reserve_file, 0);
}

/* Replaces what a crash left. */
static int make_directory(int layers, uint32_t id)
{
    char name[16];

    snprintf(name, sizeof name, "%u", id);
    int error = store_mkdir(layers, name, 0755, 0);
    if (error != -EEXIST)
        return error;
    (void)!state_remove_tree(layers, name, op, name, NULL);
    return store_mkdir(layers, name, 0755, 0);
}

int layer_create(int store, struct layer_tree *tree, uint32_t like, bool has_usr,
                 struct cay_error *err)
{
    release_reserve(store);
    int error = store_mkdir(store, "layers", 0700, 0);

    AUTO_FD layers =
        error && error != -EEXIST
            ? error
            : path_open(store, "layers", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    error = layers < 0   ? layers
            : tree->last ? 0
                         : collect(layers, tree->live, &tree->last);
    if (!error && tree->last >= LAYERS_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, "checkpoints",
                        "the sandbox has too many checkpoints", "the limit is %d",
                        LAYERS_MAX);
    if (!error)
        error = make_directory(layers, tree->last + 1);
    if (!error)
        error = fill(store, tree->last + 1, like, has_usr);
    return error ? cay_fail_errno(err, -error, op, "layer") : (int)++tree->last;
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
    AUTO_FD dir = store_open_layer(store, id);

    if (dir < 0)
        return TAKE_FD(dir);
    int upper = has_entries(dir, "upper");
    int usr = upper ? 0 : has_entries(dir, "usr");
    return upper < 0 ? upper : usr < 0 ? usr : !upper && !usr;
}

int layer_seal(int store, uint32_t id, const struct layer_tree *tree, const char *name,
               const char *cause, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err)
{
    *ret_checkpoint = (struct cay_checkpoint){.id = id,
                                              .parent = layer_tree_origin(tree),
                                              .below = tree->parent,
                                              .created_ms = clock_since_1970_ms()};
    cay_copy_text(ret_checkpoint->name, sizeof ret_checkpoint->name, name ? name : "");
    cay_copy_text(ret_checkpoint->cause, sizeof ret_checkpoint->cause, cause);
    return layer_save(store, ret_checkpoint, err);
}

int layer_save(int store, const struct cay_checkpoint *checkpoint, struct cay_error *err)
{
    AUTO_FD dir = store_open_layer(store, checkpoint->id);
    struct buf file;

    if (dir < 0)
        return cay_fail_errno(err, -dir, op, "layer");
    kvfile_begin(&file, FILE_MAX);
    kvfile_add_number(&file, "id", checkpoint->id);
    kvfile_add_number(&file, "parent", checkpoint->parent);
    kvfile_add_number(&file, "below", checkpoint->below);
    kvfile_add_number(&file, "processes", checkpoint->processes);
    kvfile_add_number(&file, "flags", checkpoint->flags);
    kvfile_add_number(&file, "created_ms", (uint64_t)checkpoint->created_ms);
    kvfile_add(&file, "name", checkpoint->name);
    kvfile_add(&file, "cause", checkpoint->cause);
    kvfile_add(&file, "marks", marks);
    return write_file(dir, "layer", &file, true, err);
}

/* An overlay ignores marks of another kind: removed files would be visible again. */
static int check_marks(const struct kvfile *file, struct cay_error *err)
{
    const char *found = kvfile_text(file, "marks");

    return found && strcmp(found, marks) == 0
               ? CAY_OK
               : cay_fail(err, CAY_E_UNSUPPORTED, 0, op, found ? found : "layer",
                          "the layer has marks of another kind of overlay",
                          "use it at the isolation level that it was created at");
}

int layer_load(int store, uint32_t id, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err)
{
    AUTO_FD dir = store_open_layer(store, id);
    struct kvfile file;

    *ret_checkpoint = (struct cay_checkpoint){.id = id};
    if (dir < 0)
        return dir == -ENOENT ? CAY_E_NOT_FOUND : cay_fail_errno(err, -dir, op, "layer");
    int code = read_file(dir, "layer", &file, err);
    if (code)
        return code;
    code = check_marks(&file, err);
    ret_checkpoint->parent = (uint32_t)kvfile_number(&file, "parent");
    ret_checkpoint->below = (uint32_t)kvfile_number(&file, "below");
    ret_checkpoint->processes = (uint32_t)kvfile_number(&file, "processes");
    ret_checkpoint->flags = (uint32_t)kvfile_number(&file, "flags");
    ret_checkpoint->created_ms = (int64_t)kvfile_number(&file, "created_ms");
    cay_copy_text(ret_checkpoint->name, sizeof ret_checkpoint->name,
                  kvfile_text(&file, "name"));
    cay_copy_text(ret_checkpoint->cause, sizeof ret_checkpoint->cause,
                  kvfile_text(&file, "cause"));
    free(file.data);
    return code;
}

int layer_unseal(int store, uint32_t id, struct cay_error *err)
{
    AUTO_FD dir = store_open_layer(store, id);

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

    if (one->created_ms != other->created_ms)
        return one->created_ms < other->created_ms ? -1 : 1;
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
        AUTO_FD dir = store_open_layer(store, id);
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

static int list_all(int store, bool with_sizes, struct cay_checkpoint **ret_list,
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

static const struct cay_checkpoint *find_id(const struct cay_checkpoint *list,
                                            size_t count, uint32_t id)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].id == id)
            return &list[i];
    return NULL;
}

static uint32_t skip_removed(const struct cay_checkpoint *list, size_t count, uint32_t id)
{
    const struct cay_checkpoint *found;

    while ((found = find_id(list, count, id)) && found->flags & LAYER_REMOVED)
        id = found->parent;
    return id;
}

int layer_list(int store, bool with_sizes, struct cay_checkpoint **ret_list,
               size_t *ret_count, struct cay_error *err)
{
    size_t count, kept = 0, removed = 0;

    TRY(list_all(store, with_sizes, ret_list, &count, err));
    struct cay_checkpoint *list = *ret_list;
    for (size_t i = 0; i < count; i++)
        removed += list[i].flags & LAYER_REMOVED;
    for (size_t i = 0; removed && i < count; i++)
        list[i].parent = skip_removed(list, count, list[i].parent);
    for (size_t i = 0; i < count; i++)
        if (!(list[i].flags & LAYER_REMOVED))
            list[kept++] = list[i];
    *ret_count = kept;
    return CAY_OK;
}

uint32_t layer_find_visible(int store, const struct layer_tree *tree)
{
    uint32_t id = layer_tree_origin(tree);
    struct cay_checkpoint checkpoint;

    while (layer_load(store, id, &checkpoint, NULL) == CAY_OK &&
           checkpoint.flags & LAYER_REMOVED)
        id = checkpoint.parent;
    return id;
}

/* No name has only digits. */
static int find_number(int store, const char *which,
                       struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    if (!*which || *which == '0' || strlen(which) > 9 ||
        strspn(which, "0123456789") != strlen(which))
        return CAY_E_NOT_FOUND;
    int code = layer_load(store, (uint32_t)strtoul(which, NULL, 10), ret_checkpoint, err);
    return !code && ret_checkpoint->flags & LAYER_REMOVED ? CAY_E_NOT_FOUND : code;
}

int layer_find(int store, const char *which, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err)
{
    struct cay_checkpoint *list;
    size_t count;
    int code = find_number(store, which, ret_checkpoint, err);

    if (code != CAY_E_NOT_FOUND)
        return code;
    TRY(layer_list(store, false, &list, &count, err));
    size_t i = count; /* the newest of a name */
    while (i > 0 && strcmp(list[i - 1].name, which) != 0)
        i--;
    if (i > 0)
        *ret_checkpoint = list[i - 1];
    free(list);
    return i > 0 ? CAY_OK
                 : cay_fail(err, CAY_E_NOT_FOUND, 0, "sandbox.rollback", which,
                            "the sandbox has no checkpoint with this number or name",
                            "cay checkpoints lists them");
}

/* --- Removing --- */

static void add_freed(int dir, const char *name, int depth, uint64_t *freed)
{
    AUTO_FD fd = path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_DIR list = fd < 0 || depth > SIZE_DEPTH_MAX ? NULL : path_list(fd);
    struct stat st;

    for (struct dirent *entry; (entry = path_next(list));) {
        if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            add_freed(fd, entry->d_name, depth + 1, freed);
        else if (st.st_nlink == 1) /* others are in another layer, too */
            *freed += (uint64_t)st.st_blocks * 512;
    }
}

/* The record first: without one, a layer is what a crash left. */
static int drop_sealed(int store, uint32_t id, uint64_t *freed, struct cay_error *err)
{
    static const char *const parts[] = {"upper", "work", "usr", "usr-work", "flat"};
    AUTO_FD dir = store_open_layer(store, id);

    TRY(layer_unseal(store, id, err));
    add_freed(dir, "upper", 0, freed);
    add_freed(dir, "usr", 0, freed);
    if (id != LAYER_FIRST) {
        layer_drop(store, id);
        return CAY_OK;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (faccessat(store, parts[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            TRY(state_remove_tree(store, parts[i], op, parts[i], err));
    return CAY_OK;
}

static bool is_needed(const struct cay_checkpoint *list, size_t count,
                      const struct layer_tree *tree, const struct cay_checkpoint *one)
{
    bool is_below = tree->parent == one->id;

    for (size_t i = 0; !is_below && i < count; i++)
        is_below = list[i].below == one->id;
    return is_below || !(one->flags & LAYER_REMOVED) || one->flags & LAYER_FORKED;
}

/* What had it as its parent gets its own parent. */
static int replace_parent(int store, struct layer_tree *tree, struct cay_checkpoint *list,
                          size_t count, const struct cay_checkpoint *gone,
                          struct cay_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].parent == gone->id) {
            list[i].parent = gone->parent;
            TRY(layer_save(store, &list[i], err));
        }
    if (tree->copy != gone->id && tree->origin != gone->id)
        return CAY_OK;
    tree->copy = tree->copy == gone->id ? 0 : tree->copy;
    tree->origin = gone->parent;
    return layer_tree_save(store, tree, true, err);
}

static int drop_unneeded(int store, struct layer_tree *tree, struct cay_checkpoint *list,
                         size_t count, uint64_t *freed, struct cay_error *err)
{
    for (size_t i = 0; i < count;) {
        struct cay_checkpoint gone = list[i];
        if (is_needed(list, count, tree, &gone)) {
            i++;
            continue;
        }
        list[i] = list[--count];
        TRY(replace_parent(store, tree, list, count, &gone, err));
        TRY(drop_sealed(store, gone.id, freed, err));
        i = 0; /* the layer below it may be the next */
    }
    return CAY_OK;
}

int layer_remove(int store, struct layer_tree *tree,
                 const struct cay_checkpoint *checkpoint, uint64_t *ret_freed,
                 struct cay_error *err)
{
    struct cay_checkpoint own = {0}, *list;
    size_t count;

    TRY(layer_load(store, checkpoint->id, &own, err));
    own.flags |= LAYER_REMOVED;
    TRY(layer_save(store, &own, err));
    TRY(list_all(store, false, &list, &count, err));
    int code = drop_unneeded(store, tree, list, count, ret_freed, err);
    free(list);
    AUTO_FD layers = path_open(store, "layers", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    uint32_t last;
    if (!code && layers >= 0)
        (void)collect(layers, tree->live, &last);
    return code;
}

int layer_fail_depth(struct cay_error *err)
{
    return cay_fail(err, CAY_E_LIMIT, 0, op, "checkpoints",
                    "the sandbox has too many checkpoints above each other",
                    "the limit is %d; create a new sandbox from the files",
                    LAYER_DEPTH_MAX);
}

int layer_find_below(int store, uint32_t id, uint32_t *ret_below, struct cay_error *err)
{
    struct cay_checkpoint checkpoint;
    int code = layer_load(store, id, &checkpoint, err);

    *ret_below = checkpoint.below;
    return code != CAY_E_NOT_FOUND
               ? code
               : cay_fail(err, CAY_E_IO, 0, op, "layer",
                          "a layer below this checkpoint has no record",
                          "create a new sandbox");
}

void layer_stack_close(struct layer_stack *stack)
{
    while (stack->count > 0)
        (void)close(stack->fds[--stack->count]);
}

int layer_step(int store, uint32_t id, uint32_t *ret_shown, uint32_t *ret_below,
               struct cay_error *err)
{
    AUTO_FD flat = store_open_layer(store, id | LAYER_FLAT);
    struct kvfile file;

    if (flat >= 0) {
        TRY(read_file(flat, below_file, &file, err));
        *ret_below = (uint32_t)kvfile_number(&file, "below");
        *ret_shown = id | LAYER_FLAT;
        free(file.data);
        return CAY_OK;
    }
    *ret_shown = id;
    return layer_find_below(store, id, ret_below, err);
}

int layer_save_flat(int dir, uint32_t below, struct cay_error *err)
{
    struct buf file;

    kvfile_begin(&file, FILE_MAX);
    kvfile_add_number(&file, "below", below);
    return write_file(dir, below_file, &file, true, err);
}

static int add_own(int store, uint32_t id, const char *part, size_t room,
                   struct layer_stack *stack, uint32_t *ret_below, struct cay_error *err)
{
    uint32_t shown;

    if (stack->count >= room)
        return layer_fail_depth(err);
    TRY(layer_step(store, id, &shown, ret_below, err));
    int fd = store_open_part(store, shown, part);
    if (fd < 0)
        return cay_fail_errno(err, -fd, op, "layer");
    stack->fds[stack->count++] = fd;
    stack->has_flat = stack->has_flat || shown & LAYER_FLAT;
    stack->above_flat += !stack->has_flat;
    return CAY_OK;
}

int layer_stack_open(int store, uint32_t id, const struct inherited *inherited,
                     const char *part, struct layer_stack *ret_stack,
                     struct cay_error *err)
{
    uint32_t below = 0;
    size_t room = LAYER_DEPTH_MAX - inherited->layer_count, more = 0;
    int code = CAY_OK;

    ret_stack->count = ret_stack->above_flat = 0;
    ret_stack->has_flat = false;
    for (; !code && id; id = below)
        code = add_own(store, id, part, room, ret_stack, &below, err);
    int error =
        code ? 0
             : inherited_open(inherited, part, ret_stack->fds + ret_stack->count, &more);
    ret_stack->count += more;
    if (error)
        code = cay_fail_errno(err, -error, op, "layer");
    if (code)
        layer_stack_close(ret_stack);
    return code;
}

/* --- The root of a sandbox on disk --- */

/* A process that died in a switch has left "next"; its files are those of the live layer
 * then, or what a rollback was about to show. */
static int load_settled(int store, struct layer_tree *ret_tree, struct cay_error *err)
{
    int error = layer_lock(store);

    if (error)
        return cay_fail_errno(err, -error, op, "lock");
    TRY(layer_tree_load(store, ret_tree, err));
    if (ret_tree->next) {
        TRY(layer_tree_adopt(store, ret_tree, err));
        TRY(layer_tree_save(store, ret_tree, true, err));
    }
    return layer_unseal(store, ret_tree->live, err);
}

static int mount_live(int store, const struct layer_tree *tree,
                      const struct overlay *overlay, int map, uint32_t id_base,
                      int *ret_usr, struct cay_error *err)
{
    static const struct inherited nothing = {.namespace = -1};
    struct layer_stack stack, usr = {.count = 0};
    struct overlay own = *overlay;
    AUTO_FD top = store_open_layer(store, tree->live);

    if (top < 0)
        return TAKE_FD(top);
    if (layer_stack_open(store, tree->parent, &nothing, "upper", &stack, err) != CAY_OK)
        return -EIO;
    int fd = overlay->usr < 0 || layer_stack_open(store, tree->parent, &nothing, "usr",
                                                  &usr, err) == CAY_OK
                 ? 0
                 : -EIO;
    own.top = top;
    own.layers = stack.fds;
    own.usr_layers = usr.fds;
    own.layer_count = stack.count;
    if (!fd)
        fd = overlay_mount(&own, map, id_base, ret_usr);
    layer_stack_close(&stack);
    layer_stack_close(&usr);
    return fd;
}

int layer_mount(const struct overlay *overlay, int map, uint32_t id_base, int *ret_usr)
{
    struct cay_error err = {0};
    struct layer_tree tree;

    if (faccessat(overlay->disk, tree_file, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? overlay_mount(overlay, map, id_base, ret_usr) : -errno;
    AUTO_FD mount = overlay_open_disk(overlay->disk, id_base);
    if (mount < 0)
        return TAKE_FD(mount);
    AUTO_FD store = path_open(mount, ".", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (store < 0)
        return TAKE_FD(store);
    int fd = load_settled(store, &tree, &err) == CAY_OK ? 0 : -EIO;
    if (!fd)
        fd = tree.parent ? mount_live(store, &tree, overlay, map, id_base, ret_usr, &err)
                         : overlay_mount(overlay, map, id_base, ret_usr);
    return fd < 0 && err.sys_errno ? -err.sys_errno : fd;
}
