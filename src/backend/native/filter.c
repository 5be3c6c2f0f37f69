/* SPDX-License-Identifier: Apache-2.0 */

/* Three parts: the architecture, rules on arguments, and a binary search among the
 * numbers.  libseccomp knows which number a name has on which architecture.  The program
 * is written here, because its own takes one comparison for each argument where a deny
 * list of values needs several, and is ten times as long: the kernel works on it for
 * every sandbox, and compiling it took longer than everything else. */
#include "backend/native/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "backend/native/filter-calls.h"
#include "base/error.h"

/* --- Rules on arguments --- */

struct program {
    struct plan_filter *code;
    uint32_t len;
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

/* The `len` instructions that follow are for this system call only. */
static void if_call(struct program *program, long number, uint8_t len)
{
    load(program, offsetof(struct seccomp_data, nr));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, len, (uint32_t)number);
}

static void deny_values(struct program *program, long number, unsigned argument,
                        const uint32_t *values, uint8_t count, int sys_errno)
{
    if_call(program, number, (uint8_t)(count + 3));
    load(program, low_half(argument));
    for (uint8_t i = 0; i < count; i++)
        emit(program, BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(count - i), 0, values[i]);
    emit(program, BPF_JMP | BPF_JA, 0, 0, 1);
    refuse(program, sys_errno);
}

static void allow_values(struct program *program, long number, unsigned argument,
                         const uint32_t *values, uint8_t count, int sys_errno)
{
    if_call(program, number, (uint8_t)(count + 4));
    load(program, low_half(argument) + sizeof(uint32_t));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, (uint8_t)(count + 1), 0);
    load(program, low_half(argument));
    for (uint8_t i = 0; i < count; i++)
        emit(program, BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(count - i), 0, values[i]);
    refuse(program, sys_errno);
}

static void deny_bits(struct program *program, long number, unsigned argument,
                      uint32_t bits, int sys_errno)
{
    if_call(program, number, 4);
    load(program, low_half(argument));
    emit(program, BPF_JMP | BPF_JSET | BPF_K, 1, 0, bits);
    emit(program, BPF_JMP | BPF_JA, 0, 0, 1);
    refuse(program, sys_errno);
}

/* Netlink is a world of its own; only the part that lists addresses is let in.  The errno
 * is the one by which useradd and its kin know a kernel without audit. */
static void deny_other_netlink(struct program *program)
{
    if_call(program, SYS_socket, 5);
    load(program, low_half(0));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 3, AF_NETLINK);
    load(program, low_half(2));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0);
    refuse(program, EPROTONOSUPPORT);
}

/* IPv6 code has had more holes than programs without a network have use for it.  Without
 * namespaces a socket file of the host's, and what listens at it, could be reached. */
static void add_socket_rules(struct program *program, enum filter_kind kind)
{
    static const uint32_t families[] = {AF_UNIX, AF_INET, AF_NETLINK, AF_INET6};
    static const uint8_t first[] = {0, 0, 0, 1}, count[] = {3, 4, 0, 3};

    allow_values(program, SYS_socket, 0, families + first[kind], count[kind],
                 EAFNOSUPPORT);
    deny_other_netlink(program);
}

/* Without namespaces the user's other programs can be named by their numbers. */
static void add_own_process_rules(struct program *program)
{
    static const uint32_t self[] = {0};

    allow_values(program, SYS_prlimit64, 0, self, 1, EPERM);
    allow_values(program, SYS_setpriority, 1, self, 1, EPERM);
}

static void add_argument_rules(struct program *program, enum filter_kind kind)
{
    static const uint32_t pairs[] = {AF_UNIX};
    static const uint32_t protocols[] = {33 /* DCCP */, 132 /* SCTP */,
                                         136 /* UDP-Lite */, 262 /* MPTCP */};
    static const uint32_t ioctls[] = {TIOCSTI, TIOCCONS, TIOCSETD,
                                      0x541C /* TIOCLINUX */};
    static const uint32_t leases[] = {F_SETLEASE};
    static const uint32_t personalities[] = {0,       8,          0x20000,
                                             0x20008, 0x00040000, 0xFFFFFFFF};
    const uint32_t namespaces = 0x7E020080; /* every CLONE_NEW... */
    const uint32_t unshareable = CLONE_FILES | CLONE_FS | CLONE_SYSVSEM;

    add_socket_rules(program, kind);
    if (kind >= FILTER_ALONE)
        add_own_process_rules(program);
    deny_values(program, SYS_socket, 2, protocols, 4, EPROTONOSUPPORT);
    allow_values(program, SYS_socketpair, 0, pairs, 1, EAFNOSUPPORT);
    deny_values(program, SYS_ioctl, 1, ioctls, 4, EPERM);
    deny_values(program, SYS_fcntl, 1, leases, 1, EPERM);
    allow_values(program, SYS_personality, 0, personalities, 6, EPERM);
    /* In clone(2) the time namespace's bit is part of the exit signal. */
    deny_bits(program, SYS_clone, 0, namespaces & ~0x80u, EPERM);
    deny_bits(program, SYS_unshare, 0, ~unshareable, EPERM);
}

/* --- Names --- */

enum { NUMBERS = 1024, RUNS_MAX = 256, X32_BIT = 0x40000000 };

#if defined(__x86_64__)
enum { HAS_X32 = 1 };
static const uint32_t own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
enum { HAS_X32 = 0 };
static const uint32_t own_architecture = AUDIT_ARCH_AARCH64;
#endif

static int mark(const char *const *names, uint32_t action, uint32_t actions[NUMBERS],
                const char **ret_name)
{
    for (; *names; names++) {
        int number = seccomp_syscall_resolve_name(*names);
        *ret_name = *names;
        if (number == __NR_SCMP_ERROR || number >= NUMBERS)
            return -ENOENT;
        if (number >= 0) /* else this architecture never had it */
            actions[number] = action;
    }
    return 0;
}

/* Neighbouring numbers with the same action. */
struct run {
    uint32_t first, action;
};

static size_t find_runs(const uint32_t actions[NUMBERS], struct run runs[RUNS_MAX])
{
    size_t count = 0;

    for (uint32_t i = 0; i < NUMBERS && count < RUNS_MAX; i++)
        if (i == 0 || actions[i] != actions[i - 1])
            runs[count++] = (struct run){i, actions[i]};
    return count;
}

static uint32_t size_of(size_t runs)
{
    return (uint32_t)(2 * runs - 1);
}

/* A binary search: the lower half follows its comparison, the upper half comes after. */
static void search_runs(struct program *program, const struct run *runs, size_t count)
{
    if (count == 1) {
        emit(program, BPF_RET | BPF_K, 0, 0, runs->action);
        return;
    }
    size_t lower = count / 2;
    emit(program, BPF_JMP | BPF_JGE | BPF_K, (uint8_t)size_of(lower), 0,
         runs[lower].first);
    search_runs(program, runs, lower);
    search_runs(program, runs + lower, count - lower);
}

static void check_architecture(struct program *program)
{
    load(program, offsetof(struct seccomp_data, arch));
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, own_architecture);
    emit(program, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    if (!HAS_X32)
        return;
    load(program, offsetof(struct seccomp_data, nr));
    /* All ones is a call that a tracer has taken back: no such call. */
    emit(program, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, UINT32_MAX);
    emit(program, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    emit(program, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
}

static int compile(enum filter_kind kind, struct program *program, uint32_t *ret_calls,
                   struct cay_error *err)
{
    const uint32_t refusal = SECCOMP_RET_ERRNO | EPERM;
    uint32_t actions[NUMBERS];
    struct run runs[RUNS_MAX];
    const char *name = "seccomp";

    for (size_t i = 0; i < NUMBERS; i++)
        actions[i] = SECCOMP_RET_ERRNO | ENOSYS;
    int error = mark(filter_allowed, SECCOMP_RET_ALLOW, actions, &name);
    if (!error)
        error = mark(filter_refused, refusal, actions, &name);
    if (!error && kind >= FILTER_ALONE)
        error = mark(filter_refused_alone, refusal, actions, &name);
    size_t count = find_runs(actions, runs);
    if (!error && count == RUNS_MAX)
        error = -E2BIG;
    if (error)
        return cay_fail(err, CAY_E_INTERNAL, -error, "sandbox.filter", name,
                        "the list of system calls cannot be made into a filter",
                        "report this with the version of libseccomp");
    check_architecture(program);
    add_argument_rules(program, kind);
    load(program, offsetof(struct seccomp_data, nr));
    search_runs(program, runs, count);
    for (size_t i = 0; i < NUMBERS; i++)
        *ret_calls += actions[i] == SECCOMP_RET_ALLOW;
    return CAY_OK;
}

static struct {
    pthread_mutex_t mutex;
    struct plan_filter code[FILTER_KINDS][PLAN_FILTER_MAX];
    uint32_t len[FILTER_KINDS]; /* 0 until it is compiled */
    uint32_t calls[FILTER_KINDS];
} compiled = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int filter_build(enum filter_kind kind, struct filter *ret_filter, struct cay_error *err)
{
    struct program program = {.code = compiled.code[kind]};
    int code = CAY_OK;

    pthread_mutex_lock(&compiled.mutex);
    if (!compiled.len[kind]) {
        compiled.calls[kind] = 0;
        code = compile(kind, &program, &compiled.calls[kind], err);
        if (!code)
            compiled.len[kind] = program.len;
    }
    *ret_filter = (struct filter){program.code, compiled.len[kind], compiled.calls[kind]};
    pthread_mutex_unlock(&compiled.mutex);
    return code;
}
