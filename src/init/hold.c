/* SPDX-License-Identifier: Apache-2.0 */
#include "init/hold.h"

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
#include "init/kin.h"
#include "init/process.h"
#include "init/serve.h"

enum { HOLDS_MAX = 1024, CHANNEL = 3, CLONE_MS = 5000 };

/* What a holder says, in this order. */
enum { NEWS_CLONED = 1, NEWS_BORN = 2, NEWS_ENDED = 3 };

struct news {
    uint32_t kind;
    int32_t pid;    /* CLONED: of the command, or a negative errno */
    int32_t error;  /* BORN: of the birth */
    int32_t status; /* ENDED */
    char step[16];  /* BORN */
    struct rusage used;
};

struct hold {
    struct source source;
    int channel;
    pid_t pid;     /* 0: it is gone */
    pid_t command; /* 0: its end was told */
    struct birth *birth;
    bool failed; /* nothing came of it */
    char step[16];
};

static struct hold *holds[HOLDS_MAX];
static size_t hold_count;
static bool is_dirty; /* what a holder held may have become ours */

static bool is_holder(pid_t pid)
{
    for (size_t i = 0; i < hold_count; i++)
        if (holds[i]->pid == pid)
            return true;
    return false;
}

static size_t count_holders(void)
{
    size_t found = 0;

    for (size_t i = 0; i < hold_count; i++)
        found += holds[i]->pid != 0;
    return found;
}

static bool has_holders(void)
{
    return count_holders() > 0;
}

/* --- The holder --- */

static void say(const struct news *news)
{
    (void)!send(CHANNEL, news, sizeof *news, MSG_NOSIGNAL);
}

/* Waits for those that are dead and tells of the command; the last one's end is ours. */
static void reap(pid_t command, bool wait)
{
    struct news news = {.kind = NEWS_ENDED, .pid = command};

    for (;;) {
        pid_t pid = wait4(-1, &news.status, __WALL | (wait ? 0 : WNOHANG), &news.used);
        if (pid < 0 && errno == ECHILD)
            _exit(0);
        if (pid <= 0)
            return;
        wait = false;
        if (pid == command)
            say(&news);
    }
}

/* Nothing comes over the channel but its end: then init is gone, and so must we all.  Of
 * what is in a PID namespace the kernel makes an end, once init, which is still busy
 * dying, has the processor; hundreds of us that look for their own would keep it from
 * it. */
static _Noreturn void hold(pid_t command, bool has_namespace)
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
        (void)kin_kill(is_holder, has_holders());
        reap(command, true);
    }
}

/* The channel and nothing else is ours, least of all the command's pipes. */
static void keep_channel(int channel)
{
    if ((channel != CHANNEL && dup3(channel, CHANNEL, O_CLOEXEC) < 0) ||
        syscall(SYS_close_range, CHANNEL + 1, ~0u, 0) != 0)
        _exit(1);
}

static _Noreturn void be_holder(struct birth *birth, int channel, bool has_namespace)
{
    struct news news = {.kind = NEWS_CLONED};

    hold_count = 0;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        _exit(1);
    news.pid = birth_begin(birth, NULL);
    /* A command that has not executed yet has descriptors of its own. */
    keep_channel(channel);
    say(&news);
    if (news.pid < 0)
        _exit(1);
    while (!birth_is_over(birth))
        birth_wait(birth);
    news.kind = NEWS_BORN;
    news.error = birth->error;
    snprintf(news.step, sizeof news.step, "%s", birth->step);
    say(&news);
    hold(news.pid, has_namespace);
}

/* --- Init's side: what they say --- */

static void take_news(struct hold *hold, const struct news *news)
{
    if (news->kind == NEWS_BORN && hold->birth) {
        memcpy(hold->step, news->step, sizeof hold->step);
        hold->birth->error = news->error;
        hold->birth->step = hold->step;
        hold->birth->alive = 0;
        hold->birth = NULL;
    } else if (news->kind == NEWS_ENDED && hold->command) {
        pid_t command = hold->command;
        hold->command = 0;
        process_reaped(command, news->status, &news->used);
    }
}

static bool hear_one(struct hold *hold)
{
    struct news news;

    if (recv(hold->channel, &news, sizeof news, MSG_DONTWAIT) != sizeof news)
        return false;
    take_news(hold, &news);
    return true;
}

/* A socket whose other end is gone is always ready: it has had its say. */
static void listen_to(struct source *source)
{
    struct hold *hold = (struct hold *)source;

    while (hear_one(hold))
        continue;
    if (!hold->pid)
        serve_forget(hold->channel);
}

/* --- Init's side: leaves --- */

static struct hold *find(const struct leaf *leaf)
{
    for (size_t i = 0; i < hold_count; i++)
        if (holds[i]->channel == leaf->fd)
            return holds[i];
    return NULL;
}

int hold_open(struct leaf *ret_leaf)
{
    int ends[2];

    *ret_leaf = (struct leaf)LEAF_NONE;
    if (hold_count == HOLDS_MAX)
        return -EAGAIN;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return -errno;
    *ret_leaf = (struct leaf){.fd = ends[0], .events = ends[1], .is_held = true};
    return 0;
}

void hold_close(struct leaf *leaf)
{
    for (size_t i = 0; i < hold_count; i++)
        if (holds[i]->channel == leaf->fd) {
            free(holds[i]);
            holds[i] = holds[--hold_count];
            break;
        }
    if (leaf->events >= 0)
        (void)close(leaf->events);
    if (leaf->fd >= 0) /* a command on its way may still have a copy */
        serve_close(leaf->fd);
    leaf->fd = leaf->events = -1;
}

/* The number of its command, or a negative errno. */
static pid_t hear_of_clone(struct hold *hold)
{
    struct pollfd waiting = {.fd = hold->channel, .events = POLLIN};
    struct news news;

    if (poll(&waiting, 1, CLONE_MS) <= 0 ||
        recv(hold->channel, &news, sizeof news, MSG_DONTWAIT) != sizeof news)
        return -EIO;
    return news.pid;
}

pid_t hold_begin(struct birth *birth, struct leaf *leaf)
{
    struct hold *hold = hold_count < HOLDS_MAX ? calloc(1, sizeof *hold) : NULL;

    if (!hold)
        return hold_count < HOLDS_MAX ? -ENOMEM : -EAGAIN;
    bool is_first = getpid() == 1;
    birth->alive = birth->went = 1;
    pid_t pid = fork(); /* allow: fork (init has one thread) */
    int error = pid < 0 ? -errno : 0;
    if (pid == 0)
        be_holder(birth, leaf->events, is_first);
    (void)close(TAKE_FD(leaf->events));
    *hold = (struct hold){.source.ready = listen_to,
                          .channel = leaf->fd,
                          .pid = pid > 0 ? pid : 0,
                          .birth = birth};
    holds[hold_count++] = hold;
    pid_t command = error ? error : hear_of_clone(hold);
    if (command > 0)
        error = serve_watch(hold->channel, &hold->source);
    if (command > 0 && !error)
        return hold->command = command;
    hold->birth = NULL;
    hold->failed = true;
    if (pid > 0)
        (void)kill(pid, SIGKILL);
    return error ? error : command;
}

void hold_wait(const struct birth *birth, int timeout_ms)
{
    for (size_t i = 0; i < hold_count; i++)
        if (holds[i]->birth == birth) {
            struct pollfd waiting = {.fd = holds[i]->channel, .events = POLLIN};
            if (poll(&waiting, 1, timeout_ms) > 0)
                while (hear_one(holds[i]))
                    continue;
            return;
        }
}

void hold_reaped(pid_t pid)
{
    for (size_t i = 0; i < hold_count; i++) {
        struct hold *hold = holds[i];
        if (hold->pid == pid) {
            while (hear_one(hold))
                continue;
            hold->pid = 0;
            is_dirty = true;
            if (hold->command)
                process_lost(hold->command);
            return;
        }
        if (hold->command == pid) { /* its holder died first, and it came to us */
            hold->command = 0;
            if (hold->birth)
                hold->birth->alive = 0; /* nobody will tell any more that it was born */
            hold->birth = NULL;
        }
    }
}

int hold_kill(const struct leaf *leaf)
{
    const struct hold *hold = find(leaf);

    /* With no other holder all there is becomes ours to kill: then at once, for those
     * that want the processor may leave us none of it for long. */
    if (hold && hold->pid)
        (void)kill(getpid() == 1 && count_holders() == 1 ? -1 : hold->pid, SIGKILL);
    return 0;
}

bool hold_is_empty(const struct leaf *leaf)
{
    const struct hold *hold = find(leaf);

    return !hold || hold->failed || (!hold->pid && !is_dirty);
}

/* A holder that was killed may have taken its command's end with it. */
static void make_up_ends(void)
{
    const struct rusage unknown = {0};

    for (size_t i = 0; i < hold_count; i++) {
        struct hold *hold = holds[i];
        if (hold->pid)
            continue;
        if (hold->birth)
            hold->birth->alive = 0;
        hold->birth = NULL;
        if (!hold->command)
            continue;
        pid_t command = hold->command;
        hold->command = 0;
        process_reaped(command, SIGKILL, &unknown);
    }
}

void hold_tend(void)
{
    if (is_dirty && !kin_kill(is_holder, has_holders())) {
        is_dirty = false;
        make_up_ends();
    }
}

bool hold_is_busy(void)
{
    return is_dirty;
}

void hold_end_all(void)
{
    for (size_t i = 0; i < hold_count; i++)
        if (holds[i]->pid)
            (void)kill(holds[i]->pid, SIGKILL);
    hold_count = 0;
    for (;;) {
        (void)kin_kill(is_holder, has_holders());
        if (waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD)
            return;
    }
}
