/* SPDX-License-Identifier: Apache-2.0 */

/* The library may be part of a large program with many threads, so nothing is forked:
 * clones share the memory of this process until they execute or exit, and touch only
 * their `struct child`; not even errno, so their system calls are raw ones.  There are
 * two clones, so that a sandbox is never a child of the calling program: the first clones
 * the second, which becomes cay-init, and exits.  For root the first clone starts early
 * and creates the sandbox's network, which takes longest.  The second runs in parallel
 * with this process.  It executes before its user ids are mapped, as an overflow uid, and
 * would lose its capabilities; ambient capabilities preserve them. */
#include "native/make/launch.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/confine.h"
#include "native/make/program.h"
#include "native/process/wire.h"
#include "sys/clone.h"
#include "sys/io.h"
#include "sys/raw.h"
#include "sys/rights.h"

static const char op[] = "sandbox.create";

enum {
    START_MS = 10000,
    KILL_MS = 10000,
    NICE_STEPS = 5, /* nice(2) steps by which PID 1 precedes commands */
    GONE_MS = 10,   /* from the first refused operation of a dying process to its end */
    STACK_SIZE = 16 << 10,
    HIGH_FD = 16
};

_Static_assert((int)STATUS_FD == (int)CLONE_SOCKET, "as clone_execute() places it");

enum order { ORDER_NONE, ORDER_AWAITED, ORDER_GO, ORDER_STOP };

/* The second clone reads this until it executes, so it must not change before.  If the
 * first clone creates a network, the rest is filled in meanwhile, before ORDER_GO. */
struct child {
    bool makes_network, has_network, is_relayed;
    bool is_dumpable; /* whether the memory of this process is dumpable, and has to stay
                         so */
    pid_t maker;
    _Atomic(uint32_t) order;
    int status, program, group;
    enum setup_kind kind;
    uid_t owner;                   /* of the user namespace; 0: this process's user */
    unsigned long processors[128]; /* the CPU affinity: as many bits as x86 can have */
    long processors_size;
    bool is_on_one_cpu; /* it may use no other */
    bool is_in_order;   /* the clones run on the CPU of their creator */
    pid_t first;
    int pidfd;
    long pid;
    int error;
    int sockets[COLLECT_SOCKETS]; /* of a relayed network that the first clone creates */
    struct collect collect;
    char stacks[2][STACK_SIZE] __attribute__((aligned(16)));
};

static struct child static_child;
static atomic_flag is_taken = ATOMIC_FLAG_INIT;

/* --- In the clones --- */

/* Capabilities that PID 1 keeps, and those it needs during setup.  CAP_SYS_RESOURCE is
 * for max_user_namespaces. */
enum {
    KEPT_CAPS = CONFINE_ROOT_CAPS | CONFINE_INIT_CAP | 1u << CAP_SETPCAP |
                1u << CAP_NET_ADMIN | 1u << CAP_SYS_ADMIN | 1u << CAP_SYS_RESOURCE |
                1u << CAP_SYS_CHROOT
};

IN_CLONE static void keep_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (raw_call(SYS_capget, (long)&header, (long)data, 0, 0, 0) != 0)
        return;
    data[0].inheritable = data[0].permitted & KEPT_CAPS;
    (void)raw_call(SYS_capset, (long)&header, (long)data, 0, 0, 0);
    for (int i = 0; i < 32; i++)
        if (data[0].inheritable & 1u << i)
            (void)raw_call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0);
}

IN_CLONE static void become_init(void *cookie)
{
    struct child *child = cookie;
    enum setup_kind what = child->has_network ? SETUP_FILES : child->kind;
    char name[] = "cay-init", kind[] = {(char)('0' + what), '\0'};
    char *argv[] = {name, kind, NULL}, *env[] = {NULL};

    if (child->kind != SETUP_HOST)
        keep_capabilities();
    (void)raw_call(SYS_setsid, 0, 0, 0, 0, 0);
    if (!child->is_on_one_cpu)
        (void)raw_call(SYS_sched_setaffinity, 0, child->processors_size,
                       (long)child->processors, 0, 0);
    child->error = (int)-clone_execute(child->status, child->program, argv, env);
    for (;;)
        (void)raw_call(SYS_exit_group, 1, 0, 0, 0, 0);
}

/* The creator is busy on its CPU and this clone is about to exit: its child gets this CPU
 * instead of waiting for the creator's. */
IN_CLONE static void pin_to_this_cpu(void)
{
    unsigned processor = 0;
    cpu_set_t only;

    if (raw_call(SYS_getcpu, (long)&processor, 0, 0, 0, 0) != 0 ||
        processor >= CPU_SETSIZE)
        return;
    for (size_t i = 0; i < sizeof only / sizeof *only.__bits; i++)
        only.__bits[i] = 0;
    CPU_SET(processor, &only);
    (void)raw_call(SYS_sched_setaffinity, 0, sizeof only, (long)&only, 0, 0);
}

/* The kernel charges per-user limits (inotify, pending signals, processes) also to the
 * owner of the user namespace.  With one owner for all, one sandbox could use up the
 * limits of all others and of the host's root.  The shared memory must stay dumpable, and
 * the capabilities are needed for the cgroup. */
IN_CLONE static long become_owner(uid_t owner, bool is_dumpable)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (!owner)
        return 0;
    long error = raw_call(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0);
    if (!error)
        error = raw_call(SYS_setresuid, owner, owner, owner, 0, 0);
    if (!error)
        error = raw_call(SYS_capget, (long)&header, (long)data, 0, 0, 0);
    for (int i = 0; i < 2 && !error; i++)
        data[i].effective = data[i].permitted;
    if (!error)
        error = raw_call(SYS_capset, (long)&header, (long)data, 0, 0, 0);
    if (is_dumpable)
        (void)raw_call(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
    return error;
}

IN_CLONE static bool raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    long fd = raw_call(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0, 0, 0);

    if (fd < 0)
        return false;
    long error = raw_call(SYS_ioctl, fd, SIOCSIFFLAGS, (long)&request, 0, 0);
    (void)raw_call(SYS_close, fd, 0, 0, 0, 0);
    return !error;
}

IN_CLONE static bool open_ports(void)
{
    long fd = raw_call(SYS_openat, AT_FDCWD,
                       (long)"/proc/sys/net/ipv4/ip_unprivileged_port_start",
                       O_WRONLY | O_CLOEXEC, 0, 0);

    if (fd < 0)
        return false;
    long put = raw_call(SYS_write, fd, (long)"0", 1, 0, 0);
    (void)raw_call(SYS_close, fd, 0, 0, 0, 0);
    return put == 1;
}

/* The network namespace belongs to the host, so root inside cannot configure it.  To let
 * it listen on any port, no port is privileged there.  If this fails, as in a container
 * with a read-only /proc/sys, PID 1 creates the network namespace. */
IN_CLONE static bool make_network(struct child *child)
{
    enum collect_step step;

    if (raw_call(SYS_unshare, CLONE_NEWNET, 0, 0, 0, 0) != 0 || !open_ports())
        return false;
    return child->is_relayed ? collect_start(&child->collect, child->sockets, &step) == 0
                             : raise_loopback();
}

/* The creator may have died; PR_SET_PDEATHSIG covers that. */
IN_CLONE static bool await_order(struct child *child)
{
    uint32_t none = ORDER_NONE;

    if (atomic_compare_exchange_strong(&child->order, &none, ORDER_AWAITED))
        while (atomic_load(&child->order) == ORDER_AWAITED)
            (void)raw_call(SYS_futex, (long)&child->order, FUTEX_WAIT_PRIVATE,
                           ORDER_AWAITED, 0, 0);
    return atomic_load(&child->order) == ORDER_GO;
}

IN_CLONE static bool may_continue(struct child *child)
{
    if (!child->makes_network)
        return true;
    if (raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ||
        raw_call(SYS_getppid, 0, 0, 0, 0, 0) != child->maker)
        return false;
    child->has_network = make_network(child);
    return await_order(child);
}

/* PID 1 ends hundreds of running processes at their timeout, so it needs a higher
 * priority than they have.  Commands get the priority of the creator. */
IN_CLONE static void raise_priority(void)
{
    long nice = 20 - raw_call(SYS_getpriority, PRIO_PROCESS, 0, 0, 0, 0);

    (void)raw_call(SYS_setpriority, PRIO_PROCESS, 0, nice - NICE_STEPS, 0, 0);
}

/* Raises limits that would kill PID 1, which may run for long, as far as permitted.
 * Commands get the creator's limits. */
IN_CLONE static void lift_limit(int resource)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit now = none;

    if (raw_call(SYS_prlimit64, 0, resource, (long)&none, 0, 0) == 0 ||
        raw_call(SYS_prlimit64, 0, resource, 0, (long)&now, 0) != 0)
        return;
    now.rlim_cur = now.rlim_max;
    (void)raw_call(SYS_prlimit64, 0, resource, (long)&now, 0, 0);
}

IN_CLONE static void clone_init(struct child *child)
{
    const __u64 namespaces =
        child->kind >= SETUP_NOTHING ? 0 : CLONE_NEWUSER | CLONE_NEWPID;
    const struct clone_args args = {
        .flags = (__u64)(CLONE_VM | CLONE_PIDFD) | CLONE_CLEAR_SIGHAND | namespaces |
                 (child->group >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (__u64)(uintptr_t)&child->pidfd,
        .stack = (__u64)(uintptr_t)child->stacks[1],
        .stack_size = STACK_SIZE,
        .cgroup = child->group >= 0 ? (__u64)child->group : 0,
    };

    if (!child->is_in_order)
        pin_to_this_cpu();
    lift_limit(RLIMIT_CPU);
    lift_limit(RLIMIT_FSIZE);
    if (child->owner)
        raise_priority();
    child->pid = become_owner(child->owner, child->is_dumpable);
    if (child->pid == 0)
        child->pid = clone_run(&args, become_init, child);
}

IN_CLONE static void run_first_clone(void *cookie)
{
    if (may_continue(cookie))
        clone_init(cookie);
    for (;;)
        (void)raw_call(SYS_exit_group, 0, 0, 0, 0, 0);
}

/* --- In the caller --- */

/* Whether the kernel would find an idle CPU for another process: "0.20 0.18 0.12 1/80
 * 11206" has the number of processes that run now, this one included. */
static bool has_idle_cpu(int allowed)
{
    char text[64];

    if (allowed <= 1 || io_read_text(AT_FDCWD, "/proc/loadavg", text, sizeof text) <= 0)
        return allowed > 1;
    const char *end = strchr(text, '/'), *at = end;
    while (at > text && at[-1] != ' ')
        at--;
    return !end || strtol(at, NULL, 10) < allowed;
}

/* Without an idle CPU, clones that start on another one wait there for its processes,
 * while this process waits for them: they start on this one, and run when it waits. */
static long start_clone(struct child *child)
{
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_FILES,
        .stack = (__u64)(uintptr_t)child->stacks[0],
        .stack_size = STACK_SIZE,
    };
    int allowed =
        CPU_COUNT_S((size_t)child->processors_size, (cpu_set_t *)child->processors);

    child->is_on_one_cpu = allowed == 1;
    child->is_in_order = !has_idle_cpu(allowed);
    bool is_pinned = child->is_in_order && !child->is_on_one_cpu;
    if (is_pinned)
        pin_to_this_cpu();
    long first = clone_run(&args, run_first_clone, child);
    if (is_pinned)
        (void)syscall(SYS_sched_setaffinity, 0, child->processors_size,
                      child->processors);
    return first;
}

/* The first clone shares the descriptor table, so that the pidfd is valid here. */
static int start_child(struct child *child)
{
    sigset_t all, before;

    /* cpu_set_t is too small for the largest machines. */
    child->processors_size =
        syscall(SYS_sched_getaffinity, 0, sizeof child->processors, child->processors);
    if (child->processors_size < 0)
        return -errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long first = start_clone(child);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    child->first = (pid_t)first;
    return first < 0 ? (int)first : 0;
}

static void set_order(struct child *child, enum order order)
{
    if (atomic_exchange(&child->order, order) == ORDER_AWAITED)
        (void)syscall(SYS_futex, &child->order, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Duplicates the descriptor to a number that the new process does not need. */
static int release_child(struct child *child, int status)
{
    child->status = fcntl(status, F_DUPFD_CLOEXEC, HIGH_FD);
    if (child->status < 0)
        return errno == EINVAL ? -EMFILE
                               : -errno; /* RLIMIT_NOFILE may be below these numbers */
    if (!child->makes_network)
        return start_child(child);
    set_order(child, ORDER_GO);
    return 0;
}

static void free_child(struct child *child)
{
    auto_close(&child->status);
    auto_close(&child->program);
    for (size_t i = 0; i < COLLECT_SOCKETS; i++)
        auto_close(&child->sockets[i]);
    if (child == &static_child)
        atomic_flag_clear(&is_taken);
    else
        free(child);
}

/* Names the resource that ran out, if one did. */
static int fail_start(int error, struct cay_error *err)
{
    static const char launch[] = "sandbox.launch", program[] = "cay-init";

    if (cay_errno_is_shortage(error))
        return cay_fail_errno(err, error, launch, program);
    if (error == EAGAIN)
        return cay_fail(err, CAY_E_UNAVAILABLE, error, launch, program,
                        "cannot start another process",
                        "end some processes, or raise the limit (ulimit -u, or pids.max "
                        "of this cgroup)");
    if (error == ENOSPC)
        return cay_fail(err, CAY_E_UNAVAILABLE, error, launch, program,
                        "cannot create another namespace",
                        "kill some sandboxes, or raise user.max_user_namespaces and the "
                        "other user.max_*_namespaces");
    return cay_fail(err, CAY_E_UNAVAILABLE, error, launch, program,
                    "cannot start PID 1 of the sandbox",
                    "run cay doctor to see what this machine lacks");
}

/* The first sandbox of a process at a time uses static memory: to unmap memory that a
 * clone has used interrupts the CPU it ran on. */
static struct child *take_memory(void)
{
    return atomic_flag_test_and_set(&is_taken) ? malloc(sizeof(struct child))
                                               : &static_child;
}

static struct child *new_child(bool is_dumpable)
{
    struct child *child = take_memory();

    if (!child)
        return NULL;
    child->status = child->program = child->pidfd = -1;
    child->pid = child->error = 0;
    child->makes_network = child->has_network = child->is_relayed = false;
    for (size_t i = 0; i < COLLECT_SOCKETS; i++)
        child->sockets[i] = -1;
    child->is_dumpable = is_dumpable;
    child->maker = getpid();
    atomic_init(&child->order, ORDER_NONE);
    return child;
}

static void wait_for_first(const struct child *child)
{
    /* __WCLONE: a child that the program's own wait(2) does not see. */
    while (waitpid(child->first, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        continue;
}

void launch_network(struct launch *launch, bool is_relayed)
{
    struct child *child = new_child(launch->is_dumpable);

    if (!child)
        return;
    child->makes_network = true;
    child->is_relayed = is_relayed;
    if (is_relayed)
        collect_build(&child->collect);
    if (start_child(child) == 0)
        launch->child = child;
    else
        free_child(child);
}

void launch_cancel(struct launch *launch)
{
    struct child *child = launch->child;

    if (!child)
        return;
    set_order(child, ORDER_STOP);
    wait_for_first(child);
    free_child(child);
    launch->child = NULL;
}

int launch_begin(int group, enum setup_kind kind, uid_t owner, struct launch *launch,
                 struct cay_error *err)
{
    /* With an owner it runs as a user id of the sandbox. */
    AUTO_FD program = program_open(PROGRAM_INIT, owner != 0, HIGH_FD, err);
    int ends[2];

    if (program < 0)
        return program;
    struct child *child = launch->child ? launch->child : new_child(launch->is_dumpable);
    if (!child)
        return cay_fail_memory(err, op);
    child->program = TAKE_FD(program);
    child->group = group;
    child->kind = kind;
    child->owner = owner;
    int error =
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : -errno;
    if (!error) {
        error = release_child(child, ends[1]);
        (void)close(ends[1]);
        if (error)
            (void)close(ends[0]);
    }
    if (error) {
        if (!launch->child)
            free_child(child);
        return fail_start(-error, err);
    }
    *launch = (struct launch){.child = child, .status = ends[0], .pidfd = -1};
    return CAY_OK;
}

bool launch_is_cloned(const struct launch *launch)
{
    siginfo_t ended = {0};

    return launch->has_pid || (waitid(P_PID, (id_t)launch->child->first, &ended,
                                      WEXITED | WNOHANG | WNOWAIT | (int)__WCLONE) == 0 &&
                               ended.si_pid != 0);
}

int launch_wait_clone(struct launch *launch, struct cay_error *err)
{
    struct child *child = launch->child;

    wait_for_first(child);
    launch->has_pid = true;
    if (child->pid <= 0)
        return fail_start((int)-child->pid, err);
    launch->pid = (pid_t)child->pid;
    launch->pidfd = child->pidfd;
    return CAY_OK;
}

/* Until cay-init has executed, its files in /proc belong to the shared memory, and are
 * inaccessible if this process is not dumpable. */
static bool may_be_hidden(void)
{
    return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 1;
}

void launch_start_map(struct launch *launch, const struct idmap *map)
{
    if (!map->by_helper || may_be_hidden())
        return;
    idmap_begin(map, launch->pid, &launch->helpers);
    launch->mapping = true;
}

int launch_map(struct launch *launch, const struct idmap *map, struct cay_error *err)
{
    int error =
        launch->mapping ? idmap_finish(&launch->helpers) : idmap_write(map, launch->pid);

    launch->mapping = false;
    for (int tries = 0; (error == -EACCES || error == -EPERM) && may_be_hidden() &&
                        tries < (map->by_helper ? 10 : 100);
         tries++) {
        clock_sleep_ms(1);
        error = idmap_write(map, launch->pid);
    }
    if (!error)
        return CAY_OK;
    struct pollfd ended = {.fd = launch->pidfd, .events = POLLIN};
    if (poll(&ended, 1, GONE_MS) == 1) /* its own report is more specific */
        return launch_wait(launch, -1, err);
    if (cay_errno_is_shortage(-error) || error == -EAGAIN)
        return fail_start(-error, err); /* a shortage, not a refusal */
    return cay_fail(err, CAY_E_UNAVAILABLE, -error, "sandbox.map",
                    map->by_helper ? "newuidmap" : "uid_map",
                    "cannot write the sandbox's uid and gid maps",
                    "run cay doctor to see what this machine lacks");
}

/* Reports why cay-init has exited. */
static int fail_exited(const struct launch *launch, struct cay_error *err)
{
    const struct child *child = launch->child;

    if (child->error)
        return cay_fail(err, CAY_E_UNAVAILABLE, child->error, "sandbox.launch",
                        "cay-init", "cannot execute PID 1 of the sandbox",
                        "run cay doctor to see what this machine lacks");
    return cay_fail(err, CAY_E_KILLED, 0, op, "cay-init",
                    "PID 1 of the sandbox died during setup",
                    "the kernel log (dmesg) may show the cause");
}

/* What cay-init sends. */
union report {
    struct cay_error error;
    struct plan_sockets sockets;
};

int launch_send(const struct launch *launch, const void *order, size_t len,
                const int *fds, size_t count, struct cay_error *err)
{
    const struct iovec part = {(void *)(uintptr_t)order, len};

    if (rights_send(launch->status, &part, 1, fds, count, 0) == 0)
        return CAY_OK;
    /* It may have reported why it exited. */
    int code = launch_wait(launch, -1, err);
    return code ? code : fail_exited(launch, err);
}

/* Whether there is an event on the descriptor, or PID 1 has exited.  This process also
 * holds the other end of the status socket, so POLLHUP does not show an exit. */
static bool wait_for_event(const struct launch *launch, int fd)
{
    struct pollfd waiting[] = {{.fd = fd, .events = POLLIN},
                               {.fd = launch->pidfd, .events = POLLIN}};
    int ready;

    do
        ready = poll(waiting, 2, START_MS);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* The message with the sockets, if nothing failed before. */
static ssize_t receive_sockets(const struct launch *launch, union report *ret_report,
                               int ret_sockets[COLLECT_SOCKETS], size_t *ret_count)
{
    struct iovec part = {ret_report, sizeof *ret_report};

    if (!wait_for_event(launch, launch->status))
        return -ETIMEDOUT;
    return rights_receive(launch->status, &part, 1, ret_sockets, COLLECT_SOCKETS,
                          ret_count, MSG_DONTWAIT);
}

int launch_sockets(const struct launch *launch, int ret_sockets[COLLECT_SOCKETS],
                   struct cay_error *err)
{
    struct child *child = launch->child;
    union report report;
    size_t count = 0;

    if (child->has_network) {
        for (size_t i = 0; i < COLLECT_SOCKETS; i++)
            ret_sockets[i] = TAKE_FD(child->sockets[i]);
        return CAY_OK;
    }
    ssize_t got = receive_sockets(launch, &report, ret_sockets, &count);
    if (got == sizeof report.sockets && count == COLLECT_SOCKETS)
        return CAY_OK;
    rights_close(ret_sockets, count);
    return got == sizeof report.error
               ? wire_error(&report.error, sizeof report.error, err)
               : fail_exited(launch, err);
}

/* Sockets that were not received: an earlier step has failed. */
static ssize_t receive_report(const struct launch *launch, union report *ret_report)
{
    ssize_t got;

    do
        got = recv(launch->status, ret_report, sizeof *ret_report, MSG_DONTWAIT);
    while (got == sizeof ret_report->sockets);
    return got;
}

int launch_wait(const struct launch *launch, int connection, struct cay_error *err)
{
    union report report;
    bool is_in_time = true;
    ssize_t got = -1;

    if (connection >= 0) {
        is_in_time = wait_for_event(launch, connection);
        got = receive_report(launch, &report);
    }
    if (got < 0 && is_in_time) {
        is_in_time = wait_for_event(launch, launch->status);
        got = receive_report(launch, &report);
    }
    if (got < 0 && !is_in_time)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, "cay-init",
                        "the sandbox did not start in time",
                        "the machine may be overloaded; try again");
    if (got != sizeof report.error)
        return fail_exited(launch, err);
    if (report.error.code == CAY_OK)
        return CAY_OK;
    return wire_error(&report.error, sizeof report.error, err);
}

void launch_done(struct launch *launch, bool ready)
{
    struct child *child = launch->child;

    if (!launch->has_pid)
        (void)!launch_wait_clone(launch, NULL);
    if (launch->mapping)
        (void)idmap_finish(&launch->helpers);
    /* It shares this process's memory until it has executed or exited. */
    if (!ready && launch->pidfd >= 0) {
        struct pollfd ended = {.fd = launch->pidfd, .events = POLLIN};
        (void)syscall(SYS_pidfd_send_signal, launch->pidfd, SIGKILL, NULL, 0);
        while (poll(&ended, 1, KILL_MS) < 0 && errno == EINTR)
            continue;
    }
    free_child(child);
    launch->child = NULL;
}
