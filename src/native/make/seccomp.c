/* SPDX-License-Identifier: Apache-2.0 */

/* A BPF program: the architecture, then a binary search among the system call numbers,
 * with actions and argument rules as its leaves.  libseccomp's headers supply the numbers
 * of the architecture.  Its code generator is not used: it needs one comparison per
 * argument where a list of denied values needs several, and its programs are ten times as
 * long; the kernel processes the program for every sandbox, and compiling it took longer
 * than the rest of the creation. */
#include "native/make/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/memfd.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>

#include "base/error.h"
#include "native/make/syscalls.h"

/* --- Rules on arguments --- */

struct program {
    struct plan_filter *code;
    uint32_t len;
    uint32_t pass_at; /* see struct plan */
};

static void emit(struct program *program, uint16_t code, uint8_t jt, uint8_t jf,
                 uint32_t k)
{
    if (program->len < PLAN_FILTER_MAX)
        program->code[program->len++] = (struct plan_filter){code, jt, jf, k};
}

static void load(struct program *program, size_t offset)
{
    emit(program, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static size_t low_half(unsigned argument)
{
    return offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t);
}

static void refuse(struct program *program, int sys_errno)
{
    emit(program, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | (uint32_t)sys_errno);
}

/* Each of these denies, or falls through to the next rule. */

static void deny_values(struct program *program, unsigned argument,
                        const uint32_t *values, uint8_t count, int sys_errno)
{
    load(program, low_half(argument));
    for (uint8_t i = 0; i < count; i++)
        emit(program, BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(count - i), 0, values[i]);
    emit(program, BPF_JMP | BPF_JA, 0, 0, 1);
    refuse(program, sys_errno);
}

static void allow_values(struct program *program, unsigned argument,
                         const uint32_t *values, uint8_t count, int sys_errno)
{
    load(program, low_half(argument) + sizeof(uint32_t));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, (uint8_t)(count + 1), 0);
    load(program, low_half(argument));
    for (uint8_t i = 0; i < count; i++)
        emit(program, BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(count - i), 0, values[i]);
    refuse(program, sys_errno);
}

static void deny_bits(struct program *program, unsigned argument, const uint32_t *bits,
                      uint8_t count, int sys_errno)
{
    (void)count; /* one mask */
    load(program, low_half(argument));
    emit(program, BPF_JMP | BPF_JSET | BPF_K, 0, 1, *bits);
    refuse(program, sys_errno);
}

/* Of netlink only NETLINK_ROUTE is allowed, which lists addresses.  The errno is the one
 * by which useradd and similar programs detect a kernel without audit. */
static void deny_other_netlink(struct program *program)
{
    load(program, low_half(0));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 3, AF_NETLINK);
    load(program, low_half(2));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0);
    refuse(program, EPROTONOSUPPORT);
}

/* SOCK_PACKET gives a packet socket, whatever the family. */
static void deny_packets(struct program *program)
{
    load(program, low_half(1));
    emit(program, BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xF);
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SOCK_PACKET);
    refuse(program, EAFNOSUPPORT);
}

static void check_socket(struct program *program, enum filter_kind kind)
{
    static const uint32_t families[] = {AF_UNIX, AF_INET, AF_NETLINK, AF_INET6};
    static const uint8_t first[] = {0, 0, 0, 1}, count[] = {3, 4, 0, 3};
    static const uint32_t protocols[] = {0, 1 /* ICMP, and AF_UNIX's own */, 6 /* TCP */,
                                         17 /* UDP */, 58 /* ICMPv6 */};

    /* IPv6 code has had many vulnerabilities, and programs without a network do not need
     * it. Without namespaces AF_UNIX would reach socket files and abstract sockets of the
     * host. */
    allow_values(program, 0, families + first[kind], count[kind], EAFNOSUPPORT);
    deny_other_netlink(program);
    deny_packets(program);
    allow_values(program, 2, protocols, 5, EPROTONOSUPPORT);
}

/* One end of a datagram pair (SOCK_RAW is an alias) can be reconnected to any socket
 * file, and only this layer protects those of the host.  Stream and seqpacket pairs stay
 * connected to each other. */
static void deny_datagrams(struct program *program)
{
    load(program, low_half(1));
    emit(program, BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xF);
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, SOCK_STREAM);
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SOCK_SEQPACKET);
    refuse(program, ESOCKTNOSUPPORT);
}

static void check_pair(struct program *program, enum filter_kind kind)
{
    static const uint32_t families[] = {AF_UNIX};

    allow_values(program, 0, families, 1, EAFNOSUPPORT);
    if (kind >= FILTER_ALONE)
        deny_datagrams(program);
}

/* Only of the caller itself: PID 1 has the same uid as root inside, and needs its
 * descriptors. */
static void check_limits(struct program *program, enum filter_kind kind)
{
    static const uint32_t self[] = {0};

    (void)kind;
    allow_values(program, 0, self, 1, EPERM);
    load(program, low_half(1));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 5, RLIMIT_CORE);
    load(program,
         low_half(2)); /* with a new value; without one the call only reads the limit */
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0);
    load(program, low_half(2) + sizeof(uint32_t));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0);
    refuse(program, 0); /* as SYS_setrlimit below */
}

static void deny_options(struct program *program, uint32_t level, const uint32_t *names,
                         uint8_t count, int sys_errno)
{
    load(program, low_half(1));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, (uint8_t)(count + 3), level);
    deny_values(program, 2, names, count, sys_errno);
}

/* Socket filters use memory that is limited for the whole machine and not accounted to a
 * cgroup: filling it would prevent all further sandboxes. */
static void check_option(struct program *program, enum filter_kind kind)
{
    static const uint32_t filters[] = {SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF};
    static const uint32_t layers[] = {31 /* TCP_ULP */};
    /* close(2) of a lingering connection's last descriptor waits.  PID 1 closes
     * descriptors that were sent to it and never received, so the option is ignored. */
    static const uint32_t lingers[] = {SO_LINGER};

    (void)kind;
    deny_options(program, SOL_SOCKET, filters, 2, EPERM);
    deny_options(program, SOL_SOCKET, lingers, 1, 0);
    deny_options(program, IPPROTO_TCP, layers, 1, ENOPROTOOPT);
}

/* Filters use kernel memory that no cgroup accounts, and net.core.bpf_jit_limit is one
 * for the machine.  So PID 1 counts filters (init/filters.h), except for those it
 * installs on commands itself: these carry a number that nothing else inside knows. */

static void count_filter(struct program *program)
{
    emit(program, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF);
}

/* Without a program nothing is installed: libraries probe for support like this.  Skips
 * that many instructions. */
static void skip_without_program(struct program *program, uint8_t skipped)
{
    load(program, low_half(2));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0);
    load(program, low_half(2) + sizeof(uint32_t));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, skipped, 0, 0);
}

static void check_seccomp(struct program *program, enum filter_kind kind)
{
    (void)kind;
    load(program, low_half(0));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 9, SECCOMP_SET_MODE_FILTER);
    skip_without_program(program, 5);
    load(program, low_half(3));
    program->pass_at = program->len;
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0);
    load(program, low_half(3) + sizeof(uint32_t));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0);
    count_filter(program);
}

static void check_prctl(struct program *program, enum filter_kind kind)
{
    (void)kind;
    load(program, low_half(0));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 7, PR_SET_SECCOMP);
    load(program, low_half(1));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 5, SECCOMP_MODE_FILTER);
    skip_without_program(program, 1);
    count_filter(program);
}

/* Calls with argument rules: a function of their own, or one of the rules above with its
 * argument, errno and values. */
static const struct check {
    long number;
    void (*check)(struct program *program, enum filter_kind kind);
    void (*rule)(struct program *program, unsigned argument, const uint32_t *values,
                 uint8_t count, int sys_errno);
    unsigned argument;
    int sys_errno;
    uint8_t count;
    uint32_t values[6];
    bool is_for_alone; /* only without namespaces */
} checks[] = {
    {SYS_socket, check_socket},
    {SYS_socketpair, check_pair},
    {SYS_prlimit64, check_limits},
    {SYS_setsockopt, check_option},
    {SYS_seccomp, check_seccomp},
    {SYS_prctl, check_prctl},

    {SYS_ioctl,
     NULL,
     deny_values,
     1,
     EPERM,
     5,
     {TIOCSTI, TIOCCONS, TIOCSETD, TIOCSSERIAL, 0x541C /* TIOCLINUX */}},
    {SYS_fcntl, NULL, deny_values, 1, EPERM, 2, {F_SETLEASE, 1040 /* F_SETDELEG */}},
    {SYS_personality,
     NULL,
     allow_values,
     0,
     EPERM,
     6,
     {0, 8, 0x20000, 0x20008, 0x00040000, 0xFFFFFFFF}},
    /* Every CLONE_NEW... flag; the bit of the time namespace is part of the exit signal
     * here. */
    {SYS_clone, NULL, deny_bits, 0, EPERM, 1, {0x7E020000}},
    {SYS_unshare,
     NULL,
     deny_bits,
     0,
     EPERM,
     1,
     {~(uint32_t)(CLONE_FILES | CLONE_FS | CLONE_SYSVSEM)}},
    /* A core limit of 1 (see confine.c) must not be lowered to 0, which would start the
     * host's core handler again.  Programs that disable core dumps give up on failure, so
     * the call reports success; no core is dumped either way. */
    {SYS_setrlimit, NULL, deny_values, 0, 0, 1, {RLIMIT_CORE}},
    /* The page cache of shared files belongs to the host: the advice is ignored. */
    {SYS_fadvise64, NULL, deny_values, 3, 0, 1, {POSIX_FADV_DONTNEED}},
    /* Huge pages are reserved by the host, and no cgroup accounts them. */
    {SYS_mmap, NULL, deny_bits, 3, ENOMEM, 1, {MAP_HUGETLB}},
    {SYS_memfd_create, NULL, deny_bits, 1, EINVAL, 1, {MFD_HUGETLB}},
    {SYS_shmget, NULL, deny_bits, 2, ENOMEM, 1, {SHM_HUGETLB}},
    /* Merged pages reveal by timing what other processes have in memory. */
    {SYS_madvise, NULL, deny_values, 2, EINVAL, 1, {MADV_MERGEABLE}},
    /* Without namespaces other processes of the user can be addressed by their pids: only
     * 0, the caller itself. */
    {SYS_setpriority, NULL, allow_values, 1, EPERM, 1, {0}, true},
    {SYS_ioprio_set, NULL, allow_values, 1, EPERM, 1, {0}, true},
    {SYS_sched_setaffinity, NULL, allow_values, 0, EPERM, 1, {0}, true},
    {SYS_sched_setattr, NULL, allow_values, 0, EPERM, 1, {0}, true},
    {SYS_sched_setparam, NULL, allow_values, 0, EPERM, 1, {0}, true},
    {SYS_sched_setscheduler, NULL, allow_values, 0, EPERM, 1, {0}, true},
};

enum { CHECKS = sizeof checks / sizeof *checks };

/* --- System calls --- */

enum { NUMBERS = 1024, RANGES_MAX = 256, X32_BIT = 0x40000000, NEAR = 128 };

#if defined(__x86_64__)
enum { HAS_X32 = 1 };
static const uint32_t own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
enum { HAS_X32 = 0 };
static const uint32_t own_architecture = AUDIT_ARCH_AARCH64;
#endif

static void mark(const int *numbers, size_t count, uint32_t action,
                 uint32_t actions[NUMBERS])
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] >= 0 && numbers[i] < NUMBERS)
            actions[numbers[i]] = action;
}

/* Not an action of the kernel: an index into checks[] follows. */
enum { CHECKED = 0x00010000 };

/* Consecutive numbers with the same action. */
struct range {
    uint32_t first, action;
};

static size_t find_ranges(const uint32_t actions[NUMBERS],
                          struct range ranges[RANGES_MAX])
{
    size_t count = 0;

    for (uint32_t i = 0; i < NUMBERS && count < RANGES_MAX; i++)
        if (i == 0 || actions[i] != actions[i - 1])
            ranges[count++] = (struct range){i, actions[i]};
    return count;
}

static bool is_checked(const struct range *range)
{
    return range->action >= CHECKED && range->action < CHECKED + CHECKS;
}

/* Jumps to actions, each of which follows once, before it gets out of reach of a jump. */
struct jump {
    uint32_t at, action;
    bool is_upper;
};

struct search {
    struct program *program;
    enum filter_kind kind;
    struct jump jumps[2 * RANGES_MAX];
    size_t jump_count;
    bool fits; /* whether every jump reaches its target */
};

static void aim(struct search *search, uint32_t at, bool is_upper, uint32_t target)
{
    struct plan_filter *code = &search->program->code[at];
    uint32_t distance = target - at - 1;

    search->fits &= distance <= UINT8_MAX && at < search->program->len;
    if (search->fits)
        *(is_upper ? &code->jt : &code->jf) = (uint8_t)distance;
}

static void add_actions(struct search *search)
{
    struct program *program = search->program;

    for (size_t i = 0; i < search->jump_count; i++) {
        const struct jump *jump = &search->jumps[i];
        size_t same = 0;
        while (search->jumps[same].action != jump->action)
            same++;
        if (same == i) {
            for (size_t j = i; j < search->jump_count; j++)
                if (search->jumps[j].action == jump->action)
                    aim(search, search->jumps[j].at, search->jumps[j].is_upper,
                        program->len);
            emit(program, BPF_RET | BPF_K, 0, 0, jump->action);
        }
    }
    search->jump_count = 0;
}

static void search_ranges(struct search *search, const struct range *ranges,
                          size_t count);

/* One half of the comparison at `at`. */
static void search_half(struct search *search, uint32_t at, bool is_upper,
                        const struct range *ranges, size_t count)
{
    if (count == 1 && !is_checked(ranges)) {
        search->jumps[search->jump_count++] = (struct jump){at, ranges->action, is_upper};
        return;
    }
    if (search->jump_count && search->program->len - search->jumps[0].at > NEAR)
        add_actions(search);
    aim(search, at, is_upper, search->program->len);
    search_ranges(search, ranges, count);
}

static void add_check(struct search *search, const struct check *check)
{
    if (check->check)
        check->check(search->program, search->kind);
    else if (search->kind >= FILTER_ALONE || !check->is_for_alone)
        check->rule(search->program, check->argument, check->values, check->count,
                    check->sys_errno);
}

/* A binary search: the lower half follows its comparison, the upper half comes after
 * it. */
static void search_ranges(struct search *search, const struct range *ranges, size_t count)
{
    struct program *program = search->program;

    if (count == 1) {
        if (is_checked(ranges))
            add_check(search, &checks[ranges->action - CHECKED]);
        emit(program, BPF_RET | BPF_K, 0, 0,
             is_checked(ranges) ? SECCOMP_RET_ALLOW : ranges->action);
        return;
    }
    size_t lower = count / 2;
    uint32_t at = program->len;
    emit(program, BPF_JMP | BPF_JGE | BPF_K, 0, 0, ranges[lower].first);
    search_half(search, at, false, ranges, lower);
    search_half(search, at, true, ranges + lower, count - lower);
}

static void check_architecture(struct program *program)
{
    load(program, offsetof(struct seccomp_data, arch));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, own_architecture);
    emit(program, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    load(program, offsetof(struct seccomp_data, nr));
    if (!HAS_X32)
        return;
    /* -1 is a call that a tracer has cancelled. */
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, UINT32_MAX);
    emit(program, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    emit(program, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
}

static void find_actions(enum filter_kind kind, uint32_t actions[NUMBERS])
{
    for (size_t i = 0; i < NUMBERS; i++)
        actions[i] = SECCOMP_RET_ERRNO | ENOSYS;
    mark(calls_allowed, calls_allowed_count, SECCOMP_RET_ALLOW, actions);
    mark(calls_refused, calls_refused_count, SECCOMP_RET_ERRNO | EPERM, actions);
    if (kind >= FILTER_ALONE)
        mark(calls_refused_alone, calls_refused_alone_count, SECCOMP_RET_ERRNO | EPERM,
             actions);
    for (uint32_t i = 0; i < CHECKS; i++)
        if (actions[checks[i].number] == SECCOMP_RET_ALLOW)
            actions[checks[i].number] = CHECKED + i;
}

static int compile(enum filter_kind kind, struct program *program, uint32_t *ret_calls,
                   struct cay_error *err)
{
    uint32_t actions[NUMBERS];
    struct range ranges[RANGES_MAX];
    struct search search = {.program = program, .kind = kind, .fits = true};

    find_actions(kind, actions);
    size_t count = find_ranges(actions, ranges);
    check_architecture(program);
    search_ranges(&search, ranges, count);
    add_actions(&search);
    if (count == RANGES_MAX || !search.fits || program->len == PLAN_FILTER_MAX)
        return cay_fail(err, CAY_E_INTERNAL, 0, "sandbox.filter", "seccomp",
                        "cannot compile the seccomp filter",
                        "report this as a bug, with the version of libseccomp");
    *ret_calls = 0;
    for (size_t i = 0; i < NUMBERS; i++)
        *ret_calls += actions[i] == SECCOMP_RET_ALLOW ||
                      (actions[i] >= CHECKED && actions[i] < CHECKED + CHECKS);
    return CAY_OK;
}

static struct {
    pthread_mutex_t mutex;
    struct plan_filter code[FILTER_KINDS][PLAN_FILTER_MAX];
    struct filter filters[FILTER_KINDS]; /* of length 0 until compiled */
} compiled = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int filter_build(enum filter_kind kind, struct filter *ret_filter, struct cay_error *err)
{
    struct program program = {.code = compiled.code[kind]};
    struct filter *filter = &compiled.filters[kind];
    int code = CAY_OK;

    pthread_mutex_lock(&compiled.mutex);
    if (!filter->len) {
        code = compile(kind, &program, &filter->calls, err);
        if (!code) {
            filter->code = program.code;
            filter->len = program.len;
            filter->pass_at = program.pass_at;
        }
    }
    *ret_filter = *filter;
    pthread_mutex_unlock(&compiled.mutex);
    return code;
}
