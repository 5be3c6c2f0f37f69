/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/content.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"
#include "sys/path.h"

enum {
    PIECE = DIFF_SCRATCH / 2,
    BINARY_HEAD = 8000, /* where git looks for a NUL */
    XATTR_NAMES = 4 << 10,
    XATTR_VALUE = 64 << 10,
};

int content_open(const cay_diff *diff, uint16_t layer, const char *path)
{
    struct stat st;
    AUTO_FD fd =
        path_open(diff->layers[layer].fd, path, O_PATH, 0, PATH_PLAIN | RESOLVE_NO_XDEV);

    if (fd < 0)
        return TAKE_FD(fd);
    if (fstat(fd, &st) != 0)
        return -errno;
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ? path_reopen(fd, O_RDONLY)
                                                      : -ENXIO;
}

int content_open_seen(const cay_diff *diff, uint16_t layer, const char *path,
                      bool is_directory)
{
    if (!diff->layers[layer].is_nodev)
        return content_open(diff, layer, path);
    return path_open(diff->layers[layer].fd, path,
                     O_RDONLY | O_NONBLOCK | (is_directory ? O_DIRECTORY : 0), 0,
                     PATH_PLAIN | RESOLVE_NO_XDEV);
}

/* RESOLVE_NO_SYMLINKS refuses a link as the last component even with O_NOFOLLOW, so the
 * directory is opened first. */
ssize_t content_link(const cay_diff *diff, uint16_t layer, const char *path, char *text)
{
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX];

    if (slash && (size_t)(slash - path) >= sizeof dir)
        return -ENAMETOOLONG;
    memcpy(dir, path, slash ? (size_t)(slash - path) : 0);
    dir[slash ? slash - path : 0] = '\0';
    AUTO_FD fd = path_open(diff->layers[layer].fd, dir, O_PATH | O_DIRECTORY, 0,
                           PATH_PLAIN | RESOLVE_NO_XDEV);
    if (fd < 0)
        return fd;
    ssize_t len = readlinkat(fd, slash ? slash + 1 : path, text, PATH_MAX);
    return len < 0 ? -errno : len;
}

/* --- Comparing --- */

int content_same(const cay_diff *diff, int before, int after, struct cay_error *err)
{
    char *pieces[2] = {diff->scratch, diff->scratch + PIECE};
    struct stat old, new;

    if (fstat(before, &old) != 0 || fstat(after, &new) != 0 || !S_ISREG(old.st_mode) ||
        !S_ISREG(new.st_mode) || old.st_size != new.st_size ||
        (uint64_t)old.st_size > CONTENT_SAME_MAX)
        return 0;
    for (uint64_t at = 0; at < (uint64_t)old.st_size;) {
        uint64_t rest = (uint64_t)old.st_size - at;
        size_t len = rest < PIECE ? (size_t)rest : PIECE;
        ssize_t got = io_pread(before, pieces[0], len, at);
        ssize_t other = io_pread(after, pieces[1], len, at);
        if (got <= 0 || got != other || memcmp(pieces[0], pieces[1], (size_t)got) != 0)
            return 0;
        at += (uint64_t)got;
        if (at % (PIECE * 64) == 0)
            TRY(diff_check_time(diff, err));
    }
    return 1;
}

static bool counts(const char *name)
{
    return strcmp(name, "security.capability") == 0 ||
           (strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0);
}

/* How many of the attributes of `fd` count, and whether `other` has the same; -1 if not.
 */
static int match_xattrs(const cay_diff *diff, int fd, int other)
{
    char *values[2] = {diff->scratch, diff->scratch + PIECE};
    char names[XATTR_NAMES];
    int count = 0;

    ssize_t len = flistxattr(fd, names, sizeof names);
    if (len < 0)
        return errno == ERANGE ? -1 : 0;
    for (const char *name = names; name < names + len; name += strlen(name) + 1) {
        if (!counts(name))
            continue;
        ssize_t size = fgetxattr(fd, name, values[0], XATTR_VALUE);
        if (size < 0 || fgetxattr(other, name, values[1], XATTR_VALUE) != size ||
            memcmp(values[0], values[1], (size_t)size) != 0)
            return -1;
        count++;
    }
    return count;
}

bool content_same_xattrs(const cay_diff *diff, int before, int after)
{
    int count = match_xattrs(diff, before, after);

    return count >= 0 && count == match_xattrs(diff, after, before);
}

/* --- Loading --- */

static int load_file(const cay_diff *diff, int fd, const char *path,
                     struct content *content, struct cay_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size > diff->max_text) {
        content->is_binary = true;
        return CAY_OK;
    }
    /* A file that grows meanwhile is read to the size it had. */
    size_t size = (size_t)st.st_size;
    if (!buf_reserve(&content->bytes, size))
        return cay_fail_memory(err, DIFF_OP);
    ssize_t got = io_pread(fd, content->bytes.data, size, 0);
    if (got < 0)
        return diff_fail((int)-got, path, err);
    content->bytes.len = (size_t)got;
    content->bytes.data[got] = '\0';
    content->is_whole = true;
    content->is_binary = memchr(content->bytes.data, '\0',
                                size < BINARY_HEAD ? (size_t)got : BINARY_HEAD) != NULL;
    return CAY_OK;
}

int content_load(const cay_diff *diff, const struct cay_change *change,
                 enum diff_side side, struct content *ret_content, struct cay_error *err)
{
    bool is_before = side == DIFF_BEFORE;
    uint32_t mode = is_before ? change->before.mode : change->after.mode;
    const char *path = is_before && change->old_path ? change->old_path : change->path;
    char text[PATH_MAX];

    *ret_content = (struct content){0};
    buf_init(&ret_content->bytes, SIZE_MAX / 8);
    TRY(diff_check_time(diff, err));
    if (S_ISLNK(mode)) {
        ssize_t len = content_link(diff, change->layers[side], path, text);
        ret_content->is_whole = len >= 0;
        ret_content->is_binary = len < 0;
        return buf_append(&ret_content->bytes, text, len < 0 ? 0 : (size_t)len)
                   ? CAY_OK
                   : cay_fail_memory(err, DIFF_OP);
    }
    if (!S_ISREG(mode)) {
        ret_content->is_whole = true;
        return buf_append(&ret_content->bytes, "", 0) ? CAY_OK
                                                      : cay_fail_memory(err, DIFF_OP);
    }
    AUTO_FD fd = content_open(diff, change->layers[side], path);
    if (cay_errno_is_shortage(-fd))
        return diff_fail(-fd, path, err);
    if (fd < 0) {
        ret_content->is_binary = true;
        return CAY_OK;
    }
    return load_file(diff, fd, path, ret_content, err);
}

void content_done(struct content *content)
{
    buf_done(&content->bytes);
}
