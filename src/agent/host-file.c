/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/host-file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/results.h"
#include "base/auto.h"
#include "base/error.h"

static const char op[] = "file.download";

/* Makes the directories of a path that are not there; 0 or an errno. */
static int make_parents(const char *path)
{
    char above[PATH_MAX];

    for (const char *slash = strchr(path + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        size_t len = (size_t)(slash - path);
        memcpy(above, path, len);
        above[len] = '\0';
        if (mkdir(above, 0777) != 0 && errno != EEXIST)
            return errno;
    }
    return 0;
}

static int fail_name(const char *path, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, path, "this is no name for a file",
                    "give the path of the file to be made");
}

/* The path of what is there, links followed, or `path` itself.  It is asked of the
 * kernel, which has looked at it already: in a directory for everybody it follows no
 * links of others, and somebody may be changing them. */
static int find_place(const char *path, char ret_place[PATH_MAX], struct cay_error *err)
{
    AUTO_FD held = open(path, O_PATH | O_CLOEXEC);
    struct stat st, there;
    char name[32];

    if (held < 0 && errno == ENOENT) {
        memcpy(ret_place, path, strlen(path) + 1);
        return CAY_OK;
    }
    if (held < 0 || fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, op, path);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, S_ISDIR(st.st_mode) ? EISDIR : 0, op, path,
                        "something else than a regular file is there",
                        "name the file itself, not the directory it is to be in");
    snprintf(name, sizeof name, "/proc/self/fd/%d", held);
    ssize_t len = readlink(name, ret_place, PATH_MAX - 1);
    ret_place[len > 0 ? len : 0] = '\0';
    if (lstat(ret_place, &there) != 0)
        return cay_fail_errno(err, errno, op, path);
    return there.st_dev == st.st_dev && there.st_ino == st.st_ino
               ? CAY_OK
               : cay_fail_errno(err, ESTALE, op, path);
}

int host_file_open(const char *path, struct host_file *ret_file, struct cay_error *err)
{
    char real[PATH_MAX];

    *ret_file = (struct host_file)HOST_FILE_NONE;
    if (!*path || strlen(path) >= PATH_MAX)
        return fail_name(path, err);
    int error = make_parents(path);
    if (error)
        return cay_fail_errno(err, error, op, path);
    int code = find_place(path, real, err);
    if (code)
        return code;
    char *slash = strrchr(real, '/');
    const char *name = slash ? slash + 1 : real;
    if (!*name || strlen(name) >= sizeof ret_file->name)
        return fail_name(path, err);
    cay_copy_text(ret_file->name, sizeof ret_file->name, name);
    if (slash)
        slash[slash == real] = '\0';
    ret_file->dir = open(slash ? real : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret_file->dir < 0)
        return cay_fail_errno(err, errno, op, path);
    memcpy(ret_file->temp, ".cay-", 5);
    results_hex(ret_file->temp + 5, 16);
    ret_file->fd = openat(ret_file->dir, ret_file->temp,
                          O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (ret_file->fd < 0) {
        error = errno;
        ret_file->temp[0] = '\0';
        return cay_fail_errno(err, error, op, path);
    }
    return CAY_OK;
}

int host_file_commit(struct host_file *file, const char *path,
                     const struct cay_stat *stat, struct cay_error *err)
{
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {stat->mtime_ns / 1000000000, stat->mtime_ns % 1000000000}};

    if (fchmod(file->fd, stat->mode & 0777) != 0 ||
        (stat->mtime_ns > 0 && futimens(file->fd, times) != 0) ||
        renameat(file->dir, file->temp, file->dir, file->name) != 0)
        return cay_fail_errno(err, errno, op, path);
    file->temp[0] = '\0';
    return CAY_OK;
}

void host_file_done(struct host_file *file)
{
    if (file->temp[0])
        (void)unlinkat(file->dir, file->temp, 0);
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->dir >= 0)
        (void)close(file->dir);
    *file = (struct host_file)HOST_FILE_NONE;
}
