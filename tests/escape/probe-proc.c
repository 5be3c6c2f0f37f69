/* SPDX-License-Identifier: Apache-2.0 */

/* What can be seen and opened: files of the kernel and the host, other processes, and
 * what was left open. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

/* --- Files --- */

static struct answer read_directory(int fd)
{
    DIR *directory = fdopendir(fd);
    int names = 0;

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        names += entry->d_name[0] != '.';
    if (names == 0)
        return answer_make(BLOCKED, BY_NOTHING_THERE, "empty");
    return answer_make(ESCAPE, 0, "%d names", names);
}

/* Something is to be read there. */
struct answer probe_read_file(const char *arg)
{
    struct stat st;
    char byte;
    int fd = open(arg, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return answer_path(fd);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        return read_directory(fd);
    ssize_t got = read(fd, &byte, 1);
    if (got > 0)
        return answer_make(ESCAPE, 0, "readable");
    if (got == 0)
        return answer_make(BLOCKED, BY_NOTHING_THERE, "empty");
    /* Nothing new in the log is the log all the same. */
    return answer_make(errno == EPERM ? BLOCKED : ESCAPE, errno, "opened");
}

/* An open suffices: reading the kernel's log would take lines from other readers. */
struct answer probe_log(const char *arg)
{
    struct stat st;

    (void)arg;
    if (stat("/proc/kmsg", &st) == 0 && S_ISCHR(st.st_mode))
        return answer_make(BLOCKED, BY_NOTHING_THERE, "masked");
    return answer_path(open("/proc/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

/* Opened for writing; nothing is written. */
struct answer probe_write_file(const char *arg)
{
    struct stat st;

    /* A mask is a null device, which everybody may write to. */
    if (stat(arg, &st) == 0 && S_ISCHR(st.st_mode))
        return answer_make(BLOCKED, ENOENT, "masked");
    return answer_path(open(arg, O_WRONLY | O_CLOEXEC));
}

struct answer probe_host_file(const char *arg)
{
    const char *canary = host_fact("CANARY");
    char text[64] = "";

    (void)arg;
    if (!canary)
        return answer_make(ERROR, 0, "no canary");
    int fd = open(canary, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return answer_path(fd);
    return answer_make(ESCAPE, 0, "%zd bytes", read(fd, text, sizeof text));
}

static bool is_strange_device(const char *path, const char *name, const struct stat *st)
{
    static const char *const known[] = {"null",    "zero", "full", "random",
                                        "urandom", "tty",  "ptmx", "console"};

    if (!S_ISCHR(st->st_mode) && !S_ISBLK(st->st_mode))
        return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return false;
    return !S_ISCHR(st->st_mode) || strncmp(path, "/dev/pts/", 9) != 0;
}

struct answer probe_devices(const char *arg)
{
    const char *found = find_below("/dev", is_strange_device);

    (void)arg;
    if (found)
        return answer_make(ESCAPE, 0, "%.120s", found);
    return answer_make(VIRTUALISED, 0, "the harmless ones");
}

struct answer probe_sys(const char *arg)
{
    (void)arg;
    int fd = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? answer_path(fd) : read_directory(fd);
}

static const char *wanted;
static bool was_seen;

static bool is_wanted(const char *path, const char *name, const struct stat *st)
{
    if (strcmp(name, wanted) != 0 || !S_ISREG(st->st_mode))
        return false;
    was_seen = true;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* A file of this name that can be opened for writing, anywhere. */
struct answer probe_cgroup_file(const char *arg)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/dev", "/run", "/mnt",
                                         "/opt"};

    wanted = arg;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *found = find_below(places[i], is_wanted);
        if (found)
            return answer_make(ESCAPE, 0, "%.120s", found);
    }
    if (was_seen)
        return answer_make(BLOCKED, EACCES, "seen, and refused");
    return answer_make(BLOCKED, BY_NOTHING_THERE, "none");
}

/* --- What was left open --- */

struct answer probe_descriptors(const char *arg)
{
    char link[64], target[128] = "";

    (void)arg;
    for (int fd = 3; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        (void)!readlink(link, target, sizeof target - 1);
        return answer_make(ESCAPE, 0, "%d is open: %.100s", fd, target);
    }
    struct stat st;
    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &st) != 0 ||
            !(S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode) || S_ISSOCK(st.st_mode)))
            return answer_make(ESCAPE, 0, "%d is a file of the host", fd);
    return answer_make(VIRTUALISED, 0, "0, 1 and 2");
}

/* Through a directory of the host that somebody forgot to close. */
struct answer probe_leaked(const char *arg)
{
    struct answer answer = answer_make(BLOCKED, EBADF, "none");

    (void)arg;
    for (int fd = 3; fd < 1024; fd++) {
        int file = openat(fd, "canary", O_RDONLY | O_CLOEXEC);
        if (file >= 0)
            return answer_make(ESCAPE, 0, "by descriptor %d", fd);
        if (errno == EACCES)
            answer = answer_path(-1);
    }
    return answer;
}

struct answer probe_core(const char *arg)
{
    struct rlimit limit = {0, 1};

    if (*arg && setrlimit(RLIMIT_CORE, &limit) != 0)
        return answer_make(ERROR, errno, "setrlimit");
    if (getrlimit(RLIMIT_CORE, &limit) != 0)
        return answer_make(ERROR, errno, "getrlimit");
    /* Only 1 also keeps them from a handler that is a program. */
    if (limit.rlim_cur != 1 || limit.rlim_max != 1)
        return answer_make(ESCAPE, 0, "cores may be dumped, or handed to a program");
    return answer_make(VIRTUALISED, 0, "no cores");
}

/* --- PID 1 --- */

struct answer probe_init_file(const char *arg)
{
    char text[256];
    struct stat st;

    if (lstat(arg, &st) != 0)
        return answer_path(-1);
    if (S_ISLNK(st.st_mode))
        return answer_path(readlink(arg, text, sizeof text));
    int fd = open(arg, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return answer_path(fd);
    if (S_ISDIR(st.st_mode))
        return read_directory(fd);
    /* Some of these open for everybody and refuse when they are read. */
    ssize_t got = read(fd, text, sizeof text);
    if (got < 0 && strstr(arg, "mem"))
        return answer_make(ESCAPE, errno, "opened");
    return answer_path(got);
}

/* What its descriptors are.  Their numbers alone are no secret. */
struct answer probe_init_links(const char *arg)
{
    struct answer answer = {0};
    char path[64];

    for (int fd = 0; fd < 32; fd++) {
        snprintf(path, sizeof path, "/proc/1/fd/%d", fd);
        struct stat st;
        if (lstat(path, &st) != 0 && errno == ENOENT)
            continue;
        answer = probe_init_file(path);
        if (answer.verdict == ESCAPE)
            return answer_make(ESCAPE, 0, "%s", path);
    }
    (void)arg;
    return answer.verdict ? answer : answer_make(ERROR, 0, "it has none");
}

static const char something[] = "a piece of memory that is where PID 1 has one too";

struct answer probe_init_memory(const char *arg)
{
    char here[16];
    struct iovec mine = {here, sizeof here};
    struct iovec its = {(void *)(uintptr_t)something, sizeof here};

    (void)arg;
    if (process_vm_readv(1, &mine, 1, &its, 1, 0) >= 0)
        return answer_make(ESCAPE, 0, "read");
    /* Asked for an address that PID 1 does not have, only who may look gets EFAULT. */
    return answer_call(-1);
}

struct answer probe_init_trace(const char *arg)
{
    (void)arg;
    long result = ptrace(PTRACE_SEIZE, 1, NULL, NULL);
    struct answer answer = answer_call(result);
    return answer;
}

/* --- Processes of the host --- */

/* Whether the number is that process and not one of ours by the same number. */
static bool is_host_process(long pid)
{
    char path[64], text[1024] = "";

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return false;
    close(fd);
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at && strtol(at + 1, NULL, 10) == host_number("HOST_START");
}

static struct answer not_there(void)
{
    return answer_make(BLOCKED, ESRCH, "not there");
}

struct answer probe_host_process(const char *arg)
{
    (void)arg;
    return is_host_process(host_number("HOST_PID")) ? answer_make(ESCAPE, 0, "seen")
                                                    : not_there();
}

/* Signal 0 asks and does nothing. */
struct answer probe_host_signal(const char *arg)
{
    long pid = host_number("HOST_PID");

    (void)arg;
    if (!is_host_process(pid))
        return not_there();
    return answer_call(kill((pid_t)pid, 0));
}

struct answer probe_host_pidfd(const char *arg)
{
    long pid = host_number("HOST_PID");

    (void)arg;
    if (!is_host_process(pid))
        return not_there();
    return answer_call(syscall(SYS_pidfd_open, pid, 0));
}

/* Does not stop it; our end lets go of it. */
struct answer probe_host_trace(const char *arg)
{
    long pid = host_number("HOST_PID");

    (void)arg;
    if (!is_host_process(pid))
        return not_there();
    return answer_call(ptrace(PTRACE_SEIZE, pid, NULL, NULL));
}

static struct answer enter(const char *arg)
{
    int fd = open(arg, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? answer_make(ERROR, errno, "%s", arg) : answer_call(setns(fd, 0));
}

/* Into its own: the right to enter is the question. */
struct answer probe_namespaces(const char *arg)
{
    (void)arg;
    return answer_of_child(enter, "/proc/self/ns/uts");
}

struct answer probe_keyring(const char *arg)
{
    (void)arg;
    long keyring = syscall(SYS_keyctl, 0l /* id of a keyring */, -3l /* session */, 0l);
    return answer_call(keyring);
}

/* --- Priorities --- */

struct answer probe_priority(const char *arg)
{
    (void)arg;
    return answer_call(setpriority(PRIO_PROCESS, 0, -5));
}

struct answer probe_scheduler(const char *arg)
{
    struct sched_param parameters = {.sched_priority = 1};

    (void)arg;
    int result = sched_setscheduler(0, SCHED_FIFO, &parameters);
    struct answer answer = answer_call(result);
    parameters.sched_priority = 0;
    (void)sched_setscheduler(0, SCHED_OTHER, &parameters);
    return answer;
}

struct answer probe_io_priority(const char *arg)
{
    (void)arg;
    return answer_call(syscall(SYS_ioprio_set, 1l, 0l, 1l << 13 /* real time */));
}
