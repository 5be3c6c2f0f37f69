/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/visit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "native/make/inherit.h"
#include "sys/clone.h"
#include "sys/raw.h"
#include "sys/shift.h"

enum { STACK_SIZE = 32 << 10, NICE_LAST = 19 };

struct visit {
    int namespace;
    int (*run)(void *cookie);
    void *cookie;
    int result;
    char stack[STACK_SIZE] __attribute__((aligned(16)));
};

IN_CLONE static void run_inside(void *cookie)
{
    struct visit *visit = cookie;

    visit->result =
        setns(visit->namespace, CLONE_NEWNS) == 0 ? visit->run(visit->cookie) : -errno;
    _exit(0);
}

int visit_open(pid_t init)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)init);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Runs a process that shares memory and descriptors to its end. */
static int run_clone(void (*run)(void *cookie), void *cookie, char *stack)
{
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_FILES,
        .stack = (__u64)(uintptr_t)stack,
        .stack_size = STACK_SIZE,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = clone_run(&args, run, cookie);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (pid > 0 && waitpid((pid_t)pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        continue;
    return pid < 0 ? (int)pid : 0;
}

int visit_run(int namespace, int (*run)(void *cookie), void *cookie)
{
    struct visit *visit = malloc(sizeof *visit);
    if (!visit)
        return -ENOMEM;
    visit->namespace = namespace;
    visit->run = run;
    visit->cookie = cookie;
    visit->result = -EIO;
    int result = run_clone(run_inside, visit, visit->stack);
    if (!result)
        result = visit->result;
    free(visit);
    return result;
}

/* --- Work that leaves something to be released --- */

/* The kernel resumes the process that waits for a vfork when the memory is released,
 * before it closes descriptors.  The first process only waits for that, so that the
 * second one is nobody's zombie. */
struct closing_visit {
    struct visit visit;
    int home; /* the mount namespace of this process */
    long pid;
    char stack[STACK_SIZE] __attribute__((aligned(16)));
};

/* Locks and pipes of this process must not stay open meanwhile, nor the namespace. */
IN_CLONE static int leave(const struct closing_visit *job, int kept)
{
    int error = setns(job->home, CLONE_NEWNS) == 0 ? 0 : -errno;

    if (kept > 0)
        (void)raw_call(SYS_close_range, 0, kept - 1, 0, 0, 0);
    (void)raw_call(SYS_close_range, kept + 1, UINT_MAX, 0, 0, 0);
    (void)raw_call(SYS_setpriority, PRIO_PROCESS, 0, NICE_LAST, 0, 0);
    return error;
}

IN_CLONE static void run_and_exit(void *cookie)
{
    struct closing_visit *job = cookie;
    struct visit *visit = &job->visit;
    int result =
        setns(visit->namespace, CLONE_NEWNS) == 0 ? visit->run(visit->cookie) : -errno;

    if (result >= 0)
        result = leave(job, result);
    visit->result = result;
    _exit(0);
}

IN_CLONE static void start_second(void *cookie)
{
    struct closing_visit *job = cookie;
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK,
        .stack = (__u64)(uintptr_t)job->stack,
        .stack_size = STACK_SIZE,
    };

    job->pid = clone_run(&args, run_and_exit, job);
    _exit(0);
}

int visit_run_and_close(int namespace, int (*run)(void *cookie), void *cookie)
{
    struct closing_visit *job = calloc(1, sizeof *job);
    if (!job)
        return -ENOMEM;
    job->visit.namespace = namespace;
    job->visit.run = run;
    job->visit.cookie = cookie;
    job->visit.result = -EIO;
    job->home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    int result = job->home < 0 ? -errno : run_clone(start_second, job, job->visit.stack);
    if (!result)
        result = job->pid < 0 ? (int)job->pid : job->visit.result;
    auto_close(&job->home);
    free(job);
    return result;
}

/* --- Stores --- */

struct store_request {
    char path[48];
    int map; /* -1: none */
};

/* Cloned here: only the mount namespace of a mount may clone it. */
IN_CLONE static int clone_store(void *cookie)
{
    const struct store_request *request = cookie;

    if (request->map >= 0)
        return shift_mount_again(request->path, request->map,
                                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                     MOUNT_ATTR_RDONLY);
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, request->path,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int visit_shift_store(int namespace, int ancestor, int map)
{
    struct store_request request = {"/store", map};

    if (ancestor >= 0)
        snprintf(request.path, sizeof request.path, "/store/" INHERIT_DIRECTORY "/%d",
                 ancestor);
    return visit_run(namespace, clone_store, &request);
}

int visit_open_store(int namespace, int ancestor)
{
    return visit_shift_store(namespace, ancestor, -1);
}
