/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"
#include "sys/landlock.h"

static const int allowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(sched_yield),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getrandom), /* malloc(3) draws a key */
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack), /* the address sanitizer's way out */
    SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/* The third argument of both calls is the protection. */
static const int allowed_unless_executable[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};

/* Leaves the calling thread what a pure computation needs: its open descriptors, memory
 * that cannot be executed, the clock, and exit.  Every other call fails with EPERM, and
 * one by another architecture's numbers kills.  Needs no_new_privs.  0 or a negative
 * errno. */
static int allow_computation(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));

    if (!filter)
        return -ENOMEM;
    int error = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    for (size_t i = 0; !error && i < sizeof allowed / sizeof *allowed; i++)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    for (size_t i = 0; !error && i < 2; i++)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed_unless_executable[i], 1,
                                 SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (!error)
        error = seccomp_load(filter);
    seccomp_release(filter);
    return error;
}

/* Theory of operation.
 *
 * The child is created by fork(3), not by a bare clone(2): the host program may have
 * threads, one of them inside malloc, and only the C library's fork gives the child a
 * working allocator.  The price is that the host program sees one SIGCHLD.  A host
 * program that reaps every child or ignores SIGCHLD does no harm: the parent waits by
 * pidfd, ECHILD only means that the child was already reaped, and the outcome is sent
 * over the channel, not as the exit status.
 *
 * The child waits for one byte first, so that its pid cannot be reused before the pidfd
 * is open.  Its first message is a struct cay_error: CAY_OK once every layer is in place.
 * No input is read before that.  Landlock is a second layer behind seccomp, so a kernel
 * without it is accepted; a failing seccomp is not. */

static int limit(int resource, rlim_t value)
{
    struct rlimit bounds = {value, value};

    return syscall(SYS_prlimit64, 0, resource, &bounds, NULL) == 0 ? 0 : -errno;
}

/* The address sanitizer maps terabytes of shadow memory on demand. */
#if defined(__SANITIZE_ADDRESS__)
#define LIMIT_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LIMIT_MEMORY 0
#endif
#endif
#ifndef LIMIT_MEMORY
#define LIMIT_MEMORY 1
#endif

static int limit_memory(uint64_t more)
{
    char text[64];

    if (!LIMIT_MEMORY)
        return 0;
    ssize_t len = io_read_text(AT_FDCWD, "/proc/self/statm", text, sizeof text);
    if (len <= 0)
        return len < 0 ? (int)len : -EIO;
    rlim_t pages = strtoul(text, NULL, 10);
    return limit(RLIMIT_AS, pages * (unsigned long)sysconf(_SC_PAGESIZE) + more);
}

/* Leaves exactly the two descriptors open, at their fixed numbers; without an input the
 * one. */
static bool arrange_descriptors(int channel, int input)
{
    int last = input < 0 ? WORKER_CHANNEL : WORKER_INPUT;
    int high_channel = fcntl(channel, F_DUPFD_CLOEXEC, WORKER_INPUT + 1);
    int high_input = input < 0 ? -1 : fcntl(input, F_DUPFD_CLOEXEC, WORKER_INPUT + 1);

    return high_channel >= 0 && dup3(high_channel, WORKER_CHANNEL, O_CLOEXEC) >= 0 &&
           (input < 0 ||
            (high_input >= 0 && dup3(high_input, WORKER_INPUT, O_CLOEXEC) >= 0)) &&
           syscall(SYS_close_range, last + 1, ~0u, 0) == 0 &&
           syscall(SYS_close_range, 0, WORKER_CHANNEL - 1, 0) == 0;
}

static int confine(const struct worker_job *job, const char **ret_step)
{
    *ret_step = "prctl";
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -errno;
    *ret_step = "setrlimit";
    int error = limit_memory(job->memory);
    if (!error)
        error = limit(RLIMIT_CPU, job->cpu_seconds);
    if (!error)
        error = limit(RLIMIT_CORE, 0);
    if (!error)
        error = limit(RLIMIT_FSIZE, 0);
    if (error)
        return error;
    *ret_step = "landlock";
    error = landlock_deny_all();
    if (error && error != -ENOSYS && error != -EOPNOTSUPP)
        return error;
    *ret_step = "setrlimit";
    error = limit(RLIMIT_NOFILE, 0); /* landlock's own descriptor was the last */
    if (error)
        return error;
    *ret_step = "seccomp";
    return allow_computation();
}

static _Noreturn void be_the_child(const char *op, const struct worker_job *job,
                                   pid_t parent, int channel)
{
    struct cay_error report;
    const char *step;
    char go;

    memset(&report, 0, sizeof report);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != parent)
        _exit(1);
    if (!arrange_descriptors(channel, job->input) || read(WORKER_CHANNEL, &go, 1) != 1)
        _exit(1);
    int error = confine(job, &step);
    if (error)
        cay_fail(&report, CAY_E_UNAVAILABLE, -error, op, step,
                 "the worker process cannot be confined",
                 "allow the system call %s to this program, for example in its "
                 "container's seccomp profile",
                 step);
    if (write(WORKER_CHANNEL, &report, sizeof report) != sizeof report || error)
        _exit(1);
    job->run(job->cookie);
    _exit(0);
}

/* With all signals blocked: a signal handler of the host program must not run in the
 * child, and signals to the process group (SIGINT) are for the parent. */
static pid_t fork_child(const char *op, const struct worker_job *job, int channel)
{
    sigset_t all, before;
    pid_t parent = getpid();

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork(); /* allow: fork (this file is where the library forks) */
    int error = errno;
    if (pid == 0)
        be_the_child(op, job, parent, channel);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return pid;
}

static int wait_until_confined(const char *op, const struct worker *worker,
                               struct cay_error *err)
{
    struct cay_error report;
    ssize_t len;

    do
        len = read(worker->channel, &report, sizeof report);
    while (len < 0 && errno == EINTR);
    if (len != sizeof report)
        return cay_fail(err, CAY_E_KILLED, 0, op, NULL,
                        "the worker process died at its start",
                        "check the kernel log for the cause, then try again");
    if (report.code != CAY_OK && err)
        *err = report;
    return report.code;
}

int worker_start(const char *op, const struct worker_job *job, struct worker *ret_worker,
                 struct cay_error *err)
{
    int ends[2];

    *ret_worker = (struct worker)WORKER_NONE;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cay_fail_errno(err, errno, op, NULL);
    AUTO_FD theirs = ends[1];
    ret_worker->channel = ends[0];

    ret_worker->pid = fork_child(op, job, theirs);
    int error = errno;
    if (ret_worker->pid > 0) {
        ret_worker->pidfd = (int)syscall(SYS_pidfd_open, ret_worker->pid, 0);
        error = errno;
    }
    if (ret_worker->pidfd < 0) {
        worker_end(ret_worker);
        return cay_fail(err, CAY_E_UNAVAILABLE, error, op, NULL,
                        "cannot start a worker process",
                        "raise the limit on processes (ulimit -u), or end some");
    }
    (void)close(TAKE_FD(theirs));
    /* EPIPE: the child is dead; the wait reports it. */
    bool told = send(ret_worker->channel, "", 1, MSG_NOSIGNAL) == 1 || errno == EPIPE;
    int code = told ? wait_until_confined(op, ret_worker, err)
                    : cay_fail_errno(err, errno, op, NULL);
    if (code)
        worker_end(ret_worker);
    return code;
}

void worker_end(struct worker *worker)
{
    siginfo_t info;

    if (worker->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, worker->pidfd, SIGKILL, NULL, 0);
        while (waitid(P_PIDFD, (id_t)worker->pidfd, &info, WEXITED) != 0 &&
               errno == EINTR)
            continue;
        (void)close(worker->pidfd);
    } else if (worker->pid > 0) { /* still waiting for its byte, so the pid is its own */
        (void)kill(worker->pid, SIGKILL);
        while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    auto_close(&worker->channel);
    *worker = (struct worker)WORKER_NONE;
}
