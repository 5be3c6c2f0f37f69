/* SPDX-License-Identifier: Apache-2.0 */

/* Unpacks an archive of a root file system, or of a layer of one.
 *
 * Nothing else changes the draft meanwhile, so results of lookups stay valid; but the
 * archive may contain links and then name paths through them.  So every path is looked up
 * from the root's descriptor without following links, and the last component is only
 * created, replaced or removed in its directory.  Links are kept as they are, and
 * followed only inside the sandbox. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/tar.h"
#include "files/walk.h"
#include "native/template/template.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"

static const char op[] = TEMPLATE_OP;

/* A layer hides NAME by an entry .wh.NAME, and the whole contents of a directory by
 * OPAQUE. */
#define WHITEOUT ".wh."
#define OPAQUE   ".wh..wh..opq"

struct unpacking {
    struct template_draft *draft;
    int root;
    enum template_unpack_mode mode;
    int dir;                 /* of the current entry... */
    char dir_path[PATH_MAX]; /* ...and its path */
    const char *name;        /* the entry's name in it */
    int file;
    struct tar_item item; /* the entry of `file` */
};

static int fail_at(int sys_errno, const char *path, struct cay_error *err)
{
    if (sys_errno == ELOOP || sys_errno == ENOTDIR)
        return cay_fail(err, CAY_E_OUTSIDE, sys_errno, op, path,
                        "the path of an archive entry leads through a link or a file",
                        "do not trust this archive; create it again from a directory");
    if (sys_errno == E2BIG)
        return cay_fail(err, CAY_E_LIMIT, 0, op, path,
                        "the archive needs too many directories", "the limit is %d",
                        TEMPLATE_ENTRIES_MAX);
    return cay_fail_errno(err, sys_errno, op, path);
}

/* --- Directories --- */

static void forget_directory(struct unpacking *unpacking)
{
    if (unpacking->dir >= 0)
        (void)close(TAKE_FD(unpacking->dir));
}

/* Creates the missing directories of a path; a descriptor or a negative errno. */
static int make_directories(struct unpacking *unpacking, const char *path)
{
    AUTO_FD dir = fcntl(unpacking->root, F_DUPFD_CLOEXEC, 3);
    char name[NAME_MAX + 1];

    while (dir >= 0 && *path) {
        size_t len = strcspn(path, "/");
        memcpy(name, path, len);
        name[len] = '\0';
        path += len + (path[len] == '/');
        /* Independent of the caller's umask. */
        bool is_made = mkdirat(dir, name, 0755) == 0;
        if (is_made ? fchmodat(dir, name, 0755, 0) != 0 : errno != EEXIST)
            return -errno;
        if (is_made && ++unpacking->draft->made > TEMPLATE_ENTRIES_MAX)
            return -E2BIG;
        int next = path_open(dir, name, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        if (next < 0)
            return next;
        (void)close(dir);
        dir = next;
    }
    return dir < 0 ? -errno : TAKE_FD(dir);
}

/* Makes unpacking->dir the directory of `path` and unpacking->name its last component;
 * *ret_there is false if the directory is missing and `make` is false. */
static int go_to(struct unpacking *unpacking, const char *path, bool make,
                 bool *ret_there, struct cay_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;

    *ret_there = true;
    unpacking->name = slash ? slash + 1 : path;
    if (unpacking->dir >= 0 && strlen(unpacking->dir_path) == len &&
        memcmp(unpacking->dir_path, path, len) == 0)
        return CAY_OK;
    forget_directory(unpacking);
    memcpy(unpacking->dir_path, path, len);
    unpacking->dir_path[len] = '\0';
    int dir = path_open(unpacking->root, unpacking->dir_path, O_PATH | O_DIRECTORY, 0,
                        PATH_PLAIN);
    if (dir == -ENOENT && make)
        dir = make_directories(unpacking, unpacking->dir_path);
    *ret_there = dir >= 0;
    /* Below a link or a file there is nothing: the layer replaces it by a directory. */
    if (!make && (dir == -ENOENT || dir == -ENOTDIR || dir == -ELOOP))
        return CAY_OK;
    if (dir < 0)
        return fail_at(-dir, path, err);
    unpacking->dir = dir;
    return CAY_OK;
}

/* Removes an existing entry of that name. */
static int clear(const struct unpacking *unpacking, const char *path,
                 struct cay_error *err)
{
    if (unlinkat(unpacking->dir, unpacking->name, 0) == 0 || errno == ENOENT)
        return CAY_OK;
    return tree_remove(&fs_direct, op, unpacking->dir, unpacking->name, path, err);
}

static int set_owner(const struct unpacking *unpacking, const struct tar_item *item)
{
    return fchownat(unpacking->dir, unpacking->name, item->uid, item->gid,
                    AT_SYMLINK_NOFOLLOW) == 0
               ? 0
               : -errno;
}

/* --- Whiteouts --- */

static bool is_whiteout(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strncmp(slash ? slash + 1 : path, WHITEOUT, strlen(WHITEOUT)) == 0;
}

static int hide_all(struct unpacking *unpacking, const char *path, struct cay_error *err)
{
    DIR *directory = path_list(unpacking->dir);
    int code = CAY_OK;

    if (!directory)
        return fail_at(errno, path, err);
    for (struct dirent *entry; !code && (entry = readdir(directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            code = tree_remove(&fs_direct, op, unpacking->dir, entry->d_name, path, err);
    closedir(directory);
    return code;
}

/* Layers are processed twice, whiteouts first: they hide entries of lower layers, never
 * of their own, wherever they are in the archive. */
static int take_whiteout(struct unpacking *unpacking, const struct tar_item *item,
                         struct cay_error *err)
{
    bool there;

    if (item->kind != TAR_FILE || !is_whiteout(item->path))
        return CAY_OK;
    int code = go_to(unpacking, item->path, false, &there, err);
    if (code || !there)
        return code;
    const char *name = unpacking->name;
    if (strcmp(name, OPAQUE) == 0)
        return hide_all(unpacking, item->path, err);
    name += strlen(WHITEOUT);
    if (strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0)
        return CAY_OK; /* internal to some storage drivers */
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, item->path,
                        "a whiteout in a layer of the image has an invalid name",
                        "do not trust this image; create it again");
    unpacking->name = name;
    return clear(unpacking, item->path, err);
}

/* --- Entries --- */

static int add_directory(struct unpacking *unpacking, const struct tar_item *item,
                         struct cay_error *err)
{
    struct stat st;

    if (!*item->path) /* the root always belongs to root, with mode 0755 */
        return CAY_OK;
    if (fstatat(unpacking->dir, unpacking->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISDIR(st.st_mode)) {
        int code = clear(unpacking, item->path, err);
        if (code)
            return code;
    }
    if (mkdirat(unpacking->dir, unpacking->name, 0700) != 0 && errno != EEXIST)
        return fail_at(errno, item->path, err);
    int error = set_owner(unpacking, item);
    if (!error && fchmodat(unpacking->dir, unpacking->name, item->mode, 0) != 0)
        error = -errno;
    return error ? fail_at(-error, item->path, err) : CAY_OK;
}

static int begin_file(struct unpacking *unpacking, const struct tar_item *item,
                      struct cay_error *err)
{
    int code = clear(unpacking, item->path, err);

    if (code)
        return code;
    unpacking->file = openat(unpacking->dir, unpacking->name,
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (unpacking->file < 0)
        return fail_at(errno, item->path, err);
    unpacking->item = *item;
    return CAY_OK;
}

static int add_data(struct unpacking *unpacking, const struct tar_item *item,
                    struct cay_error *err)
{
    int error = lseek(unpacking->file, (off_t)item->size, SEEK_SET) < 0
                    ? -errno
                    : io_write(unpacking->file, item->data, item->len);

    unpacking->draft->bytes += item->len;
    return error ? fail_at(-error, unpacking->item.path, err) : CAY_OK;
}

static int end_file(struct unpacking *unpacking, struct cay_error *err)
{
    const struct tar_item *item = &unpacking->item;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, item->mtime};
    AUTO_FD file = TAKE_FD(unpacking->file);

    /* The mode last: a change of owner clears set-ID bits. */
    if (ftruncate(file, (off_t)item->size) != 0 ||
        fchown(file, item->uid, item->gid) != 0 || fchmod(file, item->mode) != 0 ||
        futimens(file, times) != 0)
        return fail_at(errno, item->path, err);
    return CAY_OK;
}

static int add_link(struct unpacking *unpacking, const struct tar_item *item,
                    struct cay_error *err)
{
    int code = clear(unpacking, item->path, err);

    if (code)
        return code;
    int error = symlinkat(item->link, unpacking->dir, unpacking->name) == 0 ? 0 : -errno;
    if (!error)
        error = set_owner(unpacking, item);
    return error ? fail_at(-error, item->path, err) : CAY_OK;
}

static int add_hard_link(struct unpacking *unpacking, const struct tar_item *item,
                         struct cay_error *err)
{
    char parent[PATH_MAX];
    struct stat original, there;

    cay_copy_text(parent, sizeof parent, item->link);
    char *slash = strrchr(parent, '/');
    const char *name = slash ? item->link + (slash - parent) + 1 : item->link;
    *(slash ? slash : parent) = '\0';
    AUTO_FD dir = path_open(unpacking->root, parent, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (dir < 0)
        return fail_at(-dir, item->path, err);
    if (fstatat(dir, name, &original, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_at(errno, item->path, err);
    if (!S_ISREG(original.st_mode) && !S_ISLNK(original.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, item->path,
                        "the archive has a hard link to something that is not a file",
                        "create the archive again without that link");
    if (fstatat(unpacking->dir, unpacking->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        there.st_dev == original.st_dev && there.st_ino == original.st_ino)
        return CAY_OK;
    int code = clear(unpacking, item->path, err);
    if (code)
        return code;
    if (linkat(dir, name, unpacking->dir, unpacking->name, 0) != 0)
        return fail_at(errno, item->path, err);
    return CAY_OK;
}

static int add_entry(struct unpacking *unpacking, const struct tar_item *item,
                     struct cay_error *err)
{
    bool there;

    if (unpacking->mode == TEMPLATE_LAYER && is_whiteout(item->path))
        return CAY_OK;
    int code = go_to(unpacking, item->path, true, &there, err);
    if (code)
        return code;
    switch (item->kind) {
    case TAR_DIRECTORY:
        return add_directory(unpacking, item, err);
    case TAR_FILE:
        return begin_file(unpacking, item, err);
    case TAR_LINK:
        return add_link(unpacking, item, err);
    case TAR_HARD_LINK:
        return add_hard_link(unpacking, item, err);
    case TAR_SPECIAL:
    case TAR_DATA:
    case TAR_FILE_END:
    case TAR_END:
    case TAR_BROKEN:
        break;
    }
    return CAY_OK;
}

static int take_item(void *cookie, const struct tar_item *item, struct cay_error *err)
{
    struct unpacking *unpacking = cookie;

    int code = template_report(unpacking->draft, "unpacking", err);
    if (code || item->kind == TAR_END)
        return code;
    if (unpacking->mode == TEMPLATE_WHITEOUTS)
        return take_whiteout(unpacking, item, err);
    if (item->kind == TAR_SPECIAL) {
        unpacking->draft->skipped++;
        return CAY_OK;
    }
    if (item->kind != TAR_DATA && item->kind != TAR_FILE_END)
        return add_entry(unpacking, item, err);
    if (unpacking->file < 0)
        return CAY_OK;
    return item->kind == TAR_DATA ? add_data(unpacking, item, err)
                                  : end_file(unpacking, err);
}

int template_unpack(struct template_draft *draft, int root, int fd,
                    enum template_unpack_mode mode, struct cay_error *err)
{
    AUTO_FREE struct unpacking *unpacking = calloc(1, sizeof *unpacking);
    AUTO_FREE struct tar_filter *filter = calloc(1, sizeof *filter);

    if (!unpacking || !filter)
        return cay_fail_memory(err, op);
    *unpacking = (struct unpacking){
        .draft = draft, .root = root, .mode = mode, .dir = -1, .file = -1};
    filter->is_root = true;
    filter->max_entries = TEMPLATE_ENTRIES_MAX - draft->entries;
    filter->max_bytes = TEMPLATE_BYTES_MAX - draft->bytes;
    filter->max_depth = TEMPLATE_DEPTH_MAX;
    const struct tar_input input = {.op = op,
                                    .fd = fd,
                                    .any_compression = true,
                                    .names_only = mode == TEMPLATE_WHITEOUTS,
                                    .take = take_item,
                                    .cookie = unpacking};
    int code = tar_receive(&input, filter, err);
    if (mode != TEMPLATE_WHITEOUTS)
        draft->entries += filter->entries;
    forget_directory(unpacking);
    if (unpacking->file >= 0)
        (void)close(unpacking->file);
    return code;
}
