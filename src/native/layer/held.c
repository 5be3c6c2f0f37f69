/* SPDX-License-Identifier: Apache-2.0 */
#include "native/layer/held.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/plan.h"
#include "sys/path.h"

static int open_process(pid_t pid)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* What the magic link leads to.  A kernel thread has none, and a mapping may have gone
 * with its process. */
static int visit(int dir, const char *name, int (*found)(void *cookie, int fd),
                 void *cookie)
{
    AUTO_FD fd = openat(dir, name, O_PATH | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    return found(cookie, fd);
}

/* The mode of a link in "map_files" says how the file was opened. */
static bool is_wanted(int dir, const char *name, enum held_kind kind)
{
    struct stat st;

    return kind == HELD_ALL ||
           (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mode & S_IWUSR);
}

static int visit_all(int process, const char *name, enum held_kind kind,
                     int (*found)(void *cookie, int fd), void *cookie)
{
    AUTO_FD dir = openat(process, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = 0;

    if (dir < 0)
        return errno == ENOENT ? 0 : -errno;
    AUTO_DIR list = path_list(dir);
    for (struct dirent *entry; !result && (entry = path_next(list));)
        if (is_wanted(dir, entry->d_name, kind))
            result = visit(dir, entry->d_name, found, cookie);
    return list ? result : -errno;
}

int held_each(pid_t pid, enum held_kind kind, int (*found)(void *cookie, int fd),
              void *cookie)
{
    static const char *const links[] = {"cwd", "root", "exe"};
    AUTO_FD process = open_process(pid);

    if (process < 0)
        return process == -ENOENT ? 0 : TAKE_FD(process);
    int result = visit_all(process, "map_files", kind, found, cookie);
    if (kind != HELD_ALL)
        return result;
    for (size_t i = 0; !result && i < sizeof links / sizeof *links; i++)
        result = visit(process, links[i], found, cookie);
    return result ? result : visit_all(process, "fd", kind, found, cookie);
}

enum { MOUNT_ID = 0x1000 /* STATX_MNT_ID */, MOUNT_ID_AT = 144 / 8 };

long held_mount(int fd)
{
    uint64_t found[32] = {0}; /* struct statx, which older C libraries lack */

    return syscall(SYS_statx, fd, "", AT_EMPTY_PATH, MOUNT_ID, found) == 0
               ? (long)found[MOUNT_ID_AT]
               : -errno;
}

/* Seen from outside, the root is a directory of the bottom of its mount namespace. */
int held_path(int fd, char *path, size_t room)
{
    static const char root[] = "/" PLAN_BOTTOM_ROOT "/";
    char link[32];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, room);
    if (len < 0 || (size_t)len >= room)
        return len < 0 ? -errno : -ENAMETOOLONG;
    path[len] = '\0';
    if (strncmp(path, root, strlen(root)) != 0)
        return -EXDEV;
    memmove(path, path + strlen(root), (size_t)len + 1 - strlen(root));
    return 0;
}
