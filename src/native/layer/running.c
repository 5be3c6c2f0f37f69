/* SPDX-License-Identifier: Apache-2.0 */
#include "native/layer/running.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "native/process/wire.h"
#include "sys/io.h"
#include "sys/path.h"

enum { KILL_MS = 10000, FREEZE_MS = 2000 };

/* If the kernel cannot tell, the process counts. */
static bool is_prefork(const struct record *record, pid_t pid)
{
    return syscall(SYS_kcmp, record->init, pid, KCMP_VM, 0, 0) == 0;
}

struct list {
    pid_t *pids;
    size_t count, room;
};

static int add_pid(struct list *list, pid_t pid)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 32;
        pid_t *more = reallocarray(list->pids, room, sizeof *more);
        if (!more)
            return -ENOMEM;
        list->pids = more;
        list->room = room;
    }
    list->pids[list->count++] = pid;
    return 0;
}

static int add_cgroup(const struct record *record, int group, struct list *list)
{
    char line[32];
    int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC), error = 0;
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

    if (!file) {
        error = -errno;
        auto_close(&fd);
        return error == -ENOENT || error == -ENODEV ? 0 : error;
    }
    while (!error && fgets(line, sizeof line, file)) {
        pid_t pid = (pid_t)strtol(line, NULL, 10);
        if (pid > 0 && !is_prefork(record, pid))
            error = add_pid(list, pid);
    }
    (void)fclose(file);
    return error;
}

static int add_all(const struct record *record, struct list *list)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/work", record->cgroup.unified);
    AUTO_FD work = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (work < 0)
        return -errno;
    int error = add_cgroup(record, work, list);
    AUTO_DIR groups = path_list(work);
    for (struct dirent *entry; !error && (entry = path_next(groups));) {
        if (entry->d_type != DT_DIR)
            continue;
        AUTO_FD group = openat(work, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        error = group < 0 ? 0 : add_cgroup(record, group, list);
    }
    return error;
}

int running_list(const struct record *record, pid_t **ret_pids, size_t *ret_count)
{
    struct list list = {0};
    int error = add_all(record, &list);

    if (error) {
        free(list.pids);
        return error;
    }
    *ret_pids = list.pids;
    *ret_count = list.count;
    return 0;
}

/* Sends the signal to each, unless it is 0; how many there are. */
static int signal_all(const struct record *record, int signal)
{
    AUTO_FREE pid_t *pids = NULL;
    size_t count = 0;
    int error = running_list(record, &pids, &count);

    for (size_t i = 0; !error && signal && i < count; i++)
        (void)kill(pids[i], signal);
    return error ? error : (int)count;
}

int running_count(const struct record *record)
{
    return signal_all(record, 0);
}

/* PID 1 is held and reaps none, so a dead one stays a zombie. */
int running_kill_some(const pid_t *pids, size_t count)
{
    uint64_t end = clock_ms() + KILL_MS;
    int left = 0;

    for (size_t i = 0; i < count; i++)
        (void)kill(pids[i], SIGKILL);
    for (size_t i = 0; i < count; i++) {
        AUTO_FD process = (int)syscall(SYS_pidfd_open, pids[i], 0);
        struct pollfd wait = {.fd = process, .events = POLLIN};
        uint64_t now = clock_ms();
        if (process >= 0 && poll(&wait, 1, now < end ? (int)(end - now) : 0) <= 0)
            left++;
    }
    return left;
}

/* --- The freezer --- */

static void name_file(const struct record *record, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/work/%s", record->cgroup.unified, name);
}

static int read_frozen(const char *path, char *ret_value)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    return read(fd, ret_value, 1) == 1 ? 0 : -EIO;
}

/* A pause or a resume has the lock while it changes the cgroup and PID 1. */
static int open_freezer(const struct record *record, uint64_t end,
                        struct running_freezer *freezer)
{
    char path[PATH_MAX], before = '0';

    name_file(record, "cgroup.freeze", path);
    freezer->control = open(path, O_WRONLY | O_CLOEXEC);
    if (freezer->control < 0)
        return -errno;
    while (flock(freezer->control, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || clock_ms() >= end) {
            int error = errno == EWOULDBLOCK ? -ETIMEDOUT : -errno;
            auto_close(&freezer->control);
            freezer->control = -1;
            return error;
        }
        clock_sleep_ms(1);
    }
    int error = read_frozen(path, &before);
    freezer->was_frozen = error || before == '1';
    return error;
}

static int wait_frozen(const struct record *record, uint64_t end)
{
    char path[PATH_MAX], events[128];

    name_file(record, "cgroup.events", path);
    for (;;) {
        ssize_t len = io_read_text(AT_FDCWD, path, events, sizeof events);
        if (len < 0)
            return (int)len;
        if (strstr(events, "frozen 1"))
            return 0;
        if (clock_ms() >= end)
            return -ETIMEDOUT;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

int running_freeze(const struct record *record, struct running_freezer *ret_freezer)
{
    uint64_t end = clock_ms() + FREEZE_MS;

    ret_freezer->control = -1;
    int error = open_freezer(record, end, ret_freezer);
    if (!error && write(ret_freezer->control, "1", 1) != 1)
        error = -errno;
    return error ? error : wait_frozen(record, end);
}

void running_thaw(struct running_freezer *freezer)
{
    if (freezer->control < 0)
        return;
    if (!freezer->was_frozen)
        (void)!write(freezer->control, "0", 1);
    /* Explicitly: a child forked meanwhile by another thread shares the lock. */
    (void)flock(freezer->control, LOCK_UN);
    auto_close(&freezer->control);
    freezer->control = -1;
}

/* Best frozen, so that none forks meanwhile; a frozen process dies of SIGKILL. */
int running_kill(const struct record *record)
{
    uint64_t end = clock_ms() + KILL_MS;
    size_t count = 0;

    do {
        AUTO_FREE pid_t *pids = NULL;
        int error = running_list(record, &pids, &count);
        if (error)
            return error;
        (void)running_kill_some(pids, count);
    } while (count && clock_ms() < end);
    return (int)count;
}

/* --- Reports --- */

/* The last of "NSpid:	1234	7" is the one inside. */
static int read_inner_pid(int process)
{
    char status[8192];
    ssize_t len = io_read_text(process, "status", status, sizeof status);
    const char *line = len > 0 ? strstr(status, "\nNSpid:") : NULL;
    const char *end = line ? strchr(line + 1, '\n') : NULL;

    if (!end)
        return 0;
    while (end > line && end[-1] >= '0' && end[-1] <= '9')
        end--;
    return (int)strtol(end, NULL, 10);
}

void running_describe(pid_t pid, struct cay_ended *ret_ended)
{
    char path[32];

    *ret_ended = (struct cay_ended){.pid = 0};
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    AUTO_FD process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (process < 0)
        return;
    ret_ended->pid = read_inner_pid(process);
    ssize_t len =
        io_read_text(process, "cmdline", ret_ended->command, sizeof ret_ended->command);
    while (len > 0 && !ret_ended->command[len - 1])
        len--;
    if (len > 0)
        wire_make_text(ret_ended->command, (size_t)len);
}
