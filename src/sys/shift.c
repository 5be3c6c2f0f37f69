/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/shift.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
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
    int wait, release; /* ends of a pipe; the other process has them too */
    char stack[4096] __attribute__((aligned(16)));
};

IN_CLONE static void keep(void *cookie)
{
    const struct keeper *keeper = cookie;
    char byte;

    /* So that the child sees the end of the parent, however it ends. */
    (void)raw_call(SYS_close, keeper->release, 0, 0, 0, 0);
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
    keeper.release = release;
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

int shift_mount(int fd, int map, uint64_t attributes)
{
    /* Private: mounts made on it inside must not propagate to the host. */
    struct mount_attr attr = {.attr_set = attributes | MOUNT_ATTR_IDMAP,
                              .propagation = MS_PRIVATE,
                              .userns_fd = (__u64)map};
    AUTO_FD tree = (int)syscall(SYS_open_tree, fd, "",
                                AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree < 0)
        return -errno;
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0)
        return errno == EINVAL || errno == EPERM ? -EOPNOTSUPP : -errno;
    return TAKE_FD(tree);
}
