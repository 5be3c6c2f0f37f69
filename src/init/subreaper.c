/* SPDX-License-Identifier: Apache-2.0 */
#include "init/subreaper.h"

#include <dirent.h>
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/process.h"
#include "init/serve.h"
#include "sys/procstat.h"

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

static LARGE struct subreaper *subreapers[SUBREAPERS_MAX];
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

/* --- Descendants: the processes below this one, except subreapers and those below them
 * --- */

enum { ENTRIES_MAX = 1 << 20, PASSES_MAX = 64, MANY = 16 };

struct entry {
    pid_t pid;
    struct procstat stat;
    bool is_ours;
};

/* Sorted by pid, as /proc lists them.  Without a PID namespace these are all processes of
 * the host. */
static struct entry *entries;
static size_t entry_room;

static bool make_room(size_t count)
{
    if (count < entry_room)
        return true;
    size_t room = entry_room ? 2 * entry_room : 1024;
    struct entry *more =
        room > ENTRIES_MAX ? NULL : realloc(entries, room * sizeof *entries);
    if (!more)
        return false;
    entries = more;
    entry_room = room;
    return true;
}

static const struct entry *find_process(pid_t pid, size_t count)
{
    for (size_t low = 0, high = count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (entries[middle].pid == pid)
            return &entries[middle];
        if (entries[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Without a PID namespace the pid may have been reused by another process, unless it is
 * PID 1's own child. */
static void send_signal(const struct entry *one, int number)
{
    struct procstat now;

    if (getpid() == 1 || one->stat.parent == getpid()) {
        (void)kill(one->pid, number);
        return;
    }
    AUTO_FD fd = (int)syscall(SYS_pidfd_open, one->pid, 0);
    if (fd >= 0 && procstat_read(one->pid, &now) == 0 && now.start == one->stat.start)
        (void)syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
}

static bool has_our_parent(const struct entry *one, size_t count)
{
    if (one->stat.parent == getpid())
        return !is_subreaper(one->pid);
    const struct entry *parent = find_process(one->stat.parent, count);
    return parent && parent->is_ours;
}

static size_t list_processes(void)
{
    DIR *directory = opendir("/proc");
    size_t count = 0;
    bool found = true;

    for (struct dirent *entry;
         directory && make_room(count) && (entry = readdir(directory));) {
        struct entry *one = &entries[count];
        *one = (struct entry){.pid = (pid_t)strtol(entry->d_name, NULL, 10)};
        count += one->pid > 0 && procstat_read(one->pid, &one->stat) == 0;
    }
    if (directory)
        closedir(directory);
    while (found) {
        found = false;
        for (size_t i = 0; i < count; i++)
            if (!entries[i].is_ours && has_our_parent(&entries[i], count))
                found = entries[i].is_ours = true;
    }
    return count;
}

/* Sends SIGSTOP to all descendants that run; how many there were. */
static size_t stop_below(void)
{
    size_t running = 0, count = list_processes();

    for (size_t i = 0; i < count; i++)
        if (entries[i].is_ours && !strchr("TtZX", entries[i].stat.state)) {
            send_signal(&entries[i], SIGSTOP);
            running++;
        }
    return running;
}

static size_t kill_below(size_t count)
{
    size_t children = 0;

    for (size_t i = 0; i < count; i++)
        if (entries[i].is_ours) {
            send_signal(&entries[i], SIGKILL);
            children += entries[i].stat.parent == getpid();
        }
    return children;
}

/* Stops all processes of the PID namespace at once, kills the descendants, and continues
 * the others except those that were stopped before.  With many forking processes there is
 * no time to do it one by one. */
static size_t kill_many(size_t count)
{
    AUTO_FREE pid_t *still = calloc(count + 1, sizeof *still);
    size_t still_count = 0;

    for (size_t i = 0; still && i < count; i++)
        if (strchr("Tt", entries[i].stat.state))
            still[still_count++] = entries[i].pid;
    (void)kill(-1, SIGSTOP);
    count = list_processes();
    size_t children = kill_below(count);
    for (size_t i = 0; i < count; i++) {
        bool stood = false;
        for (size_t j = 0; j < still_count && !stood; j++)
            stood = still[j] == entries[i].pid;
        if (!entries[i].is_ours && !stood && entries[i].pid != getpid())
            (void)kill(entries[i].pid, SIGCONT);
    }
    return children;
}

/* Whether there is a child that is not a subreaper: 1, 0, or -1 if the kernel has no list
 * of children (CONFIG_PROC_CHILDREN).  It returns one page at a time, some hundreds of
 * pids; a child stays listed until it is waited for. */
static int has_children(void)
{
    char text[4096];
    AUTO_FD fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t len = -1;
    pid_t pid = 0;

    while (fd >= 0 && (len = read(fd, text, sizeof text)) > 0)
        for (ssize_t i = 0; i < len; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                pid = 10 * pid + (text[i] - '0');
                continue;
            }
            if (pid > 0 && !is_subreaper(pid))
                return 1;
            pid = 0;
        }
    return len < 0 ? -1 : 0;
}

/* Processes that fork faster than they die are stopped first: then they cannot fork, and
 * their number is bounded by the limit.  Without subreapers nothing is listed first: a
 * load inside may leave PID 1 too little processor time to walk a list.  False if there
 * was no child left to kill. */
static bool kill_descendants(void)
{
    int has = has_children();

    if (has == 0)
        return false;
    if (getpid() == 1 && count_subreapers() == 0 && has > 0) {
        (void)kill(-1, SIGKILL);
        return true;
    }
    size_t count = list_processes(), ours = 0;
    for (size_t i = 0; i < count; i++)
        ours += entries[i].is_ours;
    if (getpid() == 1 && ours >= MANY)
        return kill_many(count) > 0;
    for (int pass = 0; pass < PASSES_MAX && stop_below() > 0; pass++)
        continue;
    return kill_below(list_processes()) > 0;
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
        (void)kill_descendants();
        reap(command, true);
    }
}

static _Noreturn void run_subreaper(struct child *child, int channel, bool has_namespace)
{
    struct notice notice = {.kind = NOTICE_CLONED};

    subreaper_count = 0;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        _exit(1);
    notice.pid = child_start(child, NULL);
    /* Close every descriptor but the channel, above all the command's pipes.  A child
     * that has not executed yet has its own copy of them. */
    if ((channel != CHANNEL && dup3(channel, CHANNEL, O_CLOEXEC) < 0) ||
        syscall(SYS_close_range, CHANNEL + 1, ~0u, 0) != 0)
        _exit(1);
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
    if (has_orphans && !kill_descendants()) {
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
        (void)kill_descendants();
        pid_t pid = waitpid(-1, NULL, __WALL);
        while (pid > 0) /* all: for each of many the list of processes is too slow */
            pid = waitpid(-1, NULL, __WALL | WNOHANG);
        if (pid < 0 && errno == ECHILD)
            return;
    }
}

/* --- Exec cgroups --- */

static bool use_subreapers;

void exec_cgroup_prepare(bool has_cgroup)
{
    use_subreapers = !has_cgroup;
}

static void name_of(unsigned number, char name[16])
{
    snprintf(name, 16, "e%u", number);
}

int exec_cgroup_open(unsigned number, struct exec_cgroup *ret_cgroup)
{
    char name[16];
    int ends[2];

    *ret_cgroup = (struct exec_cgroup){.fd = -1, .events = -1, .number = number};
    if (use_subreapers) {
        if (subreaper_count == SUBREAPERS_MAX)
            return -EAGAIN;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
            return -errno;
        *ret_cgroup =
            (struct exec_cgroup){.fd = ends[0], .events = ends[1], .has_subreaper = true};
        return 0;
    }
    name_of(number, name);
    if (mkdirat(CGROUP_FD, name, 0755) != 0 && errno != EEXIST)
        return -errno;
    ret_cgroup->fd = openat(CGROUP_FD, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ret_cgroup->fd >= 0)
        ret_cgroup->events =
            openat(ret_cgroup->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    if (ret_cgroup->events >= 0)
        return 0;
    int error = errno;
    exec_cgroup_close(ret_cgroup);
    return -error;
}

void exec_cgroup_kill(const struct exec_cgroup *cgroup)
{
    const struct subreaper *subreaper = find(cgroup);

    /* If it is the only subreaper, kill every process at once: a load inside may leave
     * PID 1 little processor time. */
    if (subreaper && subreaper->pid)
        (void)kill(getpid() == 1 && count_subreapers() == 1 ? -1 : subreaper->pid,
                   SIGKILL);
    if (cgroup->has_subreaper)
        return;
    AUTO_FD fd = openat(cgroup->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    (void)!write(fd, "1", 1);
}

bool exec_cgroup_is_empty(const struct exec_cgroup *cgroup)
{
    const struct subreaper *subreaper = find(cgroup);
    char text[128];

    if (cgroup->has_subreaper)
        return !subreaper || subreaper->failed || (!subreaper->pid && !has_orphans);
    ssize_t len = pread(cgroup->events, text, sizeof text - 1, 0);
    if (len <= 0)
        return false;
    text[len] = '\0';
    return strstr(text, "populated 0") != NULL;
}

void exec_cgroup_close(struct exec_cgroup *cgroup)
{
    char name[16];

    for (size_t i = 0; i < subreaper_count; i++)
        if (subreapers[i]->channel == cgroup->fd) {
            free(subreapers[i]);
            subreapers[i] = subreapers[--subreaper_count];
            break;
        }
    if (cgroup->events >= 0)
        (void)close(cgroup->events);
    if (cgroup->has_subreaper && cgroup->fd >= 0) {
        serve_close(cgroup->fd); /* a child before execve may still have a copy */
    } else if (cgroup->fd >= 0) {
        (void)close(cgroup->fd);
        name_of(cgroup->number, name);
        (void)unlinkat(CGROUP_FD, name, AT_REMOVEDIR);
    }
    cgroup->fd = cgroup->events = -1;
}
