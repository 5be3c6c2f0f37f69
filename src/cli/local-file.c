/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/local-file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

static const char op[] = "cli.copy";

static int fail_kind(mode_t mode, const char *path, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_A_FILE, S_ISDIR(mode) ? EISDIR : 0, op, path,
                    S_ISDIR(mode)    ? "is a directory, not a file"
                    : S_ISFIFO(mode) ? "is a FIFO, not a regular file"
                    : S_ISSOCK(mode) ? "is a socket, not a regular file"
                                     : "is a device, not a regular file",
                    "give a regular file, or - for standard input or output");
}

/* What an O_PATH descriptor holds, whatever its name means by now. */
static int reopen(int held, int flags)
{
    char name[32];

    snprintf(name, sizeof name, "/proc/self/fd/%d", held);
    return open(name, flags | O_NOCTTY | O_CLOEXEC);
}

static bool is_same(int fd, const struct stat *st)
{
    struct stat own;

    return fstat(fd, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

/* Opening these never blocks: an unnamed pipe has both its ends. */
static bool is_harmless(int held, const struct stat *st)
{
    struct statfs fs;

    return (S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3)) ||
           (S_ISFIFO(st->st_mode) && fstatfs(held, &fs) == 0 &&
            fs.f_type == PIPEFS_MAGIC);
}

int local_file_read(const char *path, int *ret_fd, struct stat *ret_stat,
                    struct cay_error *err)
{
    AUTO_FD held = open(path, O_PATH | O_CLOEXEC);

    if (held < 0 || fstat(held, ret_stat) != 0)
        return cay_fail_errno(err, errno, op, path);
    bool is_regular = S_ISREG(ret_stat->st_mode);
    if (S_ISDIR(ret_stat->st_mode))
        *ret_fd = TAKE_FD(held);
    else if (!is_regular && is_same(STDIN_FILENO, ret_stat))
        *ret_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    else if (is_regular || is_harmless(held, ret_stat))
        *ret_fd = reopen(held, O_RDONLY);
    else
        return fail_kind(ret_stat->st_mode, path, err);
    return *ret_fd < 0 ? cay_fail_errno(err, errno, op, path) : CAY_OK;
}

/* --- Writing --- */

static int open_stream(const char *path, int held, const struct stat *st, int *ret_fd,
                       struct cay_error *err)
{
    if (is_same(STDOUT_FILENO, st))
        *ret_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    else if (is_same(STDERR_FILENO, st))
        *ret_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    else if (is_harmless(held, st))
        *ret_fd = reopen(held, O_WRONLY);
    else
        return fail_kind(st->st_mode, path, err);
    return *ret_fd < 0 ? cay_fail_errno(err, errno, op, path) : CAY_OK;
}

/* Without a name where the file system can do that: then nothing stays behind even of a
 * copy that is killed. */
static int open_new(mode_t mode, struct local_file *file)
{
    char directory[PATH_MAX + 2];
    const char *slash = strrchr(file->place, '/');
    int len = slash ? (int)(slash - file->place) + 1 : 0;
    uint64_t random = 0;

    (void)!getrandom(&random, sizeof random, 0);
    if (snprintf(file->temp, sizeof file->temp, "%.*s.cay-%016llx", len, file->place,
                 (unsigned long long)random) >= (int)sizeof file->temp)
        return ENAMETOOLONG;
    snprintf(directory, sizeof directory, "%.*s.", len, file->place);
    file->fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    if (file->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        file->fd = open(file->temp, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
        file->is_named = file->fd >= 0;
    }
    return file->fd < 0 ? errno : 0;
}

/* The current path of the open file `held`: its name may refer to another file by now.
 * It comes from the descriptor, so that the kernel follows the links: in a sticky
 * directory it refuses links of other users, which readlink(2) in a loop would not. */
static int find_place(int held, const struct stat *st, char place[PATH_MAX])
{
    char name[32];
    struct stat there;

    snprintf(name, sizeof name, "/proc/self/fd/%d", held);
    ssize_t len = readlink(name, place, PATH_MAX - 1);
    if (len < 0)
        return errno;
    place[len] = '\0';
    if (lstat(place, &there) != 0)
        return errno;
    return there.st_dev == st->st_dev && there.st_ino == st->st_ino ? 0 : ESTALE;
}

int local_file_create(const char *path, mode_t mode, struct local_file *ret_file,
                      struct cay_error *err)
{
    AUTO_FD held = open(path, O_PATH | O_CLOEXEC);
    struct stat st;
    int error = 0;

    *ret_file = (struct local_file)LOCAL_FILE_NONE;
    if (held < 0 && errno != ENOENT)
        return cay_fail_errno(err, errno, op, path);
    if (held >= 0 && fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, op, path);
    if (held >= 0 && (!S_ISREG(st.st_mode) || is_same(STDOUT_FILENO, &st)))
        return open_stream(path, held, &st, &ret_file->fd, err);
    if (strlen(path) >= sizeof ret_file->place)
        return cay_fail_errno(err, ENAMETOOLONG, op, path);
    if (held < 0)
        memcpy(ret_file->place, path, strlen(path) + 1);
    else
        error = find_place(held, &st, ret_file->place);
    if (!error)
        error = open_new(mode, ret_file);
    return error ? cay_fail_errno(err, error, op, path) : CAY_OK;
}

int local_file_commit(struct local_file *file, const char *path, struct cay_error *err)
{
    char held[32];

    if (!*file->place)
        return CAY_OK;
    snprintf(held, sizeof held, "/proc/self/fd/%d", file->fd);
    if (!file->is_named &&
        linkat(AT_FDCWD, held, AT_FDCWD, file->temp, AT_SYMLINK_FOLLOW) != 0)
        return cay_fail_errno(err, errno, op, path);
    file->is_named = true;
    if (rename(file->temp, file->place) != 0)
        return cay_fail_errno(err, errno, op, path);
    file->is_named = false;
    return CAY_OK;
}

void local_file_done(struct local_file *file)
{
    if (file->is_named)
        (void)unlink(file->temp);
    if (file->fd >= 0)
        (void)close(file->fd);
    *file = (struct local_file)LOCAL_FILE_NONE;
}
