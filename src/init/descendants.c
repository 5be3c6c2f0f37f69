/* SPDX-License-Identifier: Apache-2.0 */
#include "init/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

enum {
    ENTRIES_MAX = 1 << 20,
    PASSES_MAX = 64,
    START_FIELD = 22, /* of /proc/PID/stat; the name before ")" is 2 */
    MANY = 16
};

struct entry {
    pid_t pid, parent;
    unsigned long long start; /* start time: detects a reused pid */
    char state;
    bool is_ours;
};

/* Sorted by pid, as /proc lists them.  Without a PID namespace these are all processes of
 * the host. */
static struct entry *entries;
static size_t entry_room;

static bool (*is_excluded)(pid_t pid);

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

static bool read_stat(const char *name, struct entry *ret_entry)
{
    char path[300], text[512];

    if (name[0] < '1' || name[0] > '9')
        return false;
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (len <= 0)
        return false;
    text[len] = '\0';
    /* "pid (name) state parent": the name may contain any byte. */
    const char *after = strrchr(text, ')');
    if (!after || strlen(after) < 5)
        return false;
    *ret_entry = (struct entry){.pid = (pid_t)strtol(name, NULL, 10),
                                .parent = (pid_t)strtol(after + 4, NULL, 10),
                                .state = after[2]};
    for (int field = 2; after && field < START_FIELD; field++)
        after = strchr(after + 1, ' ');
    ret_entry->start = after ? strtoull(after, NULL, 10) : 0;
    return true;
}

/* Without a PID namespace the pid may have been reused by another process, unless it is
 * PID 1's own child. */
static void send_signal(const struct entry *one, int number)
{
    char name[16];
    struct entry now;

    if (getpid() == 1 || one->parent == getpid()) {
        (void)kill(one->pid, number);
        return;
    }
    AUTO_FD fd = (int)syscall(SYS_pidfd_open, one->pid, 0);
    snprintf(name, sizeof name, "%d", (int)one->pid);
    if (fd >= 0 && read_stat(name, &now) && now.start == one->start)
        (void)syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
}

static bool has_our_parent(const struct entry *one, size_t count)
{
    if (one->parent == getpid())
        return !is_excluded(one->pid);
    const struct entry *parent = find_process(one->parent, count);
    return parent && parent->is_ours;
}

static size_t list_processes(void)
{
    DIR *directory = opendir("/proc");
    size_t count = 0;
    bool found = true;

    for (struct dirent *entry;
         directory && make_room(count) && (entry = readdir(directory));)
        count += read_stat(entry->d_name, &entries[count]);
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
        if (entries[i].is_ours && !strchr("TtZX", entries[i].state)) {
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
            children += entries[i].parent == getpid();
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
        if (strchr("Tt", entries[i].state))
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

static size_t count_ours(size_t count)
{
    size_t ours = 0;

    for (size_t i = 0; i < count; i++)
        ours += entries[i].is_ours;
    return ours;
}

/* Whether there is a child that is not excluded: 1, 0, or -1 if the kernel has no list of
 * children (CONFIG_PROC_CHILDREN).  It returns one page at a time, some hundreds of pids;
 * a child stays listed until it is waited for. */
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
            if (pid > 0 && !is_excluded(pid))
                return 1;
            pid = 0;
        }
    return len < 0 ? -1 : 0;
}

/* Processes that fork faster than they die are stopped first: then they cannot fork, and
 * their number is bounded by the limit.  Without excluded children nothing is listed
 * first: a load inside may leave PID 1 too little processor time to walk a list. */
bool descendants_kill(bool (*excludes)(pid_t pid), bool has_excluded)
{
    is_excluded = excludes;
    int has = has_children();
    if (has == 0)
        return false;
    if (getpid() == 1 && !has_excluded && has > 0) {
        (void)kill(-1, SIGKILL);
        return true;
    }
    size_t count = list_processes();
    if (getpid() == 1 && count_ours(count) >= MANY)
        return kill_many(count) > 0;
    for (int pass = 0; pass < PASSES_MAX && stop_below() > 0; pass++)
        continue;
    return kill_below(list_processes()) > 0;
}
