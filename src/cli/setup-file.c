/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/join.h"
#include "cli/setup.h"

enum { WAIT_STEPS = 100, STEP_NS = 50000000 }; /* 5 s for a lock */

int setup_fail(int error, const char *path, struct cay_error *err)
{
    char shown[PATH_MAX];

    snprintf(shown, sizeof shown, "/%s", path);
    if (error == -ELOOP)
        return cay_fail(err, CAY_E_UNSUPPORTED, ELOOP, "setup", shown,
                        "is a symbolic link, so another program manages this file",
                        "change it with that program; cay doctor prints what is missing");
    if (error == -EROFS)
        return cay_fail(err, CAY_E_DENIED, EROFS, "setup", shown,
                        "is on a read-only file system",
                        "mount it writable, or change the image of this system");
    if (error == -EINVAL)
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, "setup", shown, "is not a regular file",
                        "move it away");
    return cay_fail_errno(err, -error, "setup", shown);
}

/* Whether it is a file of the kernel that runs, but the root is that of an image. */
static bool is_foreign(int root, int fd)
{
    struct stat own, host;
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC &&
           fstat(root, &own) == 0 && stat("/", &host) == 0 &&
           (own.st_dev != host.st_dev || own.st_ino != host.st_ino);
}

int setup_open(int root, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};

    if (!(flags & O_PATH))
        how.flags |= O_NOCTTY;
    AUTO_FD fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd < 0)
        return -errno;
    return is_foreign(root, fd) ? -ENOENT : TAKE_FD(fd);
}

bool setup_exists(int root, const char *path)
{
    AUTO_FD fd = setup_open(root, path, O_PATH);

    return fd >= 0;
}

/* The directory of a path; *ret_name is the last component. */
static int open_parent(int root, const char *path, const char **ret_name)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (!slash || (size_t)(slash - path) >= sizeof parent)
        return -ENAMETOOLONG;
    snprintf(parent, sizeof parent, "%.*s/.", (int)(slash - path), path);
    *ret_name = slash + 1;
    return setup_open(root, parent, O_RDONLY | O_DIRECTORY);
}

int setup_read(int root, const char *path, struct buf *ret_text)
{
    struct stat st;
    AUTO_FD fd = setup_open(root, path, O_RDONLY | O_NONBLOCK);
    ssize_t len = 1;

    ret_text->len = 0;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    while (len > 0) {
        if (!buf_reserve(ret_text, 4096))
            return -EFBIG;
        do
            len = read(fd, ret_text->data + ret_text->len, 4096);
        while (len < 0 && errno == EINTR);
        if (len < 0)
            return -errno;
        ret_text->len += (size_t)len;
    }
    ret_text->data[ret_text->len] = '\0';
    return 0;
}

long setup_number(int root, const char *path)
{
    char text[32];
    AUTO_FD fd = setup_open(root, path, O_RDONLY | O_NONBLOCK);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (len <= 0)
        return -1;
    text[len] = '\0';
    return strtol(text, NULL, 10);
}

/* --- Changing files --- */

static int write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t done = write(fd, text, len);
        if (done < 0 && errno != EINTR)
            return -errno;
        if (done > 0) {
            text += done;
            len -= (size_t)done;
        }
    }
    return 0;
}

static bool name_temporary(char *out, size_t room, const char *name)
{
    return JOIN(out, room, ".", name, ".cay-setup");
}

/* Only root creates names here: an older temporary file is that of a setup_write() that
 * was killed. */
static int create_temporary(int directory, const char *name, const char *temporary)
{
    struct stat like;
    bool is_new = fstatat(directory, name, &like, AT_SYMLINK_NOFOLLOW) != 0;

    if (!is_new && !S_ISREG(like.st_mode))
        return S_ISLNK(like.st_mode) ? -ELOOP : -EINVAL;
    (void)unlinkat(directory, temporary, 0);
    int fd = openat(directory, temporary,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if ((!is_new && fchown(fd, like.st_uid, like.st_gid) != 0) ||
        fchmod(fd, is_new ? 0644 : like.st_mode & 07777) != 0) {
        int error = -errno;
        (void)close(fd);
        return error;
    }
    return fd;
}

int setup_write(int root, const char *path, const char *text, size_t len)
{
    const char *name;
    char temporary[NAME_MAX + 1];
    AUTO_FD directory = open_parent(root, path, &name);

    if (directory < 0)
        return directory;
    if (!name_temporary(temporary, sizeof temporary, name))
        return -ENAMETOOLONG;
    AUTO_FD fd = create_temporary(directory, name, temporary);
    int error = fd < 0 ? fd : write_all(fd, text, len);
    if (!error &&
        (fsync(fd) != 0 || renameat(directory, temporary, directory, name) != 0))
        error = -errno;
    if (error)
        (void)unlinkat(directory, temporary, 0);
    else
        (void)fsync(directory);
    return error;
}

void setup_sweep(int root, const char *path)
{
    const char *name;
    char temporary[NAME_MAX + 1];
    AUTO_FD directory = open_parent(root, path, &name);

    if (directory >= 0 && name_temporary(temporary, sizeof temporary, name))
        (void)unlinkat(directory, temporary, 0);
}

int setup_put(int root, const char *path, const char *value)
{
    char text[64];
    AUTO_FD fd = setup_open(root, path, O_WRONLY | O_TRUNC | O_NONBLOCK);
    int len = snprintf(text, sizeof text, "%s\n", value);

    return fd < 0 ? fd : write_all(fd, text, (size_t)len);
}

int setup_make(int root, const char *path, mode_t mode)
{
    const char *name;
    AUTO_FD directory = open_parent(root, path, &name);
    int done;

    if (directory < 0)
        return directory;
    if (S_ISDIR(mode)) {
        done = mkdirat(directory, name, mode & 0777);
    } else {
        AUTO_FD fd = openat(directory, name,
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        done = fd < 0 ? -1 : 0;
    }
    return done == 0 || errno == EEXIST ? 0 : -errno;
}

int setup_remove(int root, const char *path, bool is_directory)
{
    const char *name;
    AUTO_FD directory = open_parent(root, path, &name);

    if (directory < 0)
        return directory == -ENOENT ? 0 : directory;
    if (unlinkat(directory, name, is_directory ? AT_REMOVEDIR : 0) != 0 &&
        errno != ENOENT && !(is_directory && (errno == ENOTEMPTY || errno == EEXIST)))
        return -errno;
    (void)fsync(directory);
    return 0;
}

/* --- The locks of shadow: etc/.pwd.lock, and etc/subuid.lock for each file --- */

static void wait_step(void)
{
    const struct timespec step = {.tv_nsec = STEP_NS};

    (void)nanosleep(&step, NULL);
}

static int lock_all(int directory)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(directory, ".pwd.lock",
                    O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

    if (fd < 0)
        return -errno;
    for (int i = 0; fcntl(fd, F_SETLK, &lock) != 0; i++) {
        if (i == WAIT_STEPS || (errno != EAGAIN && errno != EACCES && errno != EINTR)) {
            (void)close(fd);
            return i == WAIT_STEPS ? -EBUSY : -errno;
        }
        wait_step();
    }
    return fd;
}

/* A lock file has the number of its process, and stays behind if that is killed. */
static bool is_stale(int directory, const char *lock)
{
    char text[32];
    AUTO_FD fd = openat(directory, lock, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

    text[len > 0 ? len : 0] = '\0';
    long pid = strtol(text, NULL, 10);
    return pid > 0 && pid <= INT_MAX && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

static int lock_file(int directory, const char *name)
{
    char lock[32], own[32], text[16];
    int error;

    snprintf(lock, sizeof lock, "%s.lock", name);
    snprintf(own, sizeof own, "%s.%d", name, (int)getpid());
    snprintf(text, sizeof text, "%d", (int)getpid());
    (void)unlinkat(directory, own, 0);
    AUTO_FD fd = openat(directory, own,
                        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    error = write_all(fd, text, strlen(text) + 1);
    for (int i = 0; !error && linkat(directory, own, directory, lock, 0) != 0; i++) {
        if (errno != EEXIST)
            error = -errno;
        else if (is_stale(directory, lock))
            (void)unlinkat(directory, lock, 0);
        else if (i >= WAIT_STEPS)
            error = -EBUSY;
        else
            wait_step();
    }
    (void)unlinkat(directory, own, 0);
    return error;
}

static int fail_lock(int error, const char *path, struct cay_error *err)
{
    if (error != -EBUSY)
        return setup_fail(error, path, err);
    return cay_fail(err, CAY_E_BUSY, EBUSY, "setup", path,
                    "another program has locked this file for 5 s",
                    "wait until useradd, usermod or passwd has ended, then try again");
}

int setup_lock(int root, struct setup_lock *ret_lock, struct cay_error *err)
{
    struct setup_lock lock = {
        .directory = setup_open(root, "etc/.", O_RDONLY | O_DIRECTORY), .file = -1};
    int error = lock.directory < 0 ? lock.directory : 0;
    const char *path = "etc/.pwd.lock";

    if (!error) {
        lock.file = lock_all(lock.directory);
        error = lock.file < 0 ? lock.file : 0;
    }
    if (!error) {
        path = "etc/subuid.lock";
        error = lock_file(lock.directory, "subuid");
        lock.users = !error;
    }
    if (!error) {
        path = "etc/subgid.lock";
        error = lock_file(lock.directory, "subgid");
        lock.groups = !error;
    }
    if (error)
        setup_unlock(&lock);
    else
        *ret_lock = lock;
    return error ? fail_lock(error, path, err) : CAY_OK;
}

void setup_unlock(struct setup_lock *lock)
{
    if (lock->users)
        (void)unlinkat(lock->directory, "subuid.lock", 0);
    if (lock->groups)
        (void)unlinkat(lock->directory, "subgid.lock", 0);
    if (lock->file >= 0)
        (void)close(lock->file);
    if (lock->directory >= 0)
        (void)close(lock->directory);
    *lock = (struct setup_lock){.directory = -1, .file = -1};
}
