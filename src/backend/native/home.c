/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/home.h"

#include <dirent.h>
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

static const char op[] = "sandbox.home";

enum { DEPTH_MAX = 200 /* each a descriptor */ };

void home_path(const struct record *record, char ret_path[HOME_PATH])
{
    snprintf(ret_path, HOME_PATH, SANDBOX_HOME, record->id);
}

/* Commands of a local sandbox may be of any user if root has made it. */
static int open_to_all(int fd)
{
    return fchmod(fd, 0711) == 0 && fchmodat(fd, "tmp", 01777, 0) == 0 ? 0 : -1;
}

int home_make(const struct record *record, uint32_t uid, struct cay_error *err)
{
    char path[HOME_PATH];
    bool is_shared = runtime_is_local(record) && geteuid() == 0;

    home_path(record, path);
    if (mkdir(path, 0700) != 0)
        return cay_fail_errno(err, errno, op, path);
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || mkdirat(fd, "tmp", 0700) != 0)
        return cay_fail_errno(err, errno, op, path);
    if (uid != geteuid() && (fchown(fd, uid, uid) != 0 ||
                             fchownat(fd, "tmp", uid, uid, AT_SYMLINK_NOFOLLOW) != 0))
        return cay_fail_errno(err, errno, op, path);
    if (is_shared && open_to_all(fd) != 0)
        return cay_fail_errno(err, errno, op, path);
    return CAY_OK;
}

/* Opens directories that were closed even to their owner, so that they can be emptied. */
static void open_up(int at, int depth)
{
    DIR *directory = fdopendir(at);

    if (!directory) {
        (void)close(at);
        return;
    }
    for (struct dirent *entry; depth > 0 && (entry = readdir(directory));) {
        if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0)
            continue;
        (void)!fchmodat(dirfd(directory), entry->d_name, 0700, 0);
        int below = openat(dirfd(directory), entry->d_name,
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            open_up(below, depth - 1);
    }
    closedir(directory);
}

void home_remove(const struct record *record)
{
    char path[HOME_PATH];

    home_path(record, path);
    const char *name = strrchr(path, '/') + 1;
    AUTO_FD parent = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || tree_remove(&fs_direct, op, parent, name, name, NULL) == CAY_OK)
        return;
    int home = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (home < 0)
        return;
    open_up(home, DEPTH_MAX);
    (void)tree_remove(&fs_direct, op, parent, name, name, NULL);
}
