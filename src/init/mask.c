/* SPDX-License-Identifier: Apache-2.0 */
#include "init/mask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/report.h"

/* Who owns what belongs to somebody that has no number inside. */
enum { OVERFLOW_ID = 65534 };

static bool is_nobodys(const struct stat *st)
{
    return st->st_uid == OVERFLOW_ID && !(st->st_mode & 0007);
}

/* Not in the host's /proc, though that would be quicker: another part of it may be
 * mounted there, and a mode that was changed elsewhere is not seen. */
bool mask_is_needless(int proc, const char *path)
{
    const char *name = strrchr(path, '/');
    struct stat st;

    if (!name)
        return false;
    return fstatat(proc, name + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 ? is_nobodys(&st)
                                                                  : errno == ENOENT;
}

/* An empty directory that will have no name; one for all of them.  A file system for it
 * would cost every cgroup of the machine some memory. */
static const char nothing[] = "dev/.nothing";

static void mask_directory(const char *path)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};

    if ((mkdir(nothing, 0555) != 0 && errno != EEXIST) ||
        mount(nothing, path, NULL, MS_BIND, NULL) != 0 ||
        syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &attributes, sizeof attributes) !=
            0)
        report_failure(errno, "init.mask", path);
}

void mask(const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        report_failure(errno, "init.mask", path);
    if (S_ISDIR(st.st_mode))
        mask_directory(path);
    else if (mount("dev/null", path, NULL, MS_BIND, NULL) != 0)
        report_failure(errno, "init.mask", path);
}

void mask_make_read_only(const char *path)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};

    if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) != 0 ||
        syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attributes,
                sizeof attributes) != 0)
        report_failure(errno, "init.mask", path);
}

void mask_done(void)
{
    (void)!rmdir(nothing);
}
