/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/path.h"

enum { MAX_TRIES = 16 };

static int direct_find(const struct fs *fs, int dir, const char *host, const char *path,
                       unsigned flags, char ret_rel[PATH_MAX], struct fs_found *ret_found)
{
    (void)fs;
    ret_found->is_open = false;
    ret_found->dir = -1;
    ret_found->write_error = 1;
    return path_resolve(dir, host, path, !(flags & FS_NO_FOLLOW), ret_rel, &ret_found->fd,
                        &ret_found->st);
}

static int direct_open(const struct fs *fs, int dir, const char *path, uint64_t flags,
                       uint64_t mode, uint64_t resolve)
{
    (void)fs;
    return path_open(dir, path, flags, mode, resolve);
}

static int direct_reopen(const struct fs *fs, int fd, int flags, bool *ret_copied)
{
    (void)fs;
    *ret_copied = false;
    return path_reopen(fd, flags);
}

static int direct_may_write(const struct fs *fs, int fd)
{
    (void)fs;
    return faccessat(fd, "", W_OK, AT_EACCESS | AT_EMPTY_PATH) == 0 ? 0 : -errno;
}

static int direct_stat(const struct fs *fs, int dir, const char *name,
                       struct stat *ret_stat)
{
    (void)fs;
    return fstatat(dir, name, ret_stat, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0
               ? 0
               : -errno;
}

static int direct_look(const struct fs *fs, int dir, struct fs_look *looks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        looks[i].error = direct_stat(fs, dir, looks[i].name, &looks[i].st);
    return 0;
}

static ssize_t direct_read_link(const struct fs *fs, int fd, char *text, size_t room)
{
    ssize_t len = readlinkat(fd, "", text, room);

    (void)fs;
    return len < 0 ? -errno : len;
}

static int direct_make_directory(const struct fs *fs, int dir, const char *name,
                                 mode_t mode)
{
    (void)fs;
    return mkdirat(dir, name, mode) == 0 ? 0 : -errno;
}

static int direct_make_link(const struct fs *fs, const char *text, int dir,
                            const char *name)
{
    (void)fs;
    return symlinkat(text, dir, name) == 0 ? 0 : -errno;
}

static int direct_link(const struct fs *fs, int fd, int dir, const char *name)
{
    char file[32];

    (void)fs;
    snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, file, dir, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : -errno;
}

static int direct_rename(const struct fs *fs, int from_dir, const char *from, int to_dir,
                         const char *to, unsigned flags)
{
    (void)fs;
    return path_rename(from_dir, from, to_dir, to, flags);
}

static int direct_remove(const struct fs *fs, int dir, const char *name, int flags)
{
    (void)fs;
    return unlinkat(dir, name, flags) == 0 ? 0 : -errno;
}

static int direct_set_times(const struct fs *fs, int fd, const char *name,
                            const struct timespec times[2])
{
    (void)fs;
    int result =
        name ? utimensat(fd, name, times, AT_SYMLINK_NOFOLLOW) : futimens(fd, times);
    return result == 0 ? 0 : -errno;
}

static int direct_set_mode(const struct fs *fs, int fd, mode_t mode)
{
    char name[32];

    (void)fs;
    if (fchmod(fd, mode) == 0)
        return 0;
    if (errno != EBADF) /* O_PATH */
        return -errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return chmod(name, mode) == 0 ? 0 : -errno;
}

static int direct_set_owner(const struct fs *fs, int fd, uid_t uid, gid_t gid)
{
    (void)fs;
    return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) == 0 ? 0 : -errno;
}

/* --- Drafts ---------------------------------------------------------------------------
 */

static void pick_name(char name[FS_TEMP_MAX])
{
    uint64_t random = 0;

    (void)!getrandom(&random, sizeof random, 0);
    snprintf(name, FS_TEMP_MAX, ".cay-%016llx", (unsigned long long)random);
}

static int open_named(int dir, mode_t mode, char ret_temp[FS_TEMP_MAX])
{
    for (int tries = 0; tries < MAX_TRIES; tries++) {
        pick_name(ret_temp);
        int fd = openat(dir, ret_temp, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC,
                        mode);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST)
            break;
    }
    int error = errno;
    *ret_temp = '\0';
    return -error;
}

/* Labels of the security modules are the kernel's to set, the rest is the file's. */
static bool is_ours_to_copy(const char *attribute)
{
    return strncmp(attribute, "user.", 5) == 0 ||
           strcmp(attribute, "system.posix_acl_access") == 0;
}

/* False if not all extended attributes could be copied: too large, unreadable, no space.
 */
static bool copy_attributes(int fd, int model)
{
    char file[32], names[4096], value[4096];

    snprintf(file, sizeof file, "/proc/self/fd/%d", model);
    ssize_t len = listxattr(file, names, sizeof names);
    if (len < 0)
        return errno == EOPNOTSUPP;
    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1) {
        if (!is_ours_to_copy(names + at))
            continue;
        ssize_t size = getxattr(file, names + at, value, sizeof value);
        if (size < 0 || fsetxattr(fd, names + at, value, (size_t)size, 0) != 0)
            return false;
    }
    return true;
}

static int direct_like(const struct fs *fs, int fd, int model)
{
    struct stat st, old;

    (void)fs;
    if (fstat(fd, &st) != 0 || fstat(model, &old) != 0)
        return -errno;
    if ((st.st_uid != old.st_uid || st.st_gid != old.st_gid) &&
        fchown(fd, old.st_uid, old.st_gid) != 0)
        return -EPERM;
    if (fchmod(fd, old.st_mode & 0777) != 0)
        return -errno;
    return copy_attributes(fd, model) ? 0 : -EPERM;
}

static int direct_draft(const struct fs *fs, int dir, mode_t mode, int model,
                        uint64_t room, char ret_temp[FS_TEMP_MAX])
{
    (void)room;
    *ret_temp = '\0';
    AUTO_FD fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    if (fd < 0) {
        int error = errno;
        if (error != EOPNOTSUPP && error != EISDIR && error != EINVAL)
            return -error;
        fd = open_named(dir, mode, ret_temp);
        if (fd < 0)
            return fd;
    }
    int error = model < 0 ? 0 : direct_like(fs, fd, model);
    if (!error)
        return TAKE_FD(fd);
    if (*ret_temp)
        (void)unlinkat(dir, ret_temp, 0);
    *ret_temp = '\0';
    return error;
}

/* linkat(2) never replaces, so it takes another name first. */
static int link_and_rename(const struct fs *fs, int fd, int dir, const char *name)
{
    char temp[FS_TEMP_MAX];
    int error = -EEXIST;

    for (int tries = 0; tries < MAX_TRIES && error == -EEXIST; tries++) {
        pick_name(temp);
        error = direct_link(fs, fd, dir, temp);
    }
    if (error)
        return error;
    error = direct_rename(fs, dir, temp, dir, name, 0);
    if (error)
        (void)unlinkat(dir, temp, 0);
    return error;
}

static int direct_commit(const struct fs *fs, int fd, int dir, const char *temp,
                         const char *name, bool replace)
{
    if (*temp)
        return direct_rename(fs, dir, temp, dir, name, replace ? 0 : RENAME_NOREPLACE);
    int error = direct_link(fs, fd, dir, name);
    return error == -EEXIST && replace ? link_and_rename(fs, fd, dir, name) : error;
}

const struct fs fs_direct = {
    .find = direct_find,
    .open = direct_open,
    .reopen = direct_reopen,
    .may_write = direct_may_write,
    .stat = direct_stat,
    .look = direct_look,
    .read_link = direct_read_link,
    .make_directory = direct_make_directory,
    .make_link = direct_make_link,
    .link = direct_link,
    .rename = direct_rename,
    .remove = direct_remove,
    .set_times = direct_set_times,
    .set_mode = direct_set_mode,
    .set_owner = direct_set_owner,
    .draft = direct_draft,
    .like = direct_like,
    .commit = direct_commit,
};

/* --- Shared --- */

bool fs_is_pseudo(int fd)
{
    struct statfs st;

    if (fstatfs(fd, &st) != 0)
        return true;
    switch ((unsigned long)st.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case DEVPTS_SUPER_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case BPF_FS_MAGIC:
    case EFIVARFS_MAGIC:
    case PSTOREFS_MAGIC:
    case NSFS_MAGIC:
    case SELINUX_MAGIC:
    case SMACK_MAGIC:
    case RDTGROUP_SUPER_MAGIC:
    case BINDERFS_SUPER_MAGIC:
    case BINFMTFS_MAGIC:
    case 0x62656570: /* configfs */
    case 0x65735543: /* fusectl */
    case 0x19800202: /* POSIX message queues */
        return true;
    default:
        return false;
    }
}

int fs_fail(const struct fs *fs, int sys_errno, const char *op, const char *subject,
            struct cay_error *err)
{
    return fs->fail ? fs->fail(fs, sys_errno, op, subject, err)
                    : cay_fail_errno(err, sys_errno, op, subject);
}
