/* SPDX-License-Identifier: Apache-2.0 */

/* One thread, one epoll.  Each connection is a peer and runs at most one command.  A
 * command is over when its first process has ended; if it was killed, when its whole leaf
 * is empty, so that nothing of it is left when its caller hears of it.  Orphans become
 * our children, so every death inside wakes us by SIGCHLD and the leaf is looked at
 * again. */
#include "init/serve.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/command.h"
#include "init/file.h"
#include "init/packet.h"
#include "init/report.h"
#include "init/request.h"

enum { PEERS_MAX = 1024, EVENTS = 32 };

/* enum cay_cause of sandbox.h; its numbers are the wire's. */
enum { CAUSE_EXITED = 1, CAUSE_SIGNALLED = 2, CAUSE_TIMEOUT = 3, CAUSE_NOT_STARTED = 7 };

struct peer {
    int fd;
    bool gone;
    pid_t pid; /* of its command; 0 if none runs */
    struct leaf leaf;
    bool ended, killed, timed_out;
    uint64_t started_ns, deadline_ns;
    struct exec_end end;
    struct file_user *file_user;
};

static struct peer *peers[PEERS_MAX];
static size_t peer_count;
static int epoll_fd, signal_fd;
static unsigned next_leaf;
static struct leaf spare = LEAF_NONE; /* an empty leaf that was never killed */
static struct packet packet;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void watch(int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};

    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        report_failure(errno, "init.serve", "epoll");
}

/* --- Leaves --- */

static int take_leaf(struct leaf *ret_leaf)
{
    if (spare.fd >= 0) {
        *ret_leaf = spare;
        spare = (struct leaf)LEAF_NONE;
        return 0;
    }
    return leaf_open(next_leaf++, ret_leaf);
}

/* A killed leaf kills whatever is put into it later; one with background children in it
 * is theirs. */
static void give_leaf_back(struct peer *peer)
{
    if (!peer->killed && spare.fd < 0 && leaf_is_empty(&peer->leaf))
        spare = peer->leaf;
    else
        leaf_close(&peer->leaf);
    peer->leaf = (struct leaf)LEAF_NONE;
}

/* --- Peers --- */

static void forget(struct peer *peer)
{
    for (size_t i = 0; i < peer_count; i++)
        if (peers[i] == peer) {
            peers[i] = peers[--peer_count];
            break;
        }
    if (peer->fd >= 0)
        (void)close(peer->fd);
    free(peer->file_user);
    free(peer);
}

static void tell(struct peer *peer, unsigned kind, const void *payload, size_t len)
{
    if (!peer->gone && packet_send(peer->fd, kind, payload, len, NULL, 0) != 0)
        peer->gone = true;
}

static void kill_command(struct peer *peer)
{
    if (peer->pid && !peer->killed) {
        peer->killed = true;
        (void)leaf_kill(&peer->leaf);
    }
}

static void lose(struct peer *peer)
{
    peer->gone = true;
    (void)close(peer->fd);
    peer->fd = -1;
    if (peer->pid)
        kill_command(peer);
    else
        forget(peer);
}

/* The command is over for its caller. */
static void finish(struct peer *peer)
{
    peer->end.cause = peer->timed_out                 ? CAUSE_TIMEOUT
                      : WIFSIGNALED(peer->end.status) ? CAUSE_SIGNALLED
                                                      : CAUSE_EXITED;
    peer->end.wall_us = (now_ns() - peer->started_ns) / 1000;
    give_leaf_back(peer);
    tell(peer, MESSAGE_ENDED, &peer->end, sizeof peer->end);
    peer->pid = 0;
    peer->ended = peer->killed = peer->timed_out = false;
    peer->deadline_ns = 0;
    if (peer->gone)
        forget(peer);
}

static void finish_those_done(void)
{
    for (size_t i = peer_count; i-- > 0;) {
        struct peer *peer = peers[i];
        if (peer->pid && peer->ended && (!peer->killed || leaf_is_empty(&peer->leaf)))
            finish(peer);
    }
}

/* --- Requests --- */

static void start(struct peer *peer, const struct request *request)
{
    struct cay_error error = {0};
    int pidfd = -1;
    int code = take_leaf(&peer->leaf);

    if (code) {
        cay_fail_errno(&error, -code, "exec.cgroup", request->command.argv[0]);
        tell(peer, MESSAGE_FAILED, &error, sizeof error);
        return;
    }
    peer->started_ns = now_ns();
    code = command_start(&request->command, &peer->leaf, &peer->pid, &pidfd, &error);
    if (code) {
        if (code == CAY_E_EXEC_FAILED)
            while (waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR)
                continue;
        peer->pid = 0;
        give_leaf_back(peer);
        tell(peer, MESSAGE_FAILED, &error, sizeof error);
    } else {
        peer->end = (struct exec_end){0};
        if (request->timeout_ms)
            peer->deadline_ns = peer->started_ns + request->timeout_ms * 1000000u;
        if (packet_send(peer->fd, MESSAGE_STARTED, NULL, 0, &pidfd, 1) != 0)
            peer->gone = true;
    }
    if (pidfd >= 0)
        (void)close(pidfd);
}

static void execute(struct peer *peer)
{
    struct request request;
    struct cay_error error = {0};
    int code = request_parse(&packet, &request, &error);

    if (code)
        tell(peer, MESSAGE_FAILED, &error, sizeof error);
    else
        start(peer, &request);
    request_done(&request);
}

/* False if the peer broke the rules. */
static bool answer(struct peer *peer)
{
    switch (packet.head.kind) {
    case MESSAGE_EXEC:
        if (peer->pid)
            return false;
        execute(peer);
        return true;
    case MESSAGE_KILL:
        kill_command(peer);
        return packet.head.fd_count == 0;
    case MESSAGE_FILES:
    case MESSAGE_FILE:
        return file_answer(peer->fd, &packet, &peer->file_user);
    case MESSAGE_PING:
        tell(peer, MESSAGE_PONG, NULL, 0);
        return packet.head.fd_count == 0;
    default:
        return false;
    }
}

static void listen_to(struct peer *peer)
{
    int got = packet_receive(peer->fd, &packet);

    if (got == -EAGAIN)
        return;
    bool fine = got == 1 && answer(peer);
    if (got == 1)
        packet_close_fds(&packet);
    if (!fine || peer->gone)
        lose(peer);
}

/* Only from outside: there every pid is 0 to us.  Who may reach the socket at all is the
 * business of the directory it lies in. */
static void welcome(void)
{
    struct ucred who;
    socklen_t len = sizeof who;
    int fd = accept4(LISTEN_FD, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    struct peer *peer = peer_count < PEERS_MAX ? calloc(1, sizeof *peer) : NULL;
    if (!peer || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 ||
        who.pid != 0) {
        free(peer);
        (void)close(fd);
        return;
    }
    *peer = (struct peer){.fd = fd, .leaf = LEAF_NONE};
    peers[peer_count++] = peer;
    watch(fd, peer);
}

/* --- Deaths and deadlines --- */

static uint64_t microseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

static void reap(void)
{
    struct signalfd_siginfo ignored;
    struct rusage used;
    int status;
    pid_t pid;

    while (read(signal_fd, &ignored, sizeof ignored) > 0)
        continue;
    while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0)
        for (size_t i = 0; i < peer_count; i++) {
            struct peer *peer = peers[i];
            if (peer->pid != pid || peer->ended)
                continue;
            peer->ended = true;
            peer->end.status = status;
            peer->end.user_us = microseconds(used.ru_utime);
            peer->end.system_us = microseconds(used.ru_stime);
            peer->end.peak_memory = (uint64_t)used.ru_maxrss * 1024;
            break;
        }
}

static int time_left_ms(void)
{
    uint64_t soonest = UINT64_MAX, now = now_ns();

    for (size_t i = 0; i < peer_count; i++)
        if (peers[i]->pid && peers[i]->deadline_ns && !peers[i]->killed &&
            peers[i]->deadline_ns < soonest)
            soonest = peers[i]->deadline_ns;
    if (soonest == UINT64_MAX)
        return -1;
    uint64_t left = soonest > now ? (soonest - now + 999999) / 1000000 : 0;
    return left > INT_MAX ? INT_MAX : (int)left;
}

static void kill_the_late(void)
{
    uint64_t now = now_ns();

    for (size_t i = 0; i < peer_count; i++) {
        struct peer *peer = peers[i];
        if (peer->pid && peer->deadline_ns && peer->deadline_ns <= now && !peer->ended &&
            !peer->killed) {
            peer->timed_out = true;
            kill_command(peer);
        }
    }
}

static void prepare(const struct plan *plan)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (signal_fd < 0 || epoll_fd < 0)
        report_failure(errno, "init.serve", "epoll");
    watch(LISTEN_FD, (void *)&epoll_fd);
    watch(signal_fd, (void *)&signal_fd);
    report_ready();
    if (plan->ephemeral)
        watch(STATUS_FD, NULL);
    else
        (void)close(STATUS_FD);
}

_Noreturn void serve(const struct plan *plan)
{
    prepare(plan);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll_fd, events, EVENTS, time_left_ms());

        for (int i = 0; i < count; i++) {
            void *what = events[i].data.ptr;
            if (!what) /* our maker is gone, and we were to go with it */
                _exit(0);
            else if (what == &epoll_fd)
                welcome();
            else if (what == &signal_fd)
                reap();
            else
                listen_to(what);
        }
        kill_the_late();
        finish_those_done();
    }
}
