/* SPDX-License-Identifier: Apache-2.0 */
#include "init/hold.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

enum { HOLDS_MAX = 1024, CHANNEL = 3, BORN_MS = 10000 };

/* The first message of a holder; those after it are struct hold_end. */
struct hold_birth {
    int32_t code; /* of command_start() */
    pid_t pid;
    struct cay_error error;
};

struct hold {
    pid_t pid; /* 0: it is gone, and what it said is still to be read */
    int channel;
};

static struct hold holds[HOLDS_MAX];
static size_t hold_count;

/* --- Children --- */

static bool is_holder(pid_t pid)
{
    for (size_t i = 0; i < hold_count; i++)
        if (holds[i].pid == pid)
            return true;
    return false;
}

/* Kills those of our children that are no holders; how many there were. */
static size_t kill_listed(const char *text)
{
    size_t count = 0;

    for (const char *at = text; *at;) {
        char *end;
        pid_t pid = (pid_t)strtol(at, &end, 10);
        if (end == at)
            break;
        at = end + (*end == ' ');
        if (pid > 0 && !is_holder(pid)) {
            (void)kill(pid, SIGKILL);
            count++;
        }
    }
    return count;
}

static pid_t parent_of(const char *name)
{
    char path[300], text[512];

    snprintf(path, sizeof path, "/proc/%s/stat", name);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    /* "pid (name) state parent": the name may have anything in it. */
    const char *after = strrchr(text, ')');
    return after && strlen(after) > 4 ? (pid_t)strtol(after + 4, NULL, 10) : 0;
}

/* For kernels that do not list the children of a process. */
static size_t kill_found(void)
{
    DIR *directory = opendir("/proc");
    size_t count = 0;

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            parent_of(entry->d_name) == getpid())
            count += kill_listed(entry->d_name);
    if (directory)
        closedir(directory);
    return count;
}

/* A child is ours until we wait for it, so its number cannot be another's by now. */
static size_t kill_children(void)
{
    char text[4096];
    AUTO_FD fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return kill_found();
    ssize_t len = read(fd, text, sizeof text - 1);
    text[len > 0 ? len : 0] = '\0';
    /* A number that was cut is no number; the next time will have it. */
    if (len == (ssize_t)sizeof text - 1)
        text[(size_t)(strrchr(text, ' ') ? strrchr(text, ' ') - text : 0)] = '\0';
    return kill_listed(text);
}

/* --- The holder --- */

static uint64_t microseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

/* Waits for those that are dead and tells of the command; the last one's end is ours. */
static void reap(pid_t command, bool wait)
{
    struct rusage used;
    int status;

    for (;;) {
        pid_t pid = wait4(-1, &status, __WALL | (wait ? 0 : WNOHANG), &used);
        if (pid < 0 && errno == ECHILD)
            _exit(0);
        if (pid <= 0)
            return;
        wait = false;
        if (pid != command)
            continue;
        const struct hold_end end = {.pid = pid,
                                     .status = status,
                                     .user_us = microseconds(used.ru_utime),
                                     .system_us = microseconds(used.ru_stime),
                                     .peak_memory = (uint64_t)used.ru_maxrss * 1024};
        (void)!send(CHANNEL, &end, sizeof end, MSG_NOSIGNAL);
    }
}

/* Nothing comes over the channel but its end: then init is gone, and so must we all. */
static _Noreturn void hold(pid_t command)
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
        (void)kill_children();
        reap(command, true);
    }
}

static _Noreturn void be_holder(const struct command *command, int channel)
{
    const struct leaf none = LEAF_NONE;
    struct hold_birth birth;
    int pidfd = -1;

    memset(&birth, 0, sizeof birth);
    hold_count = 0;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        _exit(1);
    birth.code = command_start(command, &none, &birth.pid, &pidfd, &birth.error);
    /* Ours now is the channel and nothing else, least of all the command's pipes. */
    if (dup3(channel, CHANNEL, O_CLOEXEC) < 0 && errno != EINVAL)
        _exit(1);
    if (syscall(SYS_close_range, CHANNEL + 1, ~0u, 0) != 0 ||
        send(CHANNEL, &birth, sizeof birth, MSG_NOSIGNAL) != sizeof birth)
        _exit(1);
    if (birth.code)
        _exit(0);
    hold(birth.pid);
}

/* --- Init's side --- */

static int fail_start(int error, const struct command *command, struct cay_error *err)
{
    return cay_fail_errno(err, error, "exec.clone", command->argv[0]);
}

static int receive_birth(int channel, struct hold_birth *birth)
{
    struct pollfd waiting = {.fd = channel, .events = POLLIN};

    if (poll(&waiting, 1, BORN_MS) <= 0 ||
        recv(channel, birth, sizeof *birth, 0) != sizeof *birth)
        return EIO;
    return 0;
}

int hold_start(const struct command *command, pid_t *ret_pid, pid_t *ret_holder,
               int *ret_fd, struct cay_error *err)
{
    struct hold_birth birth;
    int ends[2];

    if (hold_count == HOLDS_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "exec.clone", command->argv[0],
                        "too many commands have left processes behind",
                        "end some of them first");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return fail_start(errno, command, err);
    AUTO_FD ours = ends[0];
    AUTO_FD theirs = ends[1];
    pid_t pid = fork(); /* allow: fork (init has one thread) */
    if (pid < 0)
        return fail_start(errno, command, err);
    if (pid == 0)
        be_holder(command, theirs);
    (void)close(TAKE_FD(theirs));
    holds[hold_count++] = (struct hold){pid, ours};
    int error = receive_birth(ours, &birth);
    if (error)
        (void)kill(pid, SIGKILL);
    *ret_holder = pid;
    *ret_fd = TAKE_FD(ours);
    if (error)
        return fail_start(error, command, err);
    *ret_pid = birth.pid;
    if (birth.code && err)
        *err = birth.error;
    return birth.code;
}

static void forget(size_t i)
{
    (void)close(holds[i].channel);
    holds[i] = holds[--hold_count];
}

bool hold_next_end(struct hold_end *ret_end)
{
    for (size_t i = hold_count; i-- > 0;) {
        ssize_t len = recv(holds[i].channel, ret_end, sizeof *ret_end, MSG_DONTWAIT);
        if (len == sizeof *ret_end)
            return true;
        if (holds[i].pid == 0)
            forget(i);
    }
    return false;
}

bool hold_reaped(pid_t pid)
{
    for (size_t i = 0; i < hold_count; i++)
        if (holds[i].pid == pid) {
            holds[i].pid = 0;
            return true;
        }
    return false;
}

void hold_kill(pid_t holder)
{
    if (is_holder(holder))
        (void)kill(holder, SIGKILL);
}

bool hold_is_swept(void)
{
    return kill_children() == 0;
}

void hold_end_all(void)
{
    for (size_t i = 0; i < hold_count; i++)
        if (holds[i].pid)
            (void)kill(holds[i].pid, SIGKILL);
    hold_count = 0;
    for (;;) {
        (void)kill_children();
        if (waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD)
            return;
    }
}
