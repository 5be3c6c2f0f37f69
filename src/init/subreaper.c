/* SPDX-License-Identifier: Apache-2.0 */
#include "init/subreaper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/descendants.h"
#include "init/process.h"
#include "init/serve.h"

enum { SUBREAPERS_MAX = 1024, CHANNEL = 3, CLONE_MS = 5000 };

/* What a subreaper sends, in this order. */
enum { NOTICE_CLONED = 1, NOTICE_EXECUTED = 2, NOTICE_ENDED = 3 };

struct notice {
    uint32_t kind;
    int32_t pid;    /* CLONED: the command's pid, or a negative errno */
    int32_t error;  /* EXECUTED: child->error */
    int32_t status; /* ENDED */
    char step[16];  /* EXECUTED: child->step */
    struct rusage used;
};

struct subreaper {
    struct source source;
    int channel;
    pid_t pid;     /* 0: it has exited */
    pid_t command; /* 0: its end was reported */
    struct child *child;
    bool failed; /* it could not be started */
    char step[16];
};

static struct subreaper *subreapers[SUBREAPERS_MAX];
static size_t subreaper_count;
static bool has_orphans; /* PID 1 may have inherited a subreaper's processes */

static bool is_subreaper(pid_t pid)
{
    for (size_t i = 0; i < subreaper_count; i++)
        if (subreapers[i]->pid == pid)
            return true;
    return false;
}

static size_t count_subreapers(void)
{
    size_t found = 0;

    for (size_t i = 0; i < subreaper_count; i++)
        found += subreapers[i]->pid != 0;
    return found;
}

static bool has_subreapers(void)
{
    return count_subreapers() > 0;
}

/* --- The subreaper process --- */

static void send_notice(const struct notice *notice)
{
    (void)!send(CHANNEL, notice, sizeof *notice, MSG_NOSIGNAL);
}

/* Reaps, and reports the end of the command; exits after the last child. */
static void reap(pid_t command, bool wait)
{
    struct notice notice = {.kind = NOTICE_ENDED, .pid = command};

    for (;;) {
        pid_t pid =
            wait4(-1, &notice.status, __WALL | (wait ? 0 : WNOHANG), &notice.used);
        if (pid < 0 && errno == ECHILD)
            _exit(0);
        if (pid <= 0)
            return;
        wait = false;
        if (pid == command)
            send_notice(&notice);
    }
}

/* The channel only ever reports end of file: PID 1 is gone, and the tree must end.  In a
 * PID namespace the kernel kills it, once PID 1, which is still exiting, gets the
 * processor; hundreds of subreapers scanning /proc would keep it from that, so they
 * pause. */
static _Noreturn void supervise(pid_t command, bool has_namespace)
{
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    int deaths = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    for (;;) {
        struct signalfd_siginfo ignored;
        struct pollfd fds[] = {{.fd = CHANNEL, .events = POLLIN},
                               {.fd = deaths, .events = POLLIN}};
        reap(command, false);
        if (poll(fds, 2, -1) < 0)
            continue;
        while (read(deaths, &ignored, sizeof ignored) > 0)
            continue;
        if (fds[0].revents)
            break;
    }
    for (;;) {
        if (has_namespace) {
            (void)pause();
            continue;
        }
        (void)descendants_kill(is_subreaper, has_subreapers());
        reap(command, true);
    }
}

/* Closes every descriptor but the channel, above all the command's pipes. */
static void close_all_but(int channel)
{
    if ((channel != CHANNEL && dup3(channel, CHANNEL, O_CLOEXEC) < 0) ||
        syscall(SYS_close_range, CHANNEL + 1, ~0u, 0) != 0)
        _exit(1);
}

static _Noreturn void run_subreaper(struct child *child, int channel, bool has_namespace)
{
    struct notice notice = {.kind = NOTICE_CLONED};

    subreaper_count = 0;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        _exit(1);
    notice.pid = child_start(child, NULL);
    /* A child that has not executed yet has its own copy of the descriptors. */
    close_all_but(channel);
    send_notice(&notice);
    if (notice.pid < 0)
        _exit(1);
    while (!child_is_done(child))
        child_wait(child);
    notice.kind = NOTICE_EXECUTED;
    notice.error = child->error;
    snprintf(notice.step, sizeof notice.step, "%s", child->step);
    send_notice(&notice);
    supervise(notice.pid, has_namespace);
}

/* --- PID 1's side: notices --- */

static void handle_notice(struct subreaper *subreaper, const struct notice *notice)
{
    if (notice->kind == NOTICE_EXECUTED && subreaper->child) {
        memcpy(subreaper->step, notice->step, sizeof subreaper->step);
        subreaper->child->error = notice->error;
        subreaper->child->step = subreaper->step;
        subreaper->child->alive = 0;
        subreaper->child = NULL;
    } else if (notice->kind == NOTICE_ENDED && subreaper->command) {
        pid_t command = subreaper->command;
        subreaper->command = 0;
        process_reaped(command, notice->status, &notice->used);
    }
}

static bool read_notice(struct subreaper *subreaper)
{
    struct notice notice;

    if (recv(subreaper->channel, &notice, sizeof notice, MSG_DONTWAIT) != sizeof notice)
        return false;
    handle_notice(subreaper, &notice);
    return true;
}

/* A socket whose peer is gone is always readable: stop watching it. */
static void on_notice(struct source *source)
{
    struct subreaper *subreaper = (struct subreaper *)source;

    while (read_notice(subreaper))
        continue;
    if (!subreaper->pid)
        serve_forget(subreaper->channel);
}

/* --- PID 1's side --- */

static struct subreaper *find(const struct exec_cgroup *cgroup)
{
    for (size_t i = 0; i < subreaper_count; i++)
        if (subreapers[i]->channel == cgroup->fd)
            return subreapers[i];
    return NULL;
}

int subreaper_open(struct exec_cgroup *ret_cgroup)
{
    int ends[2];

    *ret_cgroup = (struct exec_cgroup)EXEC_CGROUP_NONE;
    if (subreaper_count == SUBREAPERS_MAX)
        return -EAGAIN;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return -errno;
    *ret_cgroup =
        (struct exec_cgroup){.fd = ends[0], .events = ends[1], .has_subreaper = true};
    return 0;
}

void subreaper_close(struct exec_cgroup *cgroup)
{
    for (size_t i = 0; i < subreaper_count; i++)
        if (subreapers[i]->channel == cgroup->fd) {
            free(subreapers[i]);
            subreapers[i] = subreapers[--subreaper_count];
            break;
        }
    if (cgroup->events >= 0)
        (void)close(cgroup->events);
    if (cgroup->fd >= 0) /* a child before execve may still have a copy */
        serve_close(cgroup->fd);
    cgroup->fd = cgroup->events = -1;
}

/* The pid of its command, or a negative errno. */
static pid_t await_clone(struct subreaper *subreaper)
{
    struct pollfd waiting = {.fd = subreaper->channel, .events = POLLIN};
    struct notice notice;

    if (poll(&waiting, 1, CLONE_MS) <= 0 ||
        recv(subreaper->channel, &notice, sizeof notice, MSG_DONTWAIT) != sizeof notice)
        return -EIO;
    return notice.pid;
}

pid_t subreaper_start(struct child *child, struct exec_cgroup *cgroup)
{
    struct subreaper *subreaper =
        subreaper_count < SUBREAPERS_MAX ? calloc(1, sizeof *subreaper) : NULL;

    if (!subreaper)
        return subreaper_count < SUBREAPERS_MAX ? -ENOMEM : -EAGAIN;
    bool is_first = getpid() == 1;
    child->alive = child->running = 1;
    pid_t pid = fork(); /* allow: fork (init has one thread) */
    int error = pid < 0 ? -errno : 0;
    if (pid == 0)
        run_subreaper(child, cgroup->events, is_first);
    (void)close(TAKE_FD(cgroup->events));
    *subreaper = (struct subreaper){.source.ready = on_notice,
                                    .channel = cgroup->fd,
                                    .pid = pid > 0 ? pid : 0,
                                    .child = child};
    subreapers[subreaper_count++] = subreaper;
    pid_t command = error ? error : await_clone(subreaper);
    if (command > 0)
        error = serve_watch(subreaper->channel, &subreaper->source);
    if (command > 0 && !error)
        return subreaper->command = command;
    subreaper->child = NULL;
    subreaper->failed = true;
    if (pid > 0)
        (void)kill(pid, SIGKILL);
    return error ? error : command;
}

void subreaper_wait(const struct child *child, int timeout_ms)
{
    for (size_t i = 0; i < subreaper_count; i++)
        if (subreapers[i]->child == child) {
            struct pollfd waiting = {.fd = subreapers[i]->channel, .events = POLLIN};
            if (poll(&waiting, 1, timeout_ms) > 0)
                while (read_notice(subreapers[i]))
                    continue;
            return;
        }
}

void subreaper_reaped(pid_t pid)
{
    for (size_t i = 0; i < subreaper_count; i++) {
        struct subreaper *subreaper = subreapers[i];
        if (subreaper->pid == pid) {
            while (read_notice(subreaper))
                continue;
            subreaper->pid = 0;
            has_orphans = true;
            if (subreaper->command)
                process_lost(subreaper->command);
            return;
        }
        if (subreaper->command ==
            pid) { /* its subreaper died first, and PID 1 inherited it */
            subreaper->command = 0;
            if (subreaper->child)
                subreaper->child->alive = 0; /* no notice of its execve will come */
            subreaper->child = NULL;
        }
    }
}

int subreaper_kill(const struct exec_cgroup *cgroup)
{
    const struct subreaper *subreaper = find(cgroup);

    /* If it is the only subreaper, kill every process at once: a load inside may leave
     * PID 1 little processor time. */
    if (subreaper && subreaper->pid)
        (void)kill(getpid() == 1 && count_subreapers() == 1 ? -1 : subreaper->pid,
                   SIGKILL);
    return 0;
}

bool subreaper_is_empty(const struct exec_cgroup *cgroup)
{
    const struct subreaper *subreaper = find(cgroup);

    return !subreaper || subreaper->failed || (!subreaper->pid && !has_orphans);
}

/* A subreaper that was killed may not have reported its command's end. */
static void report_lost_ends(void)
{
    const struct rusage unknown = {0};

    for (size_t i = 0; i < subreaper_count; i++) {
        struct subreaper *subreaper = subreapers[i];
        if (subreaper->pid)
            continue;
        if (subreaper->child)
            subreaper->child->alive = 0;
        subreaper->child = NULL;
        if (!subreaper->command)
            continue;
        pid_t command = subreaper->command;
        subreaper->command = 0;
        process_reaped(command, SIGKILL, &unknown);
    }
}

void subreaper_update(void)
{
    if (has_orphans && !descendants_kill(is_subreaper, has_subreapers())) {
        has_orphans = false;
        report_lost_ends();
    }
}

bool subreaper_is_busy(void)
{
    return has_orphans;
}

void subreaper_end_all(void)
{
    for (size_t i = 0; i < subreaper_count; i++)
        if (subreapers[i]->pid)
            (void)kill(subreapers[i]->pid, SIGKILL);
    subreaper_count = 0;
    for (;;) {
        (void)descendants_kill(is_subreaper, has_subreapers());
        if (waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD)
            return;
    }
}
