/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/auto.h"
#include "sys/path.h"

/* Something else has that name by now, or nothing. */
static bool has_vanished(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP;
}

/* 'y' of an opaque directory, 'x' of one with whiteouts in attributes, 0 of others. */
static char read_opaque(const struct diff_layer *layer, int fd)
{
    char value = 0;

    if (layer->marks == CAY_DIFF_MARKS_NONE)
        return 0;
    ssize_t len =
        fgetxattr(fd,
                  layer->marks == CAY_DIFF_MARKS_USER ? "user.overlay.opaque"
                                                      : "trusted.overlay.opaque",
                  &value, 1);
    return len == 1 ? value : 0;
}

int layer_open_dir(const cay_diff *diff, uint16_t layer, const char *path,
                   struct layer_dir *ret_dir)
{
    const struct diff_layer *root = &diff->layers[layer];
    int fd = path_open(root->fd, path, O_RDONLY | O_DIRECTORY | O_NOATIME, 0,
                       PATH_PLAIN | RESOLVE_NO_XDEV);

    if (fd == -EPERM) /* O_NOATIME is for the owner only */
        fd = path_open(root->fd, path, O_RDONLY | O_DIRECTORY, 0,
                       PATH_PLAIN | RESOLVE_NO_XDEV);
    if (fd < 0)
        return has_vanished(-fd) ? -ENOENT : fd;
    *ret_dir = (struct layer_dir){
        .layer = layer, .fd = fd, .has_xattr_whiteouts = read_opaque(root, fd) == 'x'};
    return 0;
}

static bool is_whiteout(const struct diff_layer *layer, const struct layer_dir *dir,
                        const char *name, const struct stat *st)
{
    if (layer->marks == CAY_DIFF_MARKS_NONE)
        return false;
    if (S_ISCHR(st->st_mode))
        return st->st_rdev == 0;
    if (!dir->has_xattr_whiteouts || !S_ISREG(st->st_mode) || st->st_size != 0)
        return false;
    AUTO_FD fd = path_open(dir->fd, name, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
    AUTO_FD file = fd < 0 ? -1 : path_reopen(fd, O_RDONLY);
    return file >= 0 &&
           fgetxattr(file,
                     layer->marks == CAY_DIFF_MARKS_USER ? "user.overlay.whiteout"
                                                         : "trusted.overlay.whiteout",
                     NULL, 0) >= 0;
}

static uint32_t shift_id(const struct diff_layer *layer, uint32_t id)
{
    return id - layer->id_base < 1 << 16 ? id - layer->id_base : id;
}

/* 1 if the layers below matter, 0 if not, or a negative errno. */
static int merge_directory(const cay_diff *diff, const struct layer_dir *dir,
                           const char *name, struct layer_found *found)
{
    const struct diff_layer *layer = &diff->layers[dir->layer];

    found->merged[found->merged_count++] = dir->layer;
    if (layer->marks == CAY_DIFF_MARKS_NONE)
        return 1;
    AUTO_FD fd =
        path_open(dir->fd, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN | RESOLVE_NO_XDEV);
    if (fd < 0)
        return has_vanished(-fd) ? 1 : TAKE_FD(fd);
    return read_opaque(layer, fd) != 'y';
}

int layer_look(const cay_diff *diff, const struct layer_dir *dirs, size_t count,
               const char *name, struct layer_found *found)
{
    found->layer = DIFF_NO_LAYER;
    found->is_final = false;
    found->merged_count = 0;
    for (size_t i = 0; i < count && !found->is_final; i++) {
        const struct diff_layer *layer = &diff->layers[dirs[i].layer];
        struct stat st;
        if (fstatat(dirs[i].fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno == ENOENT || errno == ENAMETOOLONG)
                continue;
            return -errno;
        }
        bool is_directory = S_ISDIR(st.st_mode);
        bool is_hidden = found->layer != DIFF_NO_LAYER && !is_directory;
        found->is_final = !is_directory;
        if (is_hidden || is_whiteout(layer, &dirs[i], name, &st))
            continue;
        if (found->layer == DIFF_NO_LAYER) {
            found->st = st;
            found->st.st_uid = shift_id(layer, st.st_uid);
            found->st.st_gid = shift_id(layer, st.st_gid);
            found->layer = dirs[i].layer;
        }
        if (is_directory) {
            int more = merge_directory(diff, &dirs[i], name, found);
            if (more < 0)
                return more;
            found->is_final = !more;
        }
    }
    return 0;
}

void layer_append(struct layer_found *found, const struct layer_found *below)
{
    if (found->is_final || below->layer == DIFF_NO_LAYER)
        return;
    if (found->layer == DIFF_NO_LAYER) {
        found->layer = below->layer;
        found->st = below->st;
    } else if (!S_ISDIR(below->st.st_mode)) {
        return;
    }
    memcpy(found->merged + found->merged_count, below->merged,
           below->merged_count * sizeof *below->merged);
    found->merged_count += below->merged_count;
}
