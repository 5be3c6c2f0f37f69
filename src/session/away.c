/* SPDX-License-Identifier: Apache-2.0 */
#include "session/away.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

/* As in sys/worker.c: fork(3) gives the child a working allocator, the child waits for a
 * byte until the parent has its pidfd, and the outcome is sent over the channel, not as
 * the exit status, so that a host program that reaps every child does no harm. */

enum { LIFE_S = 600 };

/* Another thread may have held a lock during the fork: the alarm ends a child that waits
 * for it.  A signal handler of the host program must not run here. */
static void set_alarm(void)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t only;

    (void)sigaction(SIGALRM, &by_default, NULL); /* allow: sigaction (in our own child) */
    sigemptyset(&only);
    sigaddset(&only, SIGALRM);
    (void)alarm(LIFE_S);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
}

static _Noreturn void be_the_child(void (*run)(void *cookie, struct away_outcome *),
                                   void *cookie, const int ends[2])
{
    struct away_outcome outcome;
    int channel = ends[1];
    char go;

    (void)close(ends[0]); /* otherwise the death of the parent goes unnoticed */
    (void)setpgid(0, 0);  /* SIGINT is for the parent */
    set_alarm();
    if (read(channel, &go, 1) != 1)
        _exit(1);
    memset(&outcome, 0, sizeof outcome);
    run(cookie, &outcome);
    (void)!send(channel, &outcome, sizeof outcome, MSG_NOSIGNAL);
    _exit(0);
}

static pid_t fork_child(void (*run)(void *cookie, struct away_outcome *), void *cookie,
                        const int ends[2])
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork(); /* allow: fork (the child runs on without its parent) */
    int error = errno;
    if (pid == 0)
        be_the_child(run, cookie, ends);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return pid;
}

int away_start(const char *op,
               void (*run)(void *cookie, struct away_outcome *ret_outcome), void *cookie,
               struct away *ret_away, struct cay_error *err)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cay_fail_errno(err, errno, op, NULL);
    AUTO_FD ours = ends[0];
    AUTO_FD theirs = ends[1];
    pid_t pid = fork_child(run, cookie, ends);
    AUTO_FD pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        int error = errno;
        if (pid > 0) { /* it hears nothing and ends */
            (void)close(TAKE_FD(ours));
            (void)close(TAKE_FD(theirs));
            (void)waitpid(pid, NULL, 0);
        }
        return cay_fail(err, CAY_E_UNAVAILABLE, error, op, NULL,
                        "cannot start a background process",
                        "raise the limit on processes (ulimit -u), or end some");
    }
    (void)!send(ours, "", 1, MSG_NOSIGNAL);
    *ret_away = (struct away){pid, TAKE_FD(pidfd), TAKE_FD(ours)};
    return CAY_OK;
}

bool away_has_ended(const struct away *away)
{
    struct pollfd news = {.fd = away->channel, .events = POLLIN};

    return poll(&news, 1, 0) > 0;
}

void away_wait(struct away *away, const char *op, struct away_outcome *ret_outcome)
{
    siginfo_t info;
    ssize_t len;

    do
        len = read(away->channel, ret_outcome, sizeof *ret_outcome);
    while (len < 0 && errno == EINTR);
    if (len != sizeof *ret_outcome) {
        memset(ret_outcome, 0, sizeof *ret_outcome);
        cay_fail(&ret_outcome->error, CAY_E_KILLED, 0, op, NULL,
                 "the background process was killed",
                 "check the kernel log for the cause, then try again");
    }
    while (waitid(P_PIDFD, (id_t)away->pidfd, &info, WEXITED) != 0 && errno == EINTR)
        continue;
    (void)close(away->pidfd);
    (void)close(away->channel);
    *away = (struct away)AWAY_NONE;
}
