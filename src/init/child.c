/* SPDX-License-Identifier: Apache-2.0 */

/* The child shares PID 1's memory until execve (CLONE_VM): nothing is copied, and it
 * reports a failure by a word in that memory.  PID 1 does not wait for it as vfork(2)
 * does, since root inside can stop the child on its way and would stop PID 1 with it.  So
 * the child runs concurrently, on its own stack, and may touch nothing but its `struct
 * child`: no errno (the thread pointer is PID 1's), no malloc, no C library function that
 * uses them.  Therefore its system calls are raw. */
#include "init/child.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "init/confine.h"
#include "init/report.h"
#include "init/subreaper.h"
#include "sys/clone.h"
#include "sys/raw.h"

enum {
    WAIT_MS = 50,
    KERNEL_SIGNALS = 8, /* bytes of the kernel's sigset_t */
    ARGUMENT_PAGES = 32 /* the kernel's limit for one argument */
};

static struct child *cached;
static int null_fd = -1;
static rlim_t max_processes;     /* 0: only the cgroup's limit */
static bool has_higher_priority; /* PID 1's priority is above the commands' */
static int commands_nice;
static struct rlimit commands_cpu,
    commands_file_size;    /* limits that would kill PID 1 itself */
static bool is_unconfined; /* commands have the caller's rights */

/* --- The child --- */

static long address(const void *pointer)
{
    return (long)(uintptr_t)pointer;
}

/* Each command is a process group of its own.  It gets its own session only with a
 * terminal: a session is also a scheduling group, which takes longer to create than all
 * the rest of this and would give a sandbox with many commands a larger share of the
 * processor.
 *
 * The descriptors were shared with PID 1 until now.  PID 1's are never 0 to 2; these
 * three are inherited. */
static int take_stdio(const struct request *request)
{
    bool tty = request->flags & EXEC_TTY;
    long error = raw_call(SYS_unshare, CLONE_FILES, 0, 0, 0, 0);

    if (error >= 0 && tty)
        error = raw_call(SYS_setsid, 0, 0, 0, 0, 0);
    else if (error >= 0)
        error = raw_call(SYS_setpgid, 0, 0, 0, 0, 0);

    for (int i = 0; i < 3 && error >= 0; i++) {
        int fd = request->stdio[tty ? 0 : i];
        error = raw_call(SYS_dup3, fd < 0 ? null_fd : fd, i, 0, 0, 0);
    }
    if (error >= 0 && tty)
        error = raw_call(SYS_ioctl, 0, TIOCSCTTY, 0, 0, 0);
    if (error >= 0)
        error = raw_call(SYS_close_range, 3, UINT32_MAX, 0, 0, 0);
    return error < 0 ? (int)-error : 0;
}

/* A landlock domain that PID 1 itself must not have. */
static int landlock_self(void)
{
    long error = 0;

    if (confine_ruleset() >= 0)
        error = raw_call(SYS_landlock_restrict_self, confine_ruleset(), 0, 0, 0, 0);
    return error < 0 ? (int)-error : 0;
}

static int set_user(const struct user *user)
{
    if (user->is_us)
        return 0;
    long error =
        raw_call(SYS_setgroups, (long)user->group_count, address(user->groups), 0, 0, 0);

    if (error >= 0 && !is_unconfined) /* for CONFINE_INIT_CAP: see drop_caps() */
        error = raw_call(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0);
    if (error >= 0)
        error = raw_call(SYS_setresgid, user->gid, user->gid, user->gid, 0, 0);
    if (error >= 0)
        error = raw_call(SYS_setresuid, user->uid, user->uid, user->uid, 0, 0);
    return error < 0 ? (int)-error : 0;
}

/* Set in the child only: PID 1 must be able to clone when the sandbox is at its process
 * limit. */
static int set_rlimits(void)
{
    const struct rlimit most = {max_processes, max_processes};
    long error = 0;

    if (max_processes)
        error = raw_call(SYS_prlimit64, 0, RLIMIT_NPROC, address(&most), 0, 0);
    if (error >= 0)
        error = raw_call(SYS_prlimit64, 0, RLIMIT_CPU, address(&commands_cpu), 0, 0);
    if (error >= 0)
        error =
            raw_call(SYS_prlimit64, 0, RLIMIT_FSIZE, address(&commands_file_size), 0, 0);
    if (has_higher_priority && error >= 0)
        error = raw_call(SYS_setpriority, PRIO_PROCESS, 0, commands_nice, 0, 0);
    if (confine_files_limit() && error >= 0)
        error = raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, address(confine_files_limit()),
                         0, 0);
    return error < 0 ? (int)-error : 0;
}

/* Paths chosen inside, such as a home, are resolved with the capabilities of the command:
 * with PID 1's own, /proc/1/fd would lead out of the sandbox.  The capability that keeps
 * other processes of the same user from reading PID 1's memory, which the child still
 * shares, goes at execve. */
static int drop_caps(const struct user *user)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    uint32_t kept = user->uid == 0 ? CONFINE_ROOT_CAPS : 0;
    long error = raw_call(SYS_capget, address(&header), address(data), 0, 0, 0);

    if (error >= 0) {
        data[0].permitted &= kept | CONFINE_INIT_CAP;
        data[0].effective = data[0].permitted & kept;
        data[1].effective = data[1].permitted = 0;
        data[0].inheritable = data[1].inheritable = 0;
        error = raw_call(SYS_capset, address(&header), address(data), 0, 0, 0);
    }
    return error < 0 ? (int)-error : 0;
}

static long enter(const char *path)
{
    return raw_call(SYS_chdir, address(path), 0, 0, 0, 0);
}

/* A missing home is not an error (start in /); a missing working directory is. */
static int change_directory(const struct request *request)
{
    const char *cwd = request->cwd, *base = request->base;
    long error = 0;

    if (*cwd != '/') {
        error = enter(*base ? base : request->user.home);
        if (error < 0 && !*base && !*cwd)
            error = enter("/");
    }
    if (error >= 0 && *cwd)
        error = enter(cwd);
    return error < 0 ? (int)-error : 0;
}

/* Executes a copy of the program of PID 1: a fresh image, no file in the root, and no
 * path of the host, which the program may be. */
static int execute_own(char *const *argv, long env)
{
    enum { WITH_EXEC = 0x0010 /* MFD_EXEC; unknown before Linux 6.3 */, PIECE = 1 << 20 };
    long fd =
        raw_call(SYS_memfd_create, address(argv[0]), MFD_CLOEXEC | WITH_EXEC, 0, 0, 0);
    long from = raw_call(SYS_openat, AT_FDCWD, address("/proc/self/exe"),
                         O_RDONLY | O_CLOEXEC, 0, 0);
    long len = from < 0 ? from : 1;

    if (fd == -EINVAL)
        fd = raw_call(SYS_memfd_create, address(argv[0]), MFD_CLOEXEC, 0, 0, 0);
    while (fd >= 0 && from >= 0 && len != 0) {
        len = raw_call(SYS_sendfile, fd, from, 0, PIECE, 0);
        if (len < 0)
            break;
    }
    return (int)-(fd < 0    ? fd
                  : len < 0 ? len
                            : raw_call(SYS_execveat, fd, address(""), address(argv), env,
                                       AT_EMPTY_PATH));
}

/* Like execvpe(3), but the error of a file that exists takes precedence over ENOENT. */
static int execute(const struct child *child)
{
    char *const *argv = child->request.argv;
    const char *name = argv[0];
    long env = address(child->request.env);
    int error = ENOENT;

    if (child->request.is_own)
        return execute_own(argv, env);
    if (strchr(name, '/'))
        return (int)-raw_call(SYS_execve, address(name), address(argv), env, 0, 0);
    size_t len = strlen(name);
    for (const char *at = child->search; *name;) {
        char path[PATH_MAX];
        size_t part = strcspn(at, ":");
        if (part + len + sizeof "./" <= sizeof path) {
            memcpy(path, at, part);
            memcpy(path + part, part ? "/" : "./", part ? 1 : 2);
            memcpy(path + part + (part ? 1 : 2), name, len + 1);
            int here =
                (int)-raw_call(SYS_execve, address(path), address(argv), env, 0, 0);
            if (here != ENOENT && here != ENOTDIR)
                error = here;
            if (here == ENOEXEC || here == E2BIG || here == ENOMEM)
                break;
        }
        if (!at[part])
            break;
        at += part + 1;
    }
    return error;
}

static void run_child(void *cookie)
{
    struct child *child = cookie;
    const struct request *request = &child->request;
    const uint64_t none = 0;
    int error;

    while (!__atomic_load_n(&child->released, __ATOMIC_ACQUIRE))
        (void)raw_call(SYS_futex, address(&child->released), FUTEX_WAIT, 0, 0, 0);
    __atomic_store_n(&child->running, 1, __ATOMIC_RELEASE);
    error = landlock_self();
    if (!error)
        error = take_stdio(request);
    if (!error)
        error = (int)-raw_call(SYS_rt_sigprocmask, SIG_SETMASK, address(&none), 0,
                               KERNEL_SIGNALS, 0);
    if (!error)
        error = set_rlimits();
    if (!error) {
        child->step = "exec.user";
        error = set_user(&request->user);
    }
    if (!error && !is_unconfined)
        error = drop_caps(&request->user);
    if (!error)
        error = confine_add_suid_filter();
    if (!error) {
        child->step = "exec.cwd";
        error = change_directory(request);
    }
    if (!error) {
        child->step = "exec.program";
        error = execute(child);
    }
    child->error = error;
    for (;;)
        (void)raw_call(SYS_exit_group, 127, 0, 0, 0, 0);
}

/* --- The parent --- */

void child_prepare(const struct plan *plan)
{
    struct rlimit now;

    /* The creator's own limit may be lower than the requested one and cannot be raised.
     */
    max_processes = plan->max_processes;
    if (max_processes && getrlimit(RLIMIT_NPROC, &now) == 0 &&
        now.rlim_max < max_processes)
        max_processes = now.rlim_max;
    commands_nice = plan->nice;
    commands_cpu = plan->cpu_time;
    commands_file_size = plan->file_size;
    has_higher_priority = getpriority(PRIO_PROCESS, 0) < plan->nice;
    is_unconfined = plan->unconfined;
    confine_prepare_suid_filter(plan);
    null_fd = openat(AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0)
        report_failure(errno, "init.serve", "/dev/null");
}

struct child *child_new(void)
{
    struct child *child = cached ? cached : malloc(sizeof *child);

    cached = NULL;
    if (!child)
        return NULL;
    request_init(&child->request);
    child->alive = child->released = child->running = 0;
    child->has_subreaper = false;
    child->error = 0;
    child->step = "exec.start";
    return child;
}

void child_free(struct child *child)
{
    if (!child)
        return;
    request_done(&child->request);
    if (cached)
        free(child);
    else
        cached = child;
}

pid_t child_start(struct child *child, struct exec_cgroup *cgroup)
{
    struct clone_args args = {
        .flags = (__u64)(CLONE_VM | CLONE_CHILD_CLEARTID) |
                 (cgroup ? (__u64)CLONE_FILES | CLONE_INTO_CGROUP : 0),
        .child_tid = (__u64)(uintptr_t)&child->alive,
        .exit_signal = SIGCHLD,
        .stack = (__u64)(uintptr_t)child->stack,
        .stack_size = sizeof child->stack,
        .cgroup = cgroup ? (__u64)cgroup->fd : 0,
    };

    child->has_subreaper = cgroup && cgroup->has_subreaper;
    if (child->has_subreaper)
        return subreaper_start(child, cgroup);
    child->running = 0;
    __atomic_store_n(&child->alive, 1, __ATOMIC_SEQ_CST);
    return (pid_t)clone_run(&args, run_child, child);
}

void child_release(struct child *child)
{
    char *const *env = child->request.env;

    while (strncmp(*env, "PATH=", 5) != 0) /* request.c adds one */
        env++;
    child->search = *env + 5;
    __atomic_store_n(&child->released, 1, __ATOMIC_SEQ_CST);
    if (child->alive)
        (void)syscall(SYS_futex, &child->released, FUTEX_WAKE, 1, NULL, NULL, 0);
}

bool child_is_done(const struct child *child)
{
    return __atomic_load_n(&child->alive, __ATOMIC_ACQUIRE) == 0;
}

void child_wait(struct child *child)
{
    const struct timespec most = {.tv_nsec = WAIT_MS * 1000000L};

    if (child->has_subreaper)
        subreaper_wait(child, WAIT_MS);
    else if (!child_is_done(child))
        (void)syscall(SYS_futex, &child->alive, FUTEX_WAIT, 1, &most, NULL, 0);
}

int child_error(const struct child *child, struct cay_error *err)
{
    const struct request *request = &child->request;
    const char *words = cay_errno_words(child->error);

    if (!child->error)
        return CAY_OK;
    if (strcmp(child->step, "exec.cwd") == 0) {
        const char *where = *request->cwd    ? request->cwd
                            : *request->base ? request->base
                                             : request->user.home;
        int code = child->error == ENOENT    ? CAY_E_NOT_FOUND
                   : child->error == ENOTDIR ? CAY_E_NOT_A_DIRECTORY
                   : child->error == EACCES  ? CAY_E_DENIED
                                             : CAY_E_INVALID;
        return cay_fail(
            err, code, child->error, child->step, where, words,
            "the working directory must exist, and user %s must be allowed to enter it",
            request->user.name);
    }
    if (strcmp(child->step, "exec.user") == 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, child->error, child->step,
                        request->user.name, "this sandbox does not have that user id",
                        "run the command as the sandbox's default user");
    if (child->error == E2BIG)
        return cay_fail(
            err, CAY_E_INVALID, E2BIG, child->step, request->argv[0],
            "the arguments and environment are too long",
            "one argument may have %ld KiB, all together 2 MiB; pass large data on stdin",
            sysconf(_SC_PAGESIZE) * ARGUMENT_PAGES >> 10);
    return cay_fail(err, CAY_E_EXEC_FAILED, child->error, child->step, request->argv[0],
                    words, "check that the file exists and that user %s may execute it",
                    request->user.name);
}
