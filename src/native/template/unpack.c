/* SPDX-License-Identifier: Apache-2.0 */

/* Unpacks an archive of a root file system, or of a layer of one, with files/unpack.h.
 *
 * Nothing else changes the draft meanwhile, so results of lookups stay valid; but the
 * archive may contain links and then name paths through them.  So every path is looked up
 * from the root's descriptor without following links.  Links are kept as they are, and
 * followed only inside the sandbox. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/unpack.h"
#include "files/walk.h"
#include "native/template/template.h"
#include "sys/path.h"

static const char op[] = TEMPLATE_OP;

/* A layer hides NAME by an entry .wh.NAME, and the whole contents of a directory by
 * OPAQUE. */
#define WHITEOUT ".wh."
#define OPAQUE   ".wh..wh..opq"

struct unpacking {
    struct template_draft *draft;
    enum template_unpack_mode mode;
    bool is_left_out; /* the current entry is a whiteout */
    struct unpack unpack;
};

static bool is_whiteout(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strncmp(slash ? slash + 1 : path, WHITEOUT, strlen(WHITEOUT)) == 0;
}

static int hide_all(int dir, const char *path, struct cay_error *err)
{
    AUTO_DIR directory = path_list(dir);
    int code = CAY_OK;

    if (!directory)
        return cay_fail_errno(err, errno, op, path);
    for (struct dirent *entry; !code && (entry = path_next(directory));)
        code = tree_remove(&fs_direct, op, dir, entry->d_name, path, err);
    return code;
}

/* Splits the path of a whiteout into its directory and what it hides there: a name, or
 * OPAQUE.  0 for another entry, 1, or a code. */
static int split_whiteout(const struct tar_item *item, char parent[PATH_MAX],
                          const char **ret_name, struct cay_error *err)
{
    if (item->kind != TAR_FILE || !is_whiteout(item->path))
        return 0;
    cay_copy_text(parent, PATH_MAX, item->path);
    char *slash = strrchr(parent, '/');
    const char *name = slash ? item->path + (slash - parent) + 1 : item->path;
    *(slash ? slash : parent) = '\0';
    if (strcmp(name, OPAQUE) != 0) {
        name += strlen(WHITEOUT);
        if (strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0)
            return 0; /* internal to some storage drivers */
        if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return cay_fail(err, CAY_E_INVALID, 0, op, item->path,
                            "a whiteout in a layer of the image has an invalid name",
                            "do not trust this image; create it again");
    }
    *ret_name = name;
    return 1;
}

/* Layers are processed twice, whiteouts first: they hide entries of lower layers, never
 * of their own, wherever they are in the archive. */
static int take_whiteout(int root, const struct tar_item *item, struct cay_error *err)
{
    char parent[PATH_MAX];
    const char *name = NULL;
    int found = split_whiteout(item, parent, &name, err);

    if (found != 1)
        return found;
    AUTO_FD dir = path_open(root, parent, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    /* Below a link or a file there is nothing: the layer replaces it by a directory. */
    if (dir == -ENOENT || dir == -ENOTDIR || dir == -ELOOP)
        return CAY_OK;
    if (dir < 0)
        return cay_fail_errno(err, -dir, op, item->path);
    if (strcmp(name, OPAQUE) == 0)
        return hide_all(dir, item->path, err);
    return unlinkat(dir, name, 0) == 0 || errno == ENOENT
               ? CAY_OK
               : tree_remove(&fs_direct, op, dir, name, item->path, err);
}

/* --- Marks --- */

static int set_opaque(int dir)
{
    return fsetxattr(dir, "trusted.overlay.opaque", "y", 1, 0) == 0 ? 0 : -errno;
}

/* The layer's own entry of a name is above what it hides. */
static int add_mark(int dir, const char *name)
{
    struct stat st;

    if (strcmp(name, OPAQUE) == 0)
        return set_opaque(dir);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT && mknodat(dir, name, S_IFCHR, 0) == 0 ? 0 : -errno;
    if (!S_ISDIR(st.st_mode))
        return 0;
    AUTO_FD own = path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return own < 0 ? TAKE_FD(own) : set_opaque(own);
}

/* After the files, since they change the times of their directories. */
static int take_directory(int root, const struct tar_item *item, struct cay_error *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, item->mtime};
    AUTO_FD dir = path_open(root, item->path, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (dir == -ENOENT || dir == -ENOTDIR || dir == -ELOOP)
        return CAY_OK; /* a later entry has its name */
    bool is_top = !*item->path;
    if (dir < 0 || (is_top && (fchown(dir, item->uid, item->gid) != 0 ||
                               fchmod(dir, item->mode) != 0)))
        return cay_fail_errno(err, dir < 0 ? -dir : errno, op, item->path);
    return futimens(dir, times) == 0 ? CAY_OK
                                     : cay_fail_errno(err, errno, op, item->path);
}

static int take_mark(int root, const struct tar_item *item, struct cay_error *err)
{
    char parent[PATH_MAX];
    const char *name = NULL;
    struct stat st;

    if (item->kind == TAR_DIRECTORY)
        return take_directory(root, item, err);
    int found = split_whiteout(item, parent, &name, err);
    if (found != 1)
        return found;
    AUTO_FD dir = path_open(root, parent, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (dir == -ENOENT || dir == -ENOTDIR || dir == -ELOOP)
        return cay_fail(err, CAY_E_INVALID, -dir, op, item->path,
                        "a layer of the snapshot hides a file in a directory that it "
                        "does not have",
                        "export the snapshot again");
    int error = dir < 0 ? dir : fstat(dir, &st) != 0 ? -errno : add_mark(dir, name);
    if (!error) {
        const struct timespec times[2] = {st.st_atim, st.st_mtim};
        error = futimens(dir, times) == 0 ? 0 : -errno;
    }
    return error ? cay_fail_errno(err, -error, op, item->path) : CAY_OK;
}

static int take_item(void *cookie, const struct tar_item *item, struct cay_error *err)
{
    struct unpacking *unpacking = cookie;

    int code = template_report(unpacking->draft, "unpacking", err);
    if (code)
        return code;
    if (unpacking->mode == TEMPLATE_WHITEOUTS)
        return take_whiteout(unpacking->unpack.top, item, err);
    if (unpacking->mode == TEMPLATE_MARKS)
        return take_mark(unpacking->unpack.top, item, err);
    if (item->path) /* of an entry; its data follows */
        unpacking->is_left_out =
            unpacking->mode == TEMPLATE_LAYER && is_whiteout(item->path);
    if (unpacking->is_left_out)
        return CAY_OK;
    if (item->kind == TAR_DATA)
        unpacking->draft->bytes += item->len;
    return unpack_item(&unpacking->unpack, item, err);
}

int template_unpack(struct template_draft *draft, int root, int fd,
                    enum template_unpack_mode mode, struct cay_error *err)
{
    AUTO_FREE struct unpacking *unpacking = calloc(1, sizeof *unpacking);
    AUTO_FREE struct tar_filter *filter = calloc(1, sizeof *filter);
    bool names_only = mode == TEMPLATE_WHITEOUTS || mode == TEMPLATE_MARKS;

    if (!unpacking || !filter)
        return cay_fail_memory(err, op);
    unpacking->draft = draft;
    unpacking->mode = mode;
    unpack_init_root(&unpacking->unpack, op, root, TEMPLATE_ENTRIES_MAX);
    unpacking->unpack.made_without_entry = draft->made;
    filter->is_root = true;
    filter->max_entries = TEMPLATE_ENTRIES_MAX - (names_only ? 0 : draft->entries);
    filter->max_bytes = TEMPLATE_BYTES_MAX - draft->bytes;
    filter->max_depth = TEMPLATE_DEPTH_MAX;
    const struct tar_input input = {.op = op,
                                    .fd = fd,
                                    .any_compression = true,
                                    .names_only = names_only,
                                    .take = take_item,
                                    .cookie = unpacking};
    int code = tar_receive(&input, filter, err);
    unpack_done(&unpacking->unpack);
    draft->made = unpacking->unpack.made_without_entry;
    if (!names_only)
        draft->entries += filter->entries;
    return code;
}

int template_make_path(int root, const char *path, unsigned uid, unsigned gid)
{
    char way[PATH_MAX];
    AUTO_FD dir = fcntl(root, F_DUPFD_CLOEXEC, 3);

    if (dir < 0 || strlen(path) >= sizeof way)
        return dir < 0 ? -errno : -ENAMETOOLONG;
    cay_copy_text(way, sizeof way, path);
    for (char *at = way + strspn(way, "/"); *at; at += strspn(at, "/")) {
        const char *name = at;
        at += strcspn(at, "/");
        char end = *at;
        *at = '\0';
        bool is_made = mkdirat(dir, name, 0755) == 0 &&
                       fchmodat(dir, name, 0755, 0) == 0 &&
                       fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) == 0;
        int next = is_made || errno == EEXIST
                       ? path_open(root, way, O_PATH | O_DIRECTORY, 0,
                                   RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
                       : -errno;
        *at = end;
        if (next < 0)
            return next;
        (void)close(dir);
        dir = next;
    }
    return TAKE_FD(dir);
}
