/* SPDX-License-Identifier: Apache-2.0 */

/* The flat layer shows what its layers show together, as a layer: a directory is opaque
 * if one of its parts is, or if anything but a directory is under it.  A whiteout stays
 * if the directory exists below.  Otherwise it must go: overlayfs lists a directory that
 * only one layer has as it is, with the names of its whiteouts.
 *
 * The files may be hostile: names only, no link is followed, depth and time have limits.
 */
#include "native/layer/squash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "native/make/layer.h"
#include "native/record/state.h"
#include "sys/copy.h"
#include "sys/path.h"

enum {
    PARTS_MAX = LAYER_DEPTH_MAX + OVERLAY_BELOW_MAX + 1,
    TREE_DEPTH_MAX = 200,
    TIME_MS = 5000,
    XATTRS_MAX = 64 << 10,
    IDS = 65536,
    NOBODY = 65534
};

static const char op[] = "sandbox.checkpoint", opaque[] = "trusted.overlay.opaque",
                  draft[] = "flat.new";

/* The parts of one directory, the highest first. */
struct parts {
    struct merge_source list[PARTS_MAX];
    size_t count;
    bool is_opaque; /* nothing below the last one is visible */
};

static void close_parts(struct parts *parts)
{
    while (parts->count > 0)
        auto_close(&parts->list[--parts->count].fd);
}

/* --- Attributes --- */

/* Capabilities and access lists name ids, which are others in a copy. */
static bool is_kept(const struct merge_source *source, const char *name)
{
    return source->id_base
               ? strncmp(name, "user.", strlen("user.")) == 0
               : strncmp(name, "trusted.overlay.", strlen("trusted.overlay.")) != 0;
}

static int copy_xattrs(const struct merge_source *source, int from, int to)
{
    AUTO_FREE char *names = malloc(XATTRS_MAX);
    AUTO_FREE char *value = malloc(XATTRS_MAX);
    ssize_t len = names && value ? flistxattr(from, names, XATTRS_MAX) : -1;

    if (len < 0)
        return names && value ? -errno : -ENOMEM;
    for (const char *name = names; name < names + len; name += strlen(name) + 1) {
        if (!is_kept(source, name))
            continue;
        ssize_t size = fgetxattr(from, name, value, XATTRS_MAX);
        if (size < 0 || fsetxattr(to, name, value, (size_t)size, 0) != 0)
            return -errno;
    }
    return 0;
}

/* The owner inside of a file. */
static uint32_t owner_of(const struct merge_source *source, uint32_t id)
{
    if (!source->id_base)
        return id;
    return id - source->id_base < IDS ? id - source->id_base : NOBODY;
}

static int copy_owner(const struct merge_source *source, const struct stat *st, int to)
{
    const struct timespec times[2] = {st->st_atim, st->st_mtim};

    return fchown(to, owner_of(source, st->st_uid), owner_of(source, st->st_gid)) == 0 &&
                   fchmod(to, st->st_mode & 07777) == 0 && futimens(to, times) == 0
               ? 0
               : -errno;
}

/* Last, since creating entries changes the times. */
static int copy_attributes(const struct parts *parts, int to)
{
    struct stat st;

    if (fstat(parts->list[0].fd, &st) != 0)
        return -errno;
    int error = copy_xattrs(&parts->list[0], parts->list[0].fd, to);
    if (!error && parts->is_opaque && fsetxattr(to, opaque, "y", 1, 0) != 0)
        error = -errno;
    return error ? error : copy_owner(&parts->list[0], &st, to);
}

static int check_opaque(int dir)
{
    char value[2];
    ssize_t len = fgetxattr(dir, opaque, value, sizeof value);

    if (len < 0)
        return errno == ENODATA || errno == EOPNOTSUPP ? 0 : -errno;
    return len == 1 && value[0] == 'y';
}

/* --- Directories --- */

static int open_dir(int dir, const char *name)
{
    return path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
}

/* The directories `name` in the parts from `first` on. */
static int open_parts(const struct parts *above, size_t first, const char *name,
                      struct parts *ret_parts)
{
    int is_opaque = 0;

    ret_parts->count = 0;
    for (size_t i = first; i < above->count && !is_opaque; i++) {
        int fd = open_dir(above->list[i].fd, name);
        if (fd == -ENOENT)
            continue;
        if (fd == -ENOTDIR ||
            fd == -ELOOP) { /* a file, link or whiteout hides the rest */
            is_opaque = 1;
            break;
        }
        if (fd < 0)
            return fd;
        ret_parts->list[ret_parts->count] = above->list[i];
        ret_parts->list[ret_parts->count++].fd = fd;
        is_opaque = check_opaque(fd);
        if (is_opaque < 0)
            return is_opaque;
    }
    ret_parts->is_opaque = is_opaque;
    return 0;
}

/* One directory: its parts in the layers that become one, and those below. */
struct place {
    struct parts own, below;
};

static int merge_place(struct merge *merge, const struct place *place, int to, int depth);

static int merge_directory(struct merge *merge, const struct place *above, size_t first,
                           const char *name, int to, int depth)
{
    struct place *place = calloc(1, sizeof *place);

    if (!place)
        return -ENOMEM;
    int error = open_parts(&above->own, first, name, &place->own);
    if (!error && !place->own.is_opaque)
        error = open_parts(&above->below, 0, name, &place->below);
    if (!error)
        error = store_mkdir(to, name, 0700, 0);
    AUTO_FD own = error ? -1 : open_dir(to, name);
    if (!error)
        error = own < 0 ? own : merge_place(merge, place, own, depth + 1);
    close_parts(&place->own);
    close_parts(&place->below);
    free(place);
    return error;
}

/* --- Files --- */

/* A copied file with several links, and where its copy is. */
struct original {
    dev_t dev;
    ino_t ino;
    char path[];
};

static int by_file(const void *left, const void *right)
{
    const struct original *a = left, *b = right;

    return a->ino != b->ino ? (a->ino < b->ino ? -1 : 1)
                            : (a->dev > b->dev) - (a->dev < b->dev);
}

static int remember(struct merge *merge, const struct original *file, int to,
                    const char *name)
{
    char path[PATH_MAX];
    int error = path_name(to, path);
    size_t len = strlen(path) + strlen(name) + 2;
    AUTO_FREE struct original *known = error < 0 ? NULL : malloc(sizeof *known + len);

    if (!known)
        return error < 0 ? error : -ENOMEM;
    *known = *file;
    snprintf(known->path, len, "%s/%s", path, name);
    if (!tsearch(known, &merge->originals, by_file))
        return -ENOMEM;
    (void)TAKE_PTR(known);
    return 0;
}

static int copy_content(const struct merge_source *source, const char *name,
                        const struct stat *st, int to_dir)
{
    AUTO_FD from =
        path_open(source->fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, PATH_PLAIN);
    AUTO_FD to = from < 0
                     ? -1
                     : openat(to_dir, name,
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    uint64_t copied;

    if (from < 0 || to < 0)
        return from < 0 ? TAKE_FD(from) : -errno;
    int error = copy_bytes(from, to, (uint64_t)st->st_size, &copied);
    if (!error)
        error = copy_xattrs(source, from, to);
    return error ? error : copy_owner(source, st, to);
}

static int copy_regular(struct merge *merge, const struct merge_source *source,
                        const char *name, const struct stat *st, int to)
{
    const struct original file = {st->st_dev, st->st_ino};
    struct original **known =
        st->st_nlink > 1 ? tfind(&file, &merge->originals, by_file) : NULL;

    if (known)
        return linkat(AT_FDCWD, (*known)->path, to, name, 0) == 0 ? 0 : -errno;
    int error = copy_content(source, name, st, to);
    return error || st->st_nlink == 1 ? error : remember(merge, &file, to, name);
}

static int copy_link(const struct merge_source *source, const char *name, int to)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(source->fd, name, target, sizeof target);

    if (len <= 0 || (size_t)len >= sizeof target)
        return len < 0 ? -errno : -ENAMETOOLONG;
    target[len] = '\0';
    return symlinkat(target, to, name) == 0 ? 0 : -errno;
}

/* Sockets are of no use without their processes. */
static int copy_file(struct merge *merge, const struct merge_source *source,
                     const char *name, const struct stat *st, int to)
{
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    bool is_whiteout = S_ISCHR(st->st_mode) && st->st_rdev == 0;
    int error = 0;

    if (S_ISREG(st->st_mode))
        return copy_regular(merge, source, name, st, to);
    if (S_ISLNK(st->st_mode))
        error = copy_link(source, name, to);
    else if (is_whiteout || S_ISFIFO(st->st_mode))
        error = mknodat(to, name, st->st_mode, 0) == 0 ? 0 : -errno;
    else
        return 0;
    if (error || is_whiteout)
        return error;
    return fchownat(to, name, owner_of(source, st->st_uid), owner_of(source, st->st_gid),
                    AT_SYMLINK_NOFOLLOW) == 0 &&
                   utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) == 0
               ? 0
               : -errno;
}

/* A link cannot lead to another file system, and their number is limited. */
static int add_file(struct merge *merge, const struct merge_source *source,
                    const char *name, const struct stat *st, int to)
{
    if (++merge->entries > merge->max_entries)
        return -E2BIG;
    merge->bytes += S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
    if (merge->bytes > merge->max_bytes)
        return -EFBIG;
    if (source->is_shared) {
        if (linkat(source->fd, name, to, name, 0) == 0)
            return 0;
        if (!merge->copies || (errno != EXDEV && errno != EMLINK))
            return -errno;
    }
    return copy_file(merge, source, name, st, to);
}

static int add_entry(struct merge *merge, const struct place *place, size_t i,
                     const char *name, int to, int depth)
{
    const struct merge_source *source = &place->own.list[i];
    int from = source->fd;
    struct stat st;

    if (fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0; /* of a higher part */
    if (errno != ENOENT || fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return merge_directory(merge, place, i, name, to, depth);
    return add_file(merge, source, name, &st, to);
}

static int drop_whiteouts(int dir)
{
    AUTO_DIR list = path_list(dir);
    struct stat st;

    for (struct dirent *entry; (entry = path_next(list));)
        if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            (S_ISCHR(st.st_mode) && st.st_rdev == 0 &&
             unlinkat(dir, entry->d_name, 0) != 0))
            return -errno;
    return list ? 0 : -errno;
}

static int merge_place(struct merge *merge, const struct place *place, int to, int depth)
{
    int error = depth > TREE_DEPTH_MAX                  ? -ELOOP
                : clock_ms() > merge->end_ms            ? -ETIME
                : ++merge->entries > merge->max_entries ? -E2BIG
                                                        : 0;

    for (size_t i = 0; !error && i < place->own.count; i++) {
        AUTO_DIR list = path_list(place->own.list[i].fd);
        if (!list)
            return -errno;
        for (struct dirent *entry; !error && (entry = path_next(list));)
            error = add_entry(merge, place, i, entry->d_name, to, depth);
    }
    if (!error && !place->below.count)
        error = drop_whiteouts(to);
    return error ? error : copy_attributes(&place->own, to);
}

static int reopen_all(const struct merge_source *sources, size_t count,
                      struct parts *parts)
{
    for (size_t i = 0; i < count; i++) {
        int fd = i < PARTS_MAX ? open_dir(sources[i].fd, ".") : -E2BIG;
        if (fd < 0)
            return fd;
        parts->list[i] = sources[i];
        parts->list[i].fd = fd;
        parts->count = i + 1;
    }
    return 0;
}

int merge_trees(struct merge *merge, int to)
{
    struct place *place = calloc(1, sizeof *place);

    if (!place)
        return -ENOMEM;
    int error = reopen_all(merge->own, merge->own_count, &place->own);
    if (!error)
        error = reopen_all(merge->below, merge->below_count, &place->below);
    if (!error)
        error = merge_place(merge, place, to, 0);
    close_parts(&place->own);
    close_parts(&place->below);
    free(place);
    tdestroy(merge->originals, free);
    merge->originals = NULL;
    return error;
}

/* --- Layers --- */

struct run {
    int store;
    uint32_t ids[LAYER_DEPTH_MAX]; /* the highest first */
    size_t count;
    uint32_t below; /* the next layer, or 0 */
    const struct inherited *inherited;
    const struct template *template;
    const struct inherited *copied; /* instead of the layers of the store, or NULL */
};

static int add_part(struct parts *parts, int dir, const char *name)
{
    int fd = dir < 0 ? dir : open_dir(dir, name);

    if (fd < 0)
        return fd;
    parts->list[parts->count++] = (struct merge_source){.fd = fd, .is_shared = true};
    return 0;
}

static int open_copied(const struct run *run, const char *part, struct parts *parts)
{
    struct layer_stack stack;
    int error = inherited_open(run->copied, part, stack.fds, &stack.count);

    for (size_t i = 0; !error && i < stack.count; i++)
        error = add_part(parts, stack.fds[i], ".");
    layer_stack_close(&stack);
    return error;
}

static int open_own(const struct run *run, const char *part, struct parts *parts)
{
    int error = 0;

    if (run->copied)
        return open_copied(run, part, parts);
    for (size_t i = 0; !error && i < run->count; i++) {
        AUTO_FD layer = store_open_layer(run->store, run->ids[i]);
        error = add_part(parts, layer, part);
    }
    return error;
}

/* The layers below, and the template or what is below /usr. */
static int open_below(const struct run *run, bool is_usr, struct parts *parts)
{
    const struct template *template = run->template;
    struct layer_stack stack;
    int error = 0;

    if (layer_stack_open(run->store, run->below, run->inherited, is_usr ? "usr" : "upper",
                         &stack, NULL) != CAY_OK)
        return -EIO;
    for (size_t i = 0; !error && i < stack.count; i++)
        error = add_part(parts, stack.fds[i], ".");
    layer_stack_close(&stack);
    if (!error && is_usr && template->usr_above >= 0)
        error = add_part(parts, template->usr_above, ".");
    if (!error && is_usr)
        error = add_part(parts, template->usr, ".");
    if (!error && is_usr) {
        AUTO_FD host = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
        error = host < 0 ? -errno : add_part(parts, host, ".");
    }
    if (!error && !is_usr && template->root >= 0)
        error = add_part(parts, template->root, ".");
    for (size_t i = 0; !error && !is_usr && i < template->below_count; i++)
        error = add_part(parts, template->below[i], ".");
    return error;
}

static int merge_part(const struct run *run, bool is_usr, int to)
{
    const char *part = is_usr ? "usr" : "upper";
    struct merge merge = {.end_ms = run->copied ? UINT64_MAX : clock_ms() + TIME_MS,
                          .copies = run->copied,
                          .max_entries = UINT64_MAX,
                          .max_bytes = UINT64_MAX};
    struct place *place = calloc(1, sizeof *place);

    if (!place)
        return -ENOMEM;
    int error = open_own(run, part, &place->own);
    if (!error)
        error = open_below(run, is_usr, &place->below);
    if (!error)
        error = store_mkdir(to, part, 0700, 0);
    AUTO_FD own = error ? -1 : open_dir(to, part);
    if (!error)
        error = own < 0 ? own : merge_place(&merge, place, own, 0);
    close_parts(&place->own);
    close_parts(&place->below);
    free(place);
    tdestroy(merge.originals, free);
    return error;
}

static int build(const struct run *run, int dir)
{
    int error = store_mkdir(dir, draft, 0755, 0);
    AUTO_FD flat = error ? -1 : open_dir(dir, draft);

    if (!error)
        error = flat < 0 ? flat : merge_part(run, false, flat);
    if (!error && run->template->usr >= 0)
        error = merge_part(run, true, flat);
    if (!error && layer_save_flat(flat, run->below, NULL) != CAY_OK)
        error = -EIO;
    if (!error && renameat(dir, draft, dir, "flat") != 0)
        error = -errno;
    return error;
}

/* The layers down to the next flat one, or to the last. */
static int find_run(struct run *run, uint32_t id)
{
    uint32_t shown, below;

    for (; id; id = below) {
        if (layer_step(run->store, id, &shown, &below, NULL) != CAY_OK)
            return -EIO;
        if (shown & LAYER_FLAT)
            break;
        if (run->count == LAYER_DEPTH_MAX)
            return -E2BIG;
        run->ids[run->count++] = id;
    }
    run->below = id;
    return 0;
}

int squash_copy(const struct inherited *inherited, const struct template *template,
                int to)
{
    struct inherited nothing;

    inherited_init(&nothing);
    const struct run run = {
        .store = -1, .inherited = &nothing, .template = template, .copied = inherited};
    int error = merge_part(&run, false, to);
    return error || template->usr < 0 ? error : merge_part(&run, true, to);
}

int squash_layers(int store, uint32_t id, const struct inherited *inherited,
                  const struct template *template)
{
    struct run run = {.store = store, .inherited = inherited, .template = template};
    int error = find_run(&run, id);

    if (error || run.count < SQUASH_DEPTH)
        return error;
    AUTO_FD place = store_open_layer(store, id);
    AUTO_FD dir = place < 0 ? place : open_dir(place, ".");
    if (dir < 0)
        return TAKE_FD(dir);
    (void)!state_remove_tree(dir, draft, op, draft, NULL);
    error = build(&run, dir);
    if (error)
        (void)!state_remove_tree(dir, draft, op, draft, NULL);
    return error;
}
