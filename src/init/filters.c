/* SPDX-License-Identifier: Apache-2.0 */

/* The kernel suspends each process that installs a filter and notifies PID 1.  A filter
 * lives as long as a process that has it, installed or inherited, and the kernel does not
 * report its end.  So this is an upper bound:
 *
 *   filters installed by living processes, plus
 *   filters installed by processes that are gone (`left`), but at most what all living
 *   processes have inherited.
 *
 * The second part is read from /proc, only at the limit.  The threads of a process may
 * have different filters; so what it started with is noted at its first filter. */
#include "init/filters.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "init/confine.h"
#include "init/report.h"
#include "init/serve.h"
#include "sys/procstat.h"

enum {
    TRIES = 6,
    REPLY_ROOM = 1024, /* the kernel's structures may be larger than the headers' */
    TASKS_MAX = 1 << 16,
    VAIN_MAX = 8,  /* failed recounts in a row before a pause */
    PAUSE_MS = 100 /* of that pause */
};

struct task {
    pid_t process, parent;
    uint64_t start; /* start time of the process: detects a reused pid */
    unsigned filters;
};

struct installer {
    uint64_t start;
    pid_t process;
    unsigned inherited, installed;
    bool lives;
};

static LARGE struct installer installers[FILTERS_MAX];
static size_t installer_count;
static unsigned left;
static bool no_namespaces;
static unsigned vain;
static uint64_t look_again; /* not before */

/* --- /proc --- */

struct field {
    const char *name;
    long value;
    bool is_known;
};

static void read_fields(const char *lines, struct field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *at = fields[i].is_known ? NULL : strstr(lines, fields[i].name);
        if (!at)
            continue;
        fields[i].value = strtol(at + strlen(fields[i].name), NULL, 10);
        fields[i].is_known = true;
    }
}

/* Piece by piece, since root inside controls the length of the Groups line.  A line
 * longer than the buffer is skipped; it contains no field we need. */
static int read_status(pid_t id, struct field *fields, size_t count)
{
    char path[32], text[4096];
    size_t kept = 0;
    ssize_t len;

    snprintf(path, sizeof path, "/proc/%d/status", (int)id);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while ((len = read(fd, text + kept, sizeof text - 1 - kept)) > 0) {
        kept += (size_t)len;
        text[kept] = '\0';
        char *last = strrchr(text, '\n');
        size_t done = last ? (size_t)(last - text) : 0;
        if (!done && kept == sizeof text - 1)
            done = kept;
        else if (done) {
            *last = '\0';
            read_fields(text, fields, count);
            *last = '\n';
        }
        kept -= done;
        memmove(text, text + done, kept);
    }
    return len < 0 ? -errno : 0;
}

/* `id` is a pid or a tid. 0 or a negative errno.  The name, which the process chooses, is
 * in the first line of its status, with newlines escaped. */
static int read_task(pid_t id, struct task *ret_task)
{
    struct field fields[] = {
        {"\nTgid:", 0, false}, {"\nPPid:", 0, false}, {"\nSeccomp_filters:", 0, false}};
    struct procstat stat = {0};
    int error = read_status(id, fields, 3);

    for (size_t i = 0; !error && i < 3; i++)
        error = fields[i].is_known ? 0 : -EIO;
    if (!error)
        error = procstat_read((pid_t)fields[0].value, &stat);
    ret_task->process = (pid_t)fields[0].value;
    ret_task->parent = (pid_t)fields[1].value;
    ret_task->filters = (unsigned)fields[2].value;
    ret_task->start = stat.start;
    return error;
}

/* The pid that was assigned last; -1 if unknown. */
static long last_started(void)
{
    char text[128];
    AUTO_FD fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    text[len > 0 ? len : 0] = '\0';
    const char *at = strrchr(text, ' ');
    return at ? strtol(at, NULL, 10) : -1;
}

/* --- The count --- */

static struct installer *find(pid_t process, uint64_t start)
{
    for (size_t i = 0; i < installer_count; i++)
        if (installers[i].process == process && installers[i].start == start)
            return &installers[i];
    return NULL;
}

static unsigned count(void)
{
    unsigned sum = left;

    for (size_t i = 0; i < installer_count; i++)
        sum += installers[i].installed;
    return sum;
}

static void forget_dead(void)
{
    for (size_t i = installer_count; i-- > 0;)
        if (!installers[i].lives) {
            left += installers[i].installed;
            installers[i] = installers[--installer_count];
        }
}

static int compare(const void *a, const void *b)
{
    const struct task *one = a, *other = b;

    return (one->process > other->process) - (one->process < other->process);
}

/* Without a PID namespace /proc also lists the host's processes: those that certainly do
 * not descend from PID 1 are not counted. */
static bool is_elsewhere(const struct task *task, const struct task *tasks, size_t many)
{
    struct task key = {.process = task->parent};

    for (size_t depth = 0; depth < many && key.process != getpid(); depth++) {
        if (key.process <= 1)
            return true;
        const struct task *parent = bsearch(&key, tasks, many, sizeof key, compare);
        if (!parent)
            return false;
        key.process = parent->parent;
    }
    return false;
}

/* NULL if a living process cannot be read: it may have filters. */
static struct task *list(size_t *ret_count)
{
    DIR *directory = opendir("/proc");
    struct task *tasks = NULL;
    size_t room = 0, many = 0;
    int error = 0;

    for (struct dirent *entry; directory && !error && (entry = readdir(directory));) {
        pid_t id = (pid_t)strtol(entry->d_name, NULL, 10);
        if (many == room) {
            room = room ? 2 * room : 128;
            struct task *more =
                room > TASKS_MAX ? NULL : realloc(tasks, room * sizeof *tasks);
            if (!more)
                break;
            tasks = more;
        }
        if (id <= 0)
            continue;
        error = read_task(id, &tasks[many]);
        many += !error;
        if (error == -ENOENT || error == -ESRCH) /* it has ended */
            error = 0;
    }
    bool is_whole = directory && !error && many < room;
    if (directory)
        closedir(directory);
    *ret_count = many;
    if (is_whole)
        return tasks;
    free(tasks);
    return NULL;
}

/* The filters that living processes have inherited; marks the living installers. */
static unsigned sum_inherited(const struct task *tasks, size_t many)
{
    struct task own;
    unsigned sum = 0;
    unsigned base =
        (read_task(getpid(), &own) == 0 ? own.filters : 0) + confine_suid_filters();

    for (size_t i = 0; i < installer_count; i++)
        installers[i].lives = false;
    for (size_t i = 0; i < many; i++) {
        struct installer *installer = find(tasks[i].process, tasks[i].start);
        unsigned inherited = installer ? installer->inherited : tasks[i].filters;
        if (installer)
            installer->lives = true;
        if (inherited > base && !(no_namespaces && is_elsewhere(&tasks[i], tasks, many)))
            sum += inherited - base;
    }
    return sum;
}

/* If no process was started meanwhile, the list is complete. */
static void recount(void)
{
    for (int tries = 0; tries < TRIES; tries++) {
        size_t many;
        long before = last_started();
        AUTO_FREE struct task *tasks = list(&many);
        if (!tasks || before < 0 || last_started() != before)
            continue;
        unsigned inherited = sum_inherited(tasks, many);
        forget_dead();
        left = left < inherited ? left : inherited;
        return;
    }
}

/* At the limit every request would read all of /proc and delay everything else PID 1
 * does: after VAIN_MAX failed recounts it pauses. */
static bool has_room(void)
{
    if (count() < FILTERS_MAX)
        return true;
    if (vain >= VAIN_MAX && clock_ns() < look_again)
        return false;
    recount();
    if (count() < FILTERS_MAX) {
        vain = 0;
        return true;
    }
    vain += vain < VAIN_MAX;
    look_again = clock_ns() + PAUSE_MS * 1000000ull;
    return false;
}

/* Counts one more filter for the process, or returns NULL. */
static struct installer *admit(pid_t thread)
{
    struct task task = {0};

    if (read_task(thread, &task) != 0)
        return NULL;
    if (!has_room())
        return NULL;
    struct installer *installer = find(task.process, task.start);
    if (!installer) {
        installer = &installers[installer_count++];
        *installer = (struct installer){
            .process = task.process, .start = task.start, .inherited = task.filters};
    }
    installer->installed++;
    return installer;
}

/* --- Requests --- */

/* Does not block: the kernel counts pending notifications, and ENOENT means that the
 * process was killed meanwhile. */
static void handle(struct source *source)
{
    static union {
        struct seccomp_notif request;
        struct seccomp_notif_resp reply;
        char room[REPLY_ROOM];
    } message;

    (void)source;
    memset(&message, 0, sizeof message);
    if (ioctl(confine_listener(), SECCOMP_IOCTL_NOTIF_RECV, &message) != 0)
        return;
    uint64_t id = message.request.id;
    struct installer *installer = admit((pid_t)message.request.pid);
    memset(&message, 0, sizeof message);
    message.reply.id = id;
    if (installer)
        message.reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else
        message.reply.error = -ENOMEM;
    /* The process was killed meanwhile and has installed nothing. */
    if (ioctl(confine_listener(), SECCOMP_IOCTL_NOTIF_SEND, &message) != 0 && installer &&
        --installer->installed == 0)
        *installer = installers[--installer_count];
}

void filters_prepare(const struct plan *plan)
{
    static struct source requests = {handle};

    if (confine_listener() < 0)
        return;
    no_namespaces = plan->no_namespaces;
    int error = serve_watch(confine_listener(), &requests);
    if (error)
        report_failure(-error, "init.serve", "seccomp");
}
