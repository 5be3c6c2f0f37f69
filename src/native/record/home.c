/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/home.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "sandbox/backend.h"
#include "sys/fs.h"
#include "sys/state-home.h"

static const char op[] = "sandbox.home";

void home_path(const struct record *record, char ret_path[HOME_PATH])
{
    snprintf(ret_path, HOME_PATH, SANDBOX_HOME, record->id);
}

/* Commands of a local sandbox created by root may run as any user. */
static int open_to_all(int fd)
{
    return fchmod(fd, 0711) == 0 && fchmodat(fd, "tmp", 01777, 0) == 0 ? 0 : -1;
}

int home_create(const struct record *record, uint32_t uid, struct cay_error *err)
{
    char path[HOME_PATH];
    bool is_shared = runtime_is_local(record) && geteuid() == 0;

    home_path(record, path);
    int error = state_home_make(AT_FDCWD, path);
    if (error)
        return cay_fail_errno(err, -error, op, path);
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    error = fd < 0 ? -errno : state_home_make(fd, "tmp");
    if (error)
        return cay_fail_errno(err, -error, op, path);
    if (uid != geteuid() && (fchown(fd, uid, uid) != 0 ||
                             fchownat(fd, "tmp", uid, uid, AT_SYMLINK_NOFOLLOW) != 0))
        return cay_fail_errno(err, errno, op, path);
    if (is_shared && open_to_all(fd) != 0)
        return cay_fail_errno(err, errno, op, path);
    return CAY_OK;
}

/* A directory may be inaccessible even to its owner: its mode is changed before it is
 * entered or moved. */
static int forced_open(const struct fs *fs, int dir, const char *path, uint64_t flags,
                       uint64_t mode, uint64_t resolve)
{
    (void)!fchmodat(dir, path, 0700, AT_SYMLINK_NOFOLLOW);
    return fs_direct.open(fs, dir, path, flags, mode, resolve);
}

static int forced_rename(const struct fs *fs, int from_dir, const char *from, int to_dir,
                         const char *to, unsigned flags)
{
    (void)!fchmodat(from_dir, from, 0700, AT_SYMLINK_NOFOLLOW);
    return fs_direct.rename(fs, from_dir, from, to_dir, to, flags);
}

int home_remove(const struct record *record, struct cay_error *err)
{
    struct fs forced = fs_direct;
    char path[HOME_PATH];

    forced.open = forced_open;
    forced.rename = forced_rename;
    home_path(record, path);
    const char *name = strrchr(path, '/') + 1;
    AUTO_FD parent = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return cay_fail_errno(err, errno, op, "/tmp");
    return tree_remove(&forced, op, parent, name, path, err);
}
