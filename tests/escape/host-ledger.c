/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../unit/harness.h"

static const char *const values[LEDGER_VALUES] = {
    "kernel/core_pattern",      "kernel/hostname",     "kernel/domainname",
    "user/max_user_namespaces", "net/ipv4/ip_forward", "kernel/tainted",
    "kernel/modprobe",          "vm/overcommit_memory"};

static ssize_t read_text(int directory, const char *path, char *text, size_t room)
{
    int fd = openat(directory, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, room - 1);

    text[len > 0 ? len : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return len;
}

static int64_t milliseconds(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void note_tree(int directory, char *text, size_t room)
{
    int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    char content[64];
    size_t len = 0;

    text[0] = '\0';
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        struct stat st;
        if (strcmp(entry->d_name, "..") == 0 ||
            fstatat(directory, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISREG(st.st_mode))
            (void)read_text(directory, entry->d_name, content, sizeof content);
        else
            content[0] = '\0';
        len += (size_t)snprintf(text + len, room - len, "%s %lu %o %u %lu %ld %ld %s\n",
                                entry->d_name, (unsigned long)st.st_ino, st.st_mode,
                                st.st_uid, (unsigned long)st.st_nlink, st.st_size,
                                st.st_mtim.tv_nsec,
                                strcmp(entry->d_name, "canary") == 0 ? content : "");
        ASSERT(len < room);
    }
    if (entries)
        closedir(entries);
}

void host_ledger_take(struct host_ledger *ledger, int directory)
{
    char path[128], number[32];

    memset(ledger, 0, sizeof *ledger);
    for (size_t i = 0; i < LEDGER_VALUES; i++) {
        snprintf(path, sizeof path, "/proc/sys/%s", values[i]);
        (void)read_text(AT_FDCWD, path, ledger->values[i], LEDGER_VALUE_MAX);
    }
    (void)read_text(AT_FDCWD, "/proc/sys/kernel/pty/nr", number, sizeof number);
    ledger->terminals = strtol(number, NULL, 10);
    ledger->clock_offset_ms = milliseconds(CLOCK_REALTIME) - milliseconds(CLOCK_BOOTTIME);
    note_tree(directory, ledger->tree, sizeof ledger->tree);
}

static void wait_a_little(void)
{
    const struct timespec time = {.tv_nsec = 20000000};

    nanosleep(&time, NULL);
}

void host_ledger_same(const struct host_ledger *before, int directory)
{
    static struct host_ledger after;

    host_ledger_take(&after, directory);
    for (size_t i = 0; i < LEDGER_VALUES; i++)
        ASSERT_STR(after.values[i], before->values[i]);
    ASSERT_STR(after.tree, before->tree);
    int64_t shift = after.clock_offset_ms - before->clock_offset_ms;
    if (shift > 1000 || shift < -1000)
        harness_fail(__FILE__, __LINE__, "the clock was set by %lld ms",
                     (long long)shift);
    /* Terminals go when their last user has, which may take a moment; and others on a
     * machine that is not ours alone may open some. */
    const char *alone = getenv("CAY_MUST_WORK");
    if (!alone || strcmp(alone, "1") != 0)
        return;
    for (int tries = 0; after.terminals > before->terminals && tries < 250; tries++) {
        wait_a_little();
        host_ledger_take(&after, directory);
    }
    ASSERT(after.terminals <= before->terminals);
}

/* --- What bears the marks of a sandbox --- */

/* One line of /proc/PID/status, as a number. */
static unsigned long number_of(const char *status, const char *name)
{
    const char *line = strstr(status, name);

    return line ? strtoul(line + strlen(name), NULL, 10) : 0;
}

static bool read_status(unsigned long pid, char *status, size_t room)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%lu/status", pid);
    return read_text(AT_FDCWD, path, status, room) > 0;
}

static bool descends(unsigned long pid, pid_t init)
{
    char status[2048];

    for (int depth = 0; pid > 1 && depth < 256; depth++) {
        if (pid == (unsigned long)init)
            return true;
        if (!read_status(pid, status, sizeof status))
            return false;
        pid = number_of(status, "\nPPid:");
    }
    return false;
}

static size_t count_processes(const struct host_mark *mark,
                              bool (*counts)(long pid, const char *id))
{
    DIR *directory = opendir("/proc");
    size_t count = 0;

    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        unsigned long pid = strtoul(entry->d_name, NULL, 10);
        char status[2048];
        /* A dead one that its new parent has not looked at yet is not ours to wait for.
         */
        if (!pid || !read_status(pid, status, sizeof status) ||
            strstr(status, "\nState:\tZ"))
            continue;
        unsigned long uid = number_of(status, "\nUid:");
        if ((mark->first ? uid - mark->first < mark->count : descends(pid, mark->init)) &&
            counts((long)pid, mark->id))
            count++;
    }
    if (directory)
        closedir(directory);
    return count;
}

static bool always(long pid, const char *id)
{
    (void)pid, (void)id;
    return true;
}

size_t host_processes(const struct host_mark *mark)
{
    return count_processes(mark, always);
}

static bool is_command(long pid, const char *id)
{
    char status[2048];

    (void)id;
    return read_status((unsigned long)pid, status, sizeof status) &&
           strncmp(status, "Name:\tcay-init\n", 15) != 0;
}

size_t host_commands(const struct host_mark *mark)
{
    return count_processes(mark, is_command);
}

/* Of one that ends, the kernel tells no cgroup v1 any more. */
static bool is_ending(long pid)
{
    enum { PF_EXITING = 4 };
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    const char *at =
        read_text(AT_FDCWD, path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 9; field++)
        at = strchr(at + 1, ' ');
    return !at || strtoul(at, NULL, 10) & PF_EXITING;
}

/* In the hierarchy that kills, and in that which counts processes if it is another. */
static bool is_outside(long pid, const char *id)
{
    static const char *const ours[] = {"0::", ":pids:"};
    char path[64], text[4096];

    snprintf(path, sizeof path, "/proc/%ld/cgroup", pid);
    if (read_text(AT_FDCWD, path, text, sizeof text) <= 0)
        return false; /* it is gone */
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        const char *line = strstr(text, ours[i]);
        const char *end = line ? strchr(line, '\n') : NULL;
        if (end && !memmem(line, (size_t)(end - line), id, strlen(id)))
            return !is_ending(pid);
    }
    return false;
}

size_t host_outside_cgroup(const struct host_mark *mark)
{
    return count_processes(mark, is_outside);
}

/* What has the text in its name, at most `depth` deep. */
static size_t count_names(int parent, const char *name, const char *text, int depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    size_t count = 0;

    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        count += strstr(entry->d_name, text) != NULL;
        if (depth > 0 && entry->d_type == DT_DIR)
            count += count_names(fd, entry->d_name, text, depth - 1);
    }
    if (directory)
        closedir(directory);
    return count;
}

static size_t count_mounts(const char *text)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[8192];
    size_t count = 0;

    while (file && fgets(line, sizeof line, file))
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return count;
}

static const char *runtime_of_us(void)
{
    const char *own = getenv("XDG_RUNTIME_DIR");

    return geteuid() == 0 ? "/run" : own ? own : "/nowhere";
}

/* The id of the sandbox that has its range of user ids now; "" if it is free. */
static const char *owner_of_range(const struct host_mark *mark)
{
    static char owner[64];
    char path[512];

    snprintf(path, sizeof path, "%s/cay/ranges/%lx", runtime_of_us(), mark->first >> 16);
    ssize_t len = readlink(path, owner, sizeof owner - 1);
    owner[len < 0 ? 0 : len] = '\0';
    return owner;
}

static size_t count_records(const struct host_mark *mark)
{
    return count_names(AT_FDCWD, runtime_of_us(), mark->id, 1) +
           count_names(AT_FDCWD, "/tmp", mark->id, 0) /* homes without a root */ +
           (strcmp(owner_of_range(mark), mark->id) == 0);
}

/* Another program on this machine may have created a sandbox with the same range since.
 */
static bool has_processes(const struct host_mark *mark)
{
    const char *owner = owner_of_range(mark);

    return host_processes(mark) > 0 && (!*owner || strcmp(owner, mark->id) == 0);
}

void host_ledger_nothing_left(const struct host_mark *mark)
{
    for (int tries = 0; has_processes(mark) && tries < 250; tries++)
        wait_a_little();
    ASSERT(!has_processes(mark));
    ASSERT_INT(count_names(AT_FDCWD, "/sys/fs/cgroup", mark->id, 12), 0);
    ASSERT_INT(count_mounts(mark->id), 0);
    ASSERT_INT(count_mounts("host/canary"), 0);
    ASSERT_INT(count_records(mark), 0);
}

unsigned long long host_start_time(pid_t pid)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    ASSERT(read_text(AT_FDCWD, path, text, sizeof text) > 0);
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    ASSERT(at);
    return strtoull(at + 1, NULL, 10);
}
