/* SPDX-License-Identifier: Apache-2.0 */
#include "init/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/path.h"

#define INSIDE (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)

int place_open(const char *path)
{
    return path_open(AT_FDCWD, path, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
}

/* Takes the last component off; the directory it is in, or a negative errno. */
static int open_parent(const char *path, const char **ret_name)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;

    if (len >= sizeof parent)
        return -ENAMETOOLONG;
    memcpy(parent, path, len);
    parent[len] = '\0';
    *ret_name = slash ? slash + 1 : path;
    return path_open(AT_FDCWD, parent, O_PATH | O_DIRECTORY, 0, INSIDE);
}

static int make(int parent, const char *name, bool is_directory)
{
    if (is_directory)
        return mkdirat(parent, name, 0755) == 0 ? 0 : -errno;
    AUTO_FD fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : 0;
}

static int make_as(uid_t uid, gid_t gid, int parent, const char *name, bool is_directory)
{
    (void)syscall(SYS_setfsgid, gid);
    (void)syscall(SYS_setfsuid, uid);
    int error = make(parent, name, is_directory);
    (void)syscall(SYS_setfsuid, 0);
    (void)syscall(SYS_setfsgid, 0);
    return error;
}

static bool is_somebody_elses(int error)
{
    return error == -EOVERFLOW || error == -EACCES;
}

static int make_missing(const char *path, bool is_directory)
{
    const char *name;
    struct stat st;
    AUTO_FD parent = open_parent(path, &name);

    if (parent < 0)
        return parent;
    if (fstat(parent, &st) != 0)
        return -errno;
    int error = make(parent, name, is_directory);
    if (!error)
        (void)!fchownat(parent, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW);
    /* In a directory of the host's that is shown inside, only its owner has a number. */
    if (is_somebody_elses(error))
        error = make_as(PLAN_USER, PLAN_USER, parent, name, is_directory);
    if (is_somebody_elses(error))
        error = make_as(st.st_uid, st.st_gid, parent, name, is_directory);
    return error;
}

/* Makes what is missing of the directories above `path`. */
static int make_parents(const char *path)
{
    char above[PATH_MAX];

    if (strlen(path) >= sizeof above)
        return -ENAMETOOLONG;
    memcpy(above, path, strlen(path) + 1);
    for (char *slash = strchr(above, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        AUTO_FD there = path_open(AT_FDCWD, above, O_PATH | O_DIRECTORY, 0, INSIDE);
        int error = there == -ENOENT ? make_missing(above, true) : there < 0 ? there : 0;
        if (error)
            return error;
        *slash = '/';
    }
    return 0;
}

int place_target(const char *path, bool is_directory)
{
    struct stat st;
    struct statfs fs;
    AUTO_FD fd = path_open(AT_FDCWD, path, O_PATH, 0, INSIDE);

    if (fd == -ENOENT) {
        int error = make_parents(path);
        if (!error)
            error = make_missing(path, is_directory);
        if (error)
            return error;
        fd = path_open(AT_FDCWD, path, O_PATH, 0, INSIDE);
    }
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
        return -errno;
    if (fs.f_type == PROC_SUPER_MAGIC)
        return -EPERM;
    if (is_directory != (bool)S_ISDIR(st.st_mode))
        return is_directory ? -ENOTDIR : -EISDIR;
    return TAKE_FD(fd);
}

int place_directory(const struct plan_step *step, const char *path)
{
    const char *name;
    AUTO_FD parent = open_parent(path, &name);

    if (parent < 0)
        return parent;
    if (mkdirat(parent, name, step->mode) != 0)
        return errno == EEXIST ? 0 : -errno;
    if ((step->uid || step->gid) &&
        fchownat(parent, name, step->uid, step->gid, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    return 0;
}

int place_file(const struct plan_step *step, const char *path, const char *data)
{
    const char *name;
    AUTO_FD parent = open_parent(path, &name);

    if (parent < 0)
        return parent;
    if (unlinkat(parent, name, 0) != 0 && errno != ENOENT)
        return -errno;
    AUTO_FD fd =
        openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, step->mode);
    if (fd < 0)
        return -errno;
    ssize_t put = step->data_len ? write(fd, data, step->data_len) : 0;
    return put == (ssize_t)step->data_len ? 0 : put < 0 ? -errno : -ENOSPC;
}
