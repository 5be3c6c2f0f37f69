/* SPDX-License-Identifier: Apache-2.0 */

/* The library may sit in a large program with many threads, so nothing is forked: clones
 * share our memory until they execute or end, and touch nothing of it but their `struct
 * birth`.  There are two, so that a sandbox is never a child of the program that made it:
 * the first clones the second, which becomes cay-init, and ends.  The second executes
 * before its user ids are mapped, as nobody, and would lose its capabilities by that;
 * making them ambient takes them across. */
#include "backend/native/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/plan.h"
#include "sys/clone.h"
#include "sys/io.h"

static const char op[] = "sandbox.create";

/* cay-init itself, put into the library by src/init/embed. */
extern const unsigned char cay_init[];
extern const uint64_t cay_init_size;

enum {
    START_MS = 10000,
    STACK_SIZE = 16 << 10,
    PROGRAM_FD = FIRST_FREE_FD,
    HIGH_FD = 16
};

struct birth {
    int fds[5]; /* plan, status, listen, cgroup, program: what goes to 3 and upwards */
    int leaf;
    int pidfd;
    long pid;
    int error;
    char stacks[2][STACK_SIZE] __attribute__((aligned(16)));
};

/* A sealed copy: code inside can never change the program the next sandbox starts from.
 * One for each process, kept. */
static int open_program(struct cay_error *err)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int program = -1;
    static pid_t owner;

    pthread_mutex_lock(&mutex);
    int error = 0;
    if (program < 0 || owner != getpid()) {
        /* MFD_EXEC is needed where memfds are not executable unless asked for, and
         * unknown to kernels before 6.3. */
        int fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING | 0x0010u);
        if (fd < 0 && errno == EINVAL)
            fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        error = fd < 0 ? -errno : io_write(fd, cay_init, cay_init_size);
        if (!error &&
            fcntl(fd, F_ADD_SEALS,
                  F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
            error = -errno;
        if (error && fd >= 0)
            (void)close(fd);
        program = error ? -1 : fd;
        owner = getpid();
    }
    int fd = program;
    pthread_mutex_unlock(&mutex);
    return error ? cay_fail_errno(err, -error, op, "cay-init") : fd;
}

/* --- In the clone --- */

static void keep_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &header, data) != 0)
        return;
    data[0].inheritable = data[0].permitted;
    data[1].inheritable = data[1].permitted;
    (void)syscall(SYS_capset, &header, data);
    for (int i = 0; i < 64; i++)
        if (data[i / 32].permitted & 1u << i % 32)
            (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0);
}

static bool place_descriptors(const int fds[5])
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int i = 0; i < 3; i++)
        if (null < 0 || dup2(null, i) < 0) /* allow: dup2 these are to be inherited */
            return false;
    for (int i = 0; i < 4; i++)
        /* allow: dup2 these too */
        if (fds[i] >= 0 ? dup2(fds[i], PLAN_FD + i) < 0 : close(PLAN_FD + i), false)
            return false;
    return dup3(fds[4], PROGRAM_FD, O_CLOEXEC) >= 0 &&
           syscall(SYS_close_range, PROGRAM_FD + 1, ~0u, 0) == 0;
}

static void become_init(void *cookie)
{
    struct birth *birth = cookie;
    char name[] = "cay-init";
    char *argv[] = {name, NULL}, *env[] = {NULL};

    keep_capabilities();
    (void)setsid();
    if (place_descriptors(birth->fds))
        (void)syscall(SYS_execveat, PROGRAM_FD, "", argv, env, AT_EMPTY_PATH);
    birth->error = errno;
    _exit(1);
}

static void bear_init(void *cookie)
{
    struct birth *birth = cookie;
    const struct clone_args args = {
        .flags =
            (__u64)(CLONE_VM | CLONE_VFORK | CLONE_NEWUSER | CLONE_NEWPID | CLONE_PIDFD) |
            CLONE_CLEAR_SIGHAND | (birth->leaf >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (__u64)(uintptr_t)&birth->pidfd,
        .stack = (__u64)(uintptr_t)birth->stacks[1],
        .stack_size = STACK_SIZE,
        .cgroup = birth->leaf >= 0 ? (__u64)birth->leaf : 0,
    };

    birth->pid = clone_run(&args, become_init, birth);
    _exit(0);
}

/* --- Outside --- */

/* Out of the way of the numbers they are to have in the new process. */
static int lift(const int given[5], int ret_high[5])
{
    for (int i = 0; i < 5; i++)
        ret_high[i] = -1;
    for (int i = 0; i < 5; i++) {
        ret_high[i] = given[i] < 0 || given[i] >= HIGH_FD
                          ? given[i]
                          : fcntl(given[i], F_DUPFD_CLOEXEC, HIGH_FD);
        if (given[i] >= 0 && ret_high[i] < 0)
            return -errno;
    }
    return 0;
}

/* The descriptors are shared with the first clone, so that the pidfd is ours. */
static int give_birth(struct birth *birth)
{
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS,
        .stack = (__u64)(uintptr_t)birth->stacks[0],
        .stack_size = STACK_SIZE,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long first = clone_run(&args, bear_init, birth);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (first < 0)
        return (int)first;
    /* Not one that the program's own wait(2) could see. */
    while (waitpid((pid_t)first, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        continue;
    return birth->pid < 0 ? (int)birth->pid : -birth->error;
}

int launch_init(const struct launch *launch, pid_t *ret_pid, int *ret_pidfd,
                struct cay_error *err)
{
    int program = open_program(err);
    const int given[5] = {launch->plan, launch->status, launch->listen, launch->cgroup,
                          program};
    struct birth birth;

    if (program < 0)
        return program;
    birth.leaf = launch->leaf;
    birth.pidfd = birth.error = 0;
    birth.pid = -1;
    int error = lift(given, birth.fds);
    if (!error)
        error = give_birth(&birth);
    for (int i = 0; i < 5; i++)
        if (birth.fds[i] >= 0 && birth.fds[i] != given[i])
            (void)close(birth.fds[i]);
    if (error && birth.pid > 0)
        (void)close(birth.pidfd);
    if (error)
        return cay_fail(err, CAY_E_UNAVAILABLE, -error, op, "cay-init",
                        "the first process of the sandbox cannot be started",
                        "cay doctor tells what this machine lacks");
    *ret_pid = (pid_t)birth.pid;
    *ret_pidfd = birth.pidfd;
    return CAY_OK;
}

int launch_map(pid_t pid, uint32_t id_base, uint32_t id_count, struct cay_error *err)
{
    static const char *const names[] = {"uid_map", "gid_map"};
    char path[64], text[64];
    int len = snprintf(text, sizeof text, "0 %u %u\n", id_base, id_count);

    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, names[i]);
        AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, text, (size_t)len) != len)
            return cay_fail_errno(err, errno, op, names[i]);
    }
    return CAY_OK;
}

int launch_go(int status, const int *fds, size_t count, struct cay_error *err)
{
    char byte = 0;
    struct iovec part = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(PLAN_MOUNTS_MAX * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (count) {
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        memset(&control, 0, message.msg_controllen);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof *fds);
        memcpy(CMSG_DATA(header), fds, count * sizeof *fds);
    }
    if (sendmsg(status, &message, MSG_NOSIGNAL) == 1)
        return CAY_OK;
    /* It may have said why it is gone. */
    int error = errno;
    int code = launch_wait(status, err);
    return code ? code : cay_fail_errno(err, error, op, "cay-init");
}

int launch_wait(int status, struct cay_error *err)
{
    struct cay_error report;
    struct pollfd waiting = {.fd = status, .events = POLLIN};

    if (poll(&waiting, 1, START_MS) <= 0)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, "cay-init",
                        "the sandbox does not start",
                        "the machine may be overloaded; try again");
    if (recv(status, &report, sizeof report, 0) != sizeof report)
        return cay_fail(err, CAY_E_KILLED, 0, op, "cay-init",
                        "the sandbox's first process died while it was being set up",
                        "the kernel's log may say why");
    if (report.code == CAY_OK)
        return CAY_OK;
    return cay_fail(err, report.code, report.sys_errno,
                    strndupa(report.op, sizeof report.op - 1),
                    strndupa(report.subject, sizeof report.subject - 1),
                    strndupa(report.message, sizeof report.message - 1), "%s",
                    strndupa(report.hint, sizeof report.hint - 1));
}
