/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/shift.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/clone.h"
#include "sys/io.h"
#include "sys/raw.h"

/* A namespace exists while a process is in it or has it open, so it is created with a
 * process that waits until the caller has opened it.  That process shares the memory and
 * touches only its `struct keeper`. */
struct keeper {
    int wait; /* the end of a pipe to read from; the other process has it, too */
    char stack[4096] __attribute__((aligned(16)));
};

IN_CLONE static void keep(void *cookie)
{
    const struct keeper *keeper = cookie;
    char byte;

    /* So that the child sees the end of the parent, however it ends.  All others, too:
     * another thread of the parent may have such a pipe, whose child waits for its end.
     */
    if (keeper->wait > 0)
        (void)raw_call(SYS_close_range, 0, keeper->wait - 1, 0, 0, 0);
    (void)raw_call(SYS_close_range, keeper->wait + 1, UINT_MAX, 0, 0, 0);
    (void)raw_call(SYS_read, keeper->wait, (long)&byte, 1, 0, 0);
    (void)raw_call(SYS_exit, 0, 0, 0, 0, 0);
}

int shift_of_process(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int shift_map(const char *uids, const char *gids)
{
    struct keeper keeper;
    sigset_t all, before;
    char path[64];
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    AUTO_FD wait = ends[0], release = ends[1];
    keeper.wait = wait;
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_NEWUSER,
        .stack = (__u64)(uintptr_t)keeper.stack,
        .stack_size = sizeof keeper.stack,
    };
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = clone_run(&args, keep, &keeper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return (int)pid;
    snprintf(path, sizeof path, "/proc/%ld/uid_map", pid);
    int result = io_write_text(path, uids);
    snprintf(path, sizeof path, "/proc/%ld/gid_map", pid);
    if (!result)
        result = io_write_text(path, gids);
    if (!result)
        result = shift_of_process((pid_t)pid);
    (void)close(TAKE_FD(release));
    while (waitpid((pid_t)pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        continue;
    return result;
}

enum { OPEN_TREE_ATTR = 467 /* SYS_open_tree_attr of Linux 6.15 */ };

IN_CLONE int shift_mount_again(const char *path, int map, uint64_t attributes)
{
    struct mount_attr attr = {.attr_set = attributes | MOUNT_ATTR_IDMAP,
                              .propagation = MS_PRIVATE,
                              .userns_fd = (__u64)map};
    int tree = (int)syscall(OPEN_TREE_ATTR, AT_FDCWD, path,
                            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, &attr, sizeof attr);

    return tree < 0 ? -errno : tree;
}

int shift_detached(int mount, int map, uint64_t attributes)
{
    /* Private: mounts made on it inside must not propagate to the host. */
    struct mount_attr attr = {.attr_set = attributes | MOUNT_ATTR_IDMAP,
                              .propagation = MS_PRIVATE,
                              .userns_fd = (__u64)map};

    if (syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0)
        return errno == EINVAL || errno == EPERM ? -EOPNOTSUPP : -errno;
    return 0;
}

int shift_mount(int fd, int map, uint64_t attributes)
{
    AUTO_FD tree = (int)syscall(SYS_open_tree, fd, "",
                                AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree < 0)
        return -errno;
    int error = shift_detached(tree, map, attributes);
    return error ? error : TAKE_FD(tree);
}

/* --- Before Linux 6.15 only an attached mount can be cloned ---
 *
 * So a child attaches it in a mount namespace of its own, at a path that exists on every
 * host.  The child shares the memory and descriptors of this process, touches only its
 * `struct attach`, and has ended when this process continues. */

struct attach {
    int mount;
    const char *path;
    int tree;
    char stack[16 << 10] __attribute__((aligned(16)));
};

IN_CLONE static void clone_attached(void *cookie)
{
    struct attach *attach = cookie;

    if (unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        syscall(SYS_move_mount, attach->mount, "", AT_FDCWD, "/tmp",
                MOVE_MOUNT_F_EMPTY_PATH) != 0 ||
        chdir("/tmp") != 0)
        attach->tree = -errno;
    else
        attach->tree =
            (int)syscall(SYS_open_tree, AT_FDCWD, attach->path,
                         AT_SYMLINK_NOFOLLOW | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (attach->tree == -1)
        attach->tree = -errno;
    _exit(0);
}

int shift_mount_below(int mount, const char *path, int map, uint64_t attributes)
{
    struct attach attach = {.mount = mount, .path = path, .tree = -EIO};
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_FILES,
        .stack = (__u64)(uintptr_t)attach.stack,
        .stack_size = sizeof attach.stack,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = clone_run(&args, clone_attached, &attach);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return (int)pid;
    while (waitpid((pid_t)pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        continue;
    AUTO_FD tree = attach.tree;
    int error = tree < 0 ? tree : shift_detached(tree, map, attributes);
    return error ? error : TAKE_FD(tree);
}
