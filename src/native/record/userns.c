/* SPDX-License-Identifier: Apache-2.0 */

/* The process is cloned with CLONE_VM and has the thread-local storage of its creator.
 * So only one of them may use the C library at a time: the clone makes raw calls until
 * the map is written, and the creator from then on until the clone has exited. */
#include "native/record/userns.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "native/record/idmap.h"
#include "sys/clone.h"
#include "sys/fsid.h"
#include "sys/raw.h"

static const char op[] = "userns.run";

enum { STACK_SIZE = 8 << 20, GUARD_SIZE = 64 << 10, PAUSE_NS = 100000000 };

enum order { ORDER_WAIT, ORDER_RUN, ORDER_EXIT };

struct visit {
    int (*act)(void *cookie, struct cay_error *err);
    void *cookie;
    struct cay_error *err;
    _Atomic(uint32_t) order;
    pid_t creator;
    int pidfd;
    bool is_dumpable; /* whether the shared memory has to stay dumpable */
    int error;        /* an errno of the clone before act() */
    int code;
};

/* The identity changes the death signal and the dumpable flag. */
IN_CLONE static long become_root(const struct visit *visit)
{
    long error = raw_call(SYS_setgroups, 0, 0, 0, 0, 0);

    if (error == -EPERM) /* denied without subordinate ids */
        error = 0;
    if (!error)
        error = raw_call(SYS_setresgid, 0, 0, 0, 0, 0);
    if (!error)
        error = raw_call(SYS_setresuid, 0, 0, 0, 0, 0);
    if (!error && visit->is_dumpable)
        error = raw_call(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (!error)
        error = raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    return error;
}

IN_CLONE static void run_clone(void *cookie)
{
    struct visit *visit = cookie;

    (void)raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    while (atomic_load(&visit->order) == ORDER_WAIT &&
           raw_call(SYS_getppid, 0, 0, 0, 0, 0) == visit->creator)
        (void)raw_call(SYS_futex, (long)&visit->order, FUTEX_WAIT_PRIVATE, ORDER_WAIT, 0,
                       0);
    long error =
        atomic_load(&visit->order) == ORDER_RUN ? become_root(visit) : -ECANCELED;
    visit->error = (int)-error;
    if (!error && raw_call(SYS_getppid, 0, 0, 0, 0, 0) == visit->creator)
        visit->code = visit->act(visit->cookie, visit->err);
    for (;;)
        (void)raw_call(SYS_exit_group, 0, 0, 0, 0, 0);
}

static long start(struct visit *visit, char *stack)
{
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_FILES | CLONE_NEWUSER | CLONE_PIDFD,
        .pidfd = (__u64)(uintptr_t)&visit->pidfd,
        .stack = (__u64)(uintptr_t)stack,
        .stack_size = STACK_SIZE,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = clone_run(&args, run_clone, visit);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

/* A callback may look for signals that its thread blocks, to be cancelled: those of the
 * creator are sent on.  Their handlers run here if they are not blocked. */
static void forward_signals(const struct visit *visit, uint64_t *sent)
{
    uint64_t pending = 0;

    if (raw_call(SYS_rt_sigpending, (long)&pending, sizeof pending, 0, 0, 0) != 0)
        return;
    for (int signal = 1; signal < SIGSYS; signal++)
        if (pending & ~*sent & UINT64_C(1) << (signal - 1))
            (void)raw_call(SYS_pidfd_send_signal, visit->pidfd, signal, 0, 0, 0);
    *sent |= pending;
}

static void release(struct visit *visit, long pid, enum order order)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct pollfd ended = {.fd = visit->pidfd, .events = POLLIN};
    uint64_t sent = 0;

    atomic_store(&visit->order, order);
    (void)raw_call(SYS_futex, (long)&visit->order, FUTEX_WAKE_PRIVATE, 1, 0, 0);
    for (;;) {
        struct timespec left = pause;
        long got = raw_call(SYS_ppoll, (long)&ended, 1, (long)&left, 0, 0);
        if (got != 0 && got != -EINTR)
            break;
        forward_signals(visit, &sent);
    }
    while (raw_call(SYS_wait4, pid, 0, (long)__WALL, 0, 0) == -EINTR)
        continue;
    (void)close(visit->pidfd);
}

static int write_map(long pid)
{
    struct subids users, groups;
    struct idmap map;

    if (subids_find(&users, &groups))
        idmap_for_range(&map, users.first, groups.first);
    else
        idmap_for_probe(&map);
    return idmap_write(&map, (pid_t)pid);
}

static int fail(int error, struct cay_error *err)
{
    if (cay_errno_is_shortage(error))
        return cay_fail_errno(err, error, op, "user namespace");
    return cay_fail(err, CAY_E_UNAVAILABLE, error, op, "user namespace",
                    "cannot create a user namespace with this user's ids",
                    "run cay doctor to see what this machine lacks");
}

static int run_on(char *stack, struct visit *visit)
{
    long pid = start(visit, stack);
    if (pid < 0)
        return fail((int)-pid, visit->err);
    int error = write_map(pid);
    release(visit, pid, error ? ORDER_EXIT : ORDER_RUN);
    if (error)
        return fail(-error, visit->err);
    if (visit->error)
        return fail(visit->error, visit->err);
    if (visit->code == CAY_E_KILLED)
        return cay_fail(visit->err, CAY_E_KILLED, 0, op, "user namespace",
                        "the process in the user namespace was killed",
                        "the kernel log (dmesg) may show the cause");
    return visit->code;
}

int userns_run(int (*act)(void *cookie, struct cay_error *err), void *cookie,
               struct cay_error *err)
{
    struct visit visit = {.act = act,
                          .cookie = cookie,
                          .err = err,
                          .creator = getpid(),
                          .code = CAY_E_KILLED};
    char *memory = mmap(NULL, GUARD_SIZE + STACK_SIZE, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return cay_fail_memory(err, op);
    visit.is_dumpable = fsid_begin();
    int code = mprotect(memory + GUARD_SIZE, STACK_SIZE, PROT_READ | PROT_WRITE) == 0
                   ? run_on(memory + GUARD_SIZE, &visit)
                   : cay_fail_memory(err, op);
    fsid_end();
    (void)munmap(memory, GUARD_SIZE + STACK_SIZE);
    return code;
}
