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

static _Noreturn void run_child(const struct probe *probe, const int gate[2])
{
    char go;

    (void)close(gate[1]);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || read(gate[0], &go, 1) != 1)
        _exit(KILLED);
    int error = 0;
    if (probe->namespaces & CLONE_NEWUSER &&
        (syscall(SYS_setresgid, 0, 0, 0) != 0 || syscall(SYS_setresuid, 0, 0, 0) != 0))
        error = errno;
    if (!error && probe->inside)
        error = probe->inside();
    _exit(error);
}

/* Signal handlers of the host program must not run in the child, and no SIGCHLD must
 * reach it. */
static long clone_child(const struct probe *probe, const int gate[2], int *ret_pidfd)
{
    struct clone_args args = {
        .flags = probe->namespaces | (__u64)CLONE_PIDFD |
                 (probe->cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (__u64)(uintptr_t)ret_pidfd,
        .cgroup = probe->cgroup >= 0 ? (__u64)probe->cgroup : 0,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = syscall(SYS_clone3, &args, sizeof args);
    int error = errno;
    if (pid == 0)
        run_child(probe, gate);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return pid;
}

static struct probe_result prepare(const struct probe *probe, pid_t pid)
{
    if (probe->namespaces & CLONE_NEWUSER) {
        struct idmap one;
        idmap_for_probe(&one);
        int error = idmap_write(probe->map ? probe->map : &one, pid);
        if (error)
            return (struct probe_result){PROBE_MAP, -error};
    }
    int error = probe->outside ? probe->outside(pid) : 0;
    return (struct probe_result){error ? PROBE_OUTSIDE : PROBE_OK, error};
}

static struct probe_result reap(int pidfd)
{
    siginfo_t info = {0};

    while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | __WALL) != 0 && errno == EINTR)
        continue;
    if (info.si_code != CLD_EXITED || info.si_status == KILLED)
        return (struct probe_result){PROBE_INSIDE, 0};
    return (struct probe_result){info.si_status ? PROBE_INSIDE : PROBE_OK,
                                 info.si_status};
}

struct probe_result probe_run(const struct probe *probe)
{
    int gate[2], pidfd = -1;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, gate) != 0)
        return (struct probe_result){PROBE_CLONE, errno};
    AUTO_FD theirs = gate[0];
    AUTO_FD ours = gate[1];
    long pid = clone_child(probe, gate, &pidfd);
    if (pid < 0)
        return (struct probe_result){PROBE_CLONE, errno};
    AUTO_FD held = pidfd;
    (void)close(TAKE_FD(theirs));
    struct probe_result outcome = prepare(probe, (pid_t)pid);
    if (outcome.step == PROBE_OK && send(ours, "", 1, MSG_NOSIGNAL) != 1)
        outcome = (struct probe_result){PROBE_INSIDE, 0};
    (void)close(TAKE_FD(ours)); /* without the byte the child ends by itself */
    struct probe_result end = reap(held);
    return outcome.step == PROBE_OK ? end : outcome;
}

int probe_mount(const char *type, const char *options)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(type, PROBE_DIR, type, MS_NOSUID, options) != 0)
        return errno;
    return 0;
}

static int try_proc(void)
{
    return probe_mount("proc", NULL);
}

bool probe_own_root(void)
{
    const struct probe probe = {.namespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID,
                                .cgroup = -1,
                                .inside = try_proc};

    return probe_run(&probe).step == PROBE_OK;
}
