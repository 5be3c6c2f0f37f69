/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/probe.h"

#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"

enum { KILLED = 255 };

static int be_root(void)
{
    if (syscall(SYS_setresgid, 0, 0, 0) != 0 || syscall(SYS_setresuid, 0, 0, 0) != 0)
        return errno;
    return 0;
}

static _Noreturn void be_the_child(const struct trial *trial, const int gate[2])
{
    char go;

    (void)close(gate[1]);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || read(gate[0], &go, 1) != 1)
        _exit(KILLED);
    int error = trial->namespaces & CLONE_NEWUSER ? be_root() : 0;
    if (!error && trial->inside)
        error = trial->inside();
    _exit(error);
}

/* A handler of the host's must not run in the child, nor SIGCHLD tell the host of it. */
static long clone_child(const struct trial *trial, const int gate[2], int *ret_pidfd)
{
    struct clone_args args = {
        .flags = trial->namespaces | (__u64)CLONE_PIDFD |
                 (trial->cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (__u64)(uintptr_t)ret_pidfd,
        .cgroup = trial->cgroup >= 0 ? (__u64)trial->cgroup : 0,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = syscall(SYS_clone3, &args, sizeof args);
    int error = errno;
    if (pid == 0)
        be_the_child(trial, gate);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return pid;
}

static struct trial_outcome prepare(const struct trial *trial, pid_t pid)
{
    if (trial->namespaces & CLONE_NEWUSER) {
        struct idmap one;
        idmap_for_trial(&one);
        int error = idmap_write(trial->map ? trial->map : &one, pid);
        if (error)
            return (struct trial_outcome){TRIAL_MAP, -error};
    }
    int error = trial->outside ? trial->outside(pid) : 0;
    return (struct trial_outcome){error ? TRIAL_OUTSIDE : TRIAL_FINE, error};
}

static struct trial_outcome reap(int pidfd)
{
    siginfo_t info = {0};

    while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | __WALL) != 0 && errno == EINTR)
        continue;
    if (info.si_code != CLD_EXITED || info.si_status == KILLED)
        return (struct trial_outcome){TRIAL_INSIDE, 0};
    return (struct trial_outcome){info.si_status ? TRIAL_INSIDE : TRIAL_FINE,
                                  info.si_status};
}

struct trial_outcome trial_run(const struct trial *trial)
{
    int gate[2], pidfd = -1;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, gate) != 0)
        return (struct trial_outcome){TRIAL_CLONE, errno};
    AUTO_FD theirs = gate[0];
    AUTO_FD ours = gate[1];
    long pid = clone_child(trial, gate, &pidfd);
    if (pid < 0)
        return (struct trial_outcome){TRIAL_CLONE, errno};
    AUTO_FD held = pidfd;
    (void)close(TAKE_FD(theirs));
    struct trial_outcome outcome = prepare(trial, (pid_t)pid);
    if (outcome.step == TRIAL_FINE && send(ours, "", 1, MSG_NOSIGNAL) != 1)
        outcome = (struct trial_outcome){TRIAL_INSIDE, 0};
    (void)close(TAKE_FD(ours)); /* without the byte it ends by itself */
    struct trial_outcome end = reap(held);
    return outcome.step == TRIAL_FINE ? end : outcome;
}

int trial_mount(const char *type, const char *options)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(type, TRIAL_PLACE, type, MS_NOSUID, options) != 0)
        return errno;
    return 0;
}

static int try_proc(void)
{
    return trial_mount("proc", NULL);
}

bool trial_own_root(void)
{
    const struct trial trial = {.namespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID,
                                .cgroup = -1,
                                .inside = try_proc};

    return trial_run(&trial).step == TRIAL_FINE;
}
