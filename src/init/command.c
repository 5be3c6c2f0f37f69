/* SPDX-License-Identifier: Apache-2.0 */

/* The child shares our memory until it executes (CLONE_VM | CLONE_VFORK): nothing is
 * copied, whatever our size, and it tells its failure by a word in that memory.  It runs
 * on a stack of its own and may touch nothing of ours but its `struct child`. */
#include "init/command.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "sys/clone.h"

enum { STACK_SIZE = 64 << 10, HIGH_FD = 10 };

struct child {
    const struct command *command;
    const char *search; /* PATH */
    int error;
    const char *step;
};

static char stack[STACK_SIZE] __attribute__((aligned(16)));

static bool take_stdio(const int stdio[3])
{
    int high[3];

    for (int i = 0; i < 3; i++) {
        high[i] = fcntl(stdio[i], F_DUPFD, HIGH_FD);
        if (high[i] < 0)
            return false;
    }
    for (int i = 0; i < 3; i++)
        /* allow: dup2 these three are to be inherited */
        if (dup2(high[i], i) < 0)
            return false;
    return syscall(SYS_close_range, 3, ~0u, 0) == 0;
}

static bool become(const struct user *user)
{
    return setgroups(user->group_count, user->groups) == 0 &&
           setresgid(user->gid, user->gid, user->gid) == 0 &&
           setresuid(user->uid, user->uid, user->uid) == 0;
}

static bool enter(const struct command *command)
{
    const char *cwd = command->cwd;

    if (*cwd == '/')
        return chdir(cwd) == 0;
    if (chdir(command->user.home) != 0 && (*cwd || chdir("/") != 0))
        return false;
    return !*cwd || chdir(cwd) == 0;
}

/* Like execvpe(3), but the error of a file that is there wins over those that are not. */
static int execute(const struct child *child)
{
    char *const *argv = child->command->argv;
    char *const *env = child->command->env;
    const char *name = argv[0];
    int error = ENOENT;

    if (strchr(name, '/')) {
        execve(name, argv, env);
        return errno;
    }
    size_t len = strlen(name);
    for (const char *at = child->search; *name;) {
        char path[PATH_MAX];
        size_t part = strcspn(at, ":");
        if (part + len + 2 <= sizeof path) {
            memcpy(path, at, part);
            memcpy(path + part, part ? "/" : "./", part ? 1 : 2);
            memcpy(path + part + (part ? 1 : 2), name, len + 1);
            execve(path, argv, env);
            if (errno != ENOENT && errno != ENOTDIR)
                error = errno;
            if (errno == ENOEXEC || errno == E2BIG || errno == ENOMEM)
                break;
        }
        if (!at[part])
            break;
        at += part + 1;
    }
    return error;
}

static void run_child(void *cookie)
{
    struct child *child = cookie;
    sigset_t none;

    sigemptyset(&none);
    child->step = "exec.start";
    if (setsid() < 0 || !take_stdio(child->command->stdio) ||
        sigprocmask(SIG_SETMASK, &none, NULL) != 0) {
        child->error = errno;
        _exit(126);
    }
    child->step = "exec.user";
    if (!become(&child->command->user)) {
        child->error = errno;
        _exit(126);
    }
    child->step = "exec.cwd";
    if (!enter(child->command)) {
        child->error = errno;
        _exit(126);
    }
    child->step = "exec.program";
    child->error = execute(child);
    _exit(127);
}

static const char *search_path(char *const *env)
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

int command_start(const struct command *command, const struct leaf *leaf, pid_t *ret_pid,
                  int *ret_pidfd, struct cay_error *err)
{
    struct child child = {.command = command, .search = search_path(command->env)};
    struct clone_args args = {
        .flags = (__u64)(CLONE_VM | CLONE_VFORK | CLONE_PIDFD) | CLONE_INTO_CGROUP,
        .pidfd = (__u64)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
        .stack = (__u64)(uintptr_t)stack,
        .stack_size = sizeof stack,
        .cgroup = (__u64)leaf->fd,
    };

    *ret_pidfd = -1;
    long pid = clone_run(&args, run_child, &child);
    if (pid < 0)
        return cay_fail_errno(err, (int)-pid, "exec.clone", command->argv[0]);
    *ret_pid = (pid_t)pid;
    if (!child.error)
        return CAY_OK;
    return cay_fail(err, CAY_E_EXEC_FAILED, child.error, child.step,
                    strcmp(child.step, "exec.cwd") == 0 ? command->cwd : command->argv[0],
                    cay_errno_words(child.error),
                    "see that the file is there and may be executed by user %s",
                    command->user.name);
}
