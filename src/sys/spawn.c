/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/clone.h"
#include "sys/raw.h"

enum { STACK_SIZE = 8192, SIGNALS = 64, SET_SIZE = SIGNALS / 8 };

/* The child shares the memory with its parent, which waits until it executes. */
struct child {
    const struct spawn *spawn;
    int null;
    long error;
    char stack[STACK_SIZE] __attribute__((aligned(16)));
};

IN_CLONE static long take_streams(const struct child *child)
{
    long high[3], error = 0;

    /* A stream may have the number of another one. */
    for (int i = 0; i < 3; i++) {
        int fd = child->spawn->streams[i] < 0 ? child->null : child->spawn->streams[i];
        high[i] = raw_call(SYS_fcntl, fd, F_DUPFD, 3, 0, 0);
    }
    for (int i = 0; i < 3 && error >= 0; i++)
        error = high[i] < 0 ? high[i] : raw_call(SYS_dup3, high[i], i, 0, 0, 0);
    return error < 0 ? error : raw_call(SYS_close_range, 3, UINT_MAX, 0, 0, 0);
}

IN_CLONE static void run(void *cookie)
{
    struct child *child = cookie;
    const struct spawn *spawn = child->spawn;
    const long by_default[4] = {0}, none = 0;

    /* Before they are unblocked: a handler would run in the memory of the parent. */
    for (int i = 1; i <= SIGNALS; i++)
        (void)raw_call(SYS_rt_sigaction, i, (long)by_default, 0, SET_SIZE, 0);
    if (spawn->dir >= 0)
        child->error = raw_call(SYS_fchdir, spawn->dir, 0, 0, 0, 0);
    if (!child->error)
        child->error = take_streams(child);
    if (!child->error)
        child->error =
            raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, SET_SIZE, 0);
    if (!child->error)
        child->error = raw_call(SYS_execve, (long)spawn->program, (long)spawn->argv,
                                (long)spawn->env, 0, 0);
    (void)raw_call(SYS_exit_group, 127, 0, 0, 0, 0);
}

int spawn_program(const struct spawn *spawn, pid_t *ret_pid)
{
    struct child child = {.spawn = spawn};
    sigset_t all, before;

    AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return -errno;
    child.null = null;
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK,
        .exit_signal = SIGCHLD,
        .stack = (__u64)(uintptr_t)child.stack,
        .stack_size = sizeof child.stack,
    };
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = clone_run(&args, run, &child);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return (int)pid;
    if (child.error) {
        while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        return (int)child.error;
    }
    *ret_pid = (pid_t)pid;
    return 0;
}
