/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "native/try.h"
#include "sys/copy.h"
#include "sys/path.h"

enum { DEPTH_MAX = 200, XATTRS_MAX = 64 << 10 };

struct copying {
    int top;             /* of the copy */
    char *path;          /* PATH_MAX bytes: of the directory, from there, with a slash */
    char *names, *value; /* XATTRS_MAX bytes each */
    void *links;         /* struct link, by inode */
    uint64_t *files, *bytes;
};

/* A file with several names. */
struct link {
    ino_t ino;
    char path[]; /* of the copy, from the top */
};

static int compare_links(const void *a, const void *b)
{
    const struct link *one = a, *other = b;

    return one->ino == other->ino ? 0 : one->ino < other->ino ? -1 : 1;
}

static int note_link(struct copying *copying, ino_t ino, const char *name)
{
    size_t above = strlen(copying->path), len = strlen(name) + 1;
    struct link *link = malloc(sizeof *link + above + len);

    if (!link)
        return -ENOMEM;
    link->ino = ino;
    memcpy(link->path, copying->path, above);
    memcpy(link->path + above, name, len);
    if (tsearch(link, &copying->links, compare_links))
        return 0;
    free(link);
    return -ENOMEM;
}

/* --- One file --- */

static int copy_xattrs(const struct copying *copying, const char *from, const char *to)
{
    ssize_t len = llistxattr(from, copying->names, XATTRS_MAX);

    if (len < 0)
        return errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *name = copying->names; name < copying->names + len;
         name += strlen(name) + 1) {
        ssize_t size = lgetxattr(from, name, copying->value, XATTRS_MAX);
        if (size < 0 || lsetxattr(to, name, copying->value, (size_t)size, 0) != 0)
            return -errno;
    }
    return 0;
}

/* The owner first: a change of it removes capabilities.  The mode after the attributes:
 * it may forbid the owner to set them. */
static int copy_attributes(const struct copying *copying, int from, int to,
                           const char *name, const struct stat *st)
{
    char from_path[NAME_MAX + 32], to_path[NAME_MAX + 32];
    const struct timespec times[2] = {st->st_atim, st->st_mtim};

    snprintf(from_path, sizeof from_path, "/proc/self/fd/%d/%s", from, name);
    snprintf(to_path, sizeof to_path, "/proc/self/fd/%d/%s", to, name);
    if (geteuid() == 0 &&
        fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    int error = copy_xattrs(copying, from_path, to_path);
    if (error)
        return error;
    if ((!S_ISLNK(st->st_mode) && fchmodat(to, name, st->st_mode & 07777, 0) != 0) ||
        utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    return 0;
}

static int copy_content(int from, int to, const char *name)
{
    uint64_t copied;
    AUTO_FD source = path_open(from, name, O_RDONLY | O_NOATIME | O_NONBLOCK | O_NOFOLLOW,
                               0, PATH_PLAIN);
    AUTO_FD target =
        source < 0 ? -1
                   : path_open(to, name, O_WRONLY | O_CREAT | O_EXCL, 0600, PATH_PLAIN);

    if (source < 0 || target < 0)
        return source < 0 ? TAKE_FD(source) : TAKE_FD(target);
    return copy_bytes(source, target, UINT64_MAX, &copied);
}

static int copy_symlink(int from, int to, const char *name)
{
    char text[PATH_MAX];
    ssize_t len = readlinkat(from, name, text, sizeof text - 1);

    if (len < 0)
        return -errno;
    text[len] = '\0';
    return symlinkat(text, to, name) == 0 ? 0 : -errno;
}

static int copy_file(struct copying *copying, int from, int to, const char *name,
                     const struct stat *st)
{
    /* A whiteout has no attributes of its own, and may be a link to all others. */
    if (S_ISCHR(st->st_mode) && st->st_rdev == 0)
        return mknodat(to, name, S_IFCHR, 0) == 0 ? 0 : -errno;
    struct link *const *link = st->st_nlink > 1 ? tfind(&(struct link){.ino = st->st_ino},
                                                        &copying->links, compare_links)
                                                : NULL;
    if (link)
        return linkat(copying->top, (*link)->path, to, name, 0) == 0 ? 0 : -errno;
    int error = S_ISREG(st->st_mode)   ? copy_content(from, to, name)
                : S_ISLNK(st->st_mode) ? copy_symlink(from, to, name)
                : mknodat(to, name, st->st_mode, st->st_rdev) == 0 ? 0
                                                                   : -errno;
    if (!error)
        error = copy_attributes(copying, from, to, name, st);
    if (!error && st->st_nlink > 1)
        error = note_link(copying, st->st_ino, name);
    *copying->bytes += (uint64_t)st->st_blocks * 512;
    return error;
}

/* --- Directories --- */

static int copy_entries(struct copying *copying, int from, int to, unsigned depth);

static int copy_directory(struct copying *copying, int from, int to, const char *name,
                          const struct stat *st, unsigned depth)
{
    size_t len = strlen(copying->path);
    AUTO_FD own_from = path_open(from, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (own_from < 0)
        return TAKE_FD(own_from);
    if (mkdirat(to, name, 0700) != 0)
        return -errno;
    AUTO_FD own_to = path_open(to, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (own_to < 0)
        return TAKE_FD(own_to);
    if (depth == DEPTH_MAX || len + strlen(name) + 2 > PATH_MAX)
        return -ELOOP;
    snprintf(copying->path + len, PATH_MAX - len, "%s/", name);
    int error = copy_entries(copying, own_from, own_to, depth + 1);
    copying->path[len] = '\0';
    return error ? error : copy_attributes(copying, from, to, name, st);
}

static int copy_entries(struct copying *copying, int from, int to, unsigned depth)
{
    struct stat st;
    AUTO_DIR list = path_list(from);
    int error = list ? 0 : -errno;

    for (struct dirent *entry; !error && (entry = path_next(list));) {
        if (fstatat(from, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            error = -errno;
        else if (S_ISDIR(st.st_mode))
            error = copy_directory(copying, from, to, entry->d_name, &st, depth);
        else
            error = copy_file(copying, from, to, entry->d_name, &st);
        ++*copying->files;
    }
    return error;
}

int try_copy(int from, int to, uint64_t *files, uint64_t *bytes)
{
    AUTO_FREE char *path = calloc(1, PATH_MAX);
    AUTO_FREE char *names = malloc(XATTRS_MAX);
    AUTO_FREE char *value = malloc(XATTRS_MAX);
    struct copying copying = {.top = to,
                              .path = path,
                              .names = names,
                              .value = value,
                              .files = files,
                              .bytes = bytes};
    struct stat st;

    if (!path || !names || !value)
        return -ENOMEM;
    int error = fstat(from, &st) == 0 ? copy_entries(&copying, from, to, 0) : -errno;
    while (copying.links) {
        struct link *link = *(struct link **)copying.links;
        (void)tdelete(link, &copying.links, compare_links);
        free(link);
    }
    return error ? error : copy_attributes(&copying, from, to, ".", &st);
}
