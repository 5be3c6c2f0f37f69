/* SPDX-License-Identifier: Apache-2.0 */

/* The filter itself, asked without a kernel: every number, every family, both halves of
 * the arguments.  What this kernel was built without is decided here all the same.  The
 * last test wants every instruction to have been executed by those before it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>

#include "../unit/harness.h"
#include "native/make/seccomp.h"
#include "native/make/syscalls.h"
#include "own-filter.h"

#if defined(__x86_64__)
#define OWN   AUDIT_ARCH_X86_64
#define OTHER AUDIT_ARCH_I386
#else
#define OWN   AUDIT_ARCH_AARCH64
#define OTHER AUDIT_ARCH_ARM
#endif

#define REFUSED(error) (SECCOMP_RET_ERRNO | (unsigned)(error))
#define UPPER          (1ull << 32)

static struct sock_filter *code;
static size_t len;
static bool covered[4096], elsewhere[4096];
static bool *marks = covered;

static uint32_t load(const struct seccomp_data *data, uint32_t offset)
{
    uint32_t value;

    ASSERT(offset % 4 == 0 && offset + 4 <= sizeof *data);
    memcpy(&value, (const char *)data + offset, sizeof value);
    return value;
}

static bool jumps(const struct sock_filter *at, uint32_t value)
{
    switch (BPF_OP(at->code)) {
    case BPF_JEQ:
        return value == at->k;
    case BPF_JGT:
        return value > at->k;
    case BPF_JGE:
        return value >= at->k;
    case BPF_JSET:
        return value & at->k;
    default:
        harness_fail(__FILE__, __LINE__, "unknown jump 0x%x", at->code);
    }
}

/* What the kernel would do.  Knows the instructions that the filter uses. */
static uint32_t run(const struct seccomp_data *data)
{
    uint32_t value = 0;

    for (size_t at = 0; at < len; at++) {
        marks[at] = true;
        switch (BPF_CLASS(code[at].code)) {
        case BPF_LD:
            ASSERT_INT(code[at].code, BPF_LD | BPF_W | BPF_ABS);
            value = load(data, code[at].k);
            break;
        case BPF_ALU:
            ASSERT_INT(code[at].code, BPF_ALU | BPF_AND | BPF_K);
            value &= code[at].k;
            break;
        case BPF_JMP:
            if (code[at].code == (BPF_JMP | BPF_JA))
                at += code[at].k;
            else
                at += jumps(&code[at], value) ? code[at].jt : code[at].jf;
            break;
        case BPF_RET:
            return code[at].k;
        default:
            harness_fail(__FILE__, __LINE__, "unknown instruction 0x%x", code[at].code);
        }
    }
    harness_fail(__FILE__, __LINE__, "fell off the end");
}

static uint32_t ask(uint32_t architecture, long number, uint64_t first, uint64_t second,
                    uint64_t third)
{
    const struct seccomp_data data = {
        .nr = (int)number, .arch = architecture, .args = {first, second, third}};

    if (!len)
        len = own_filter(&code);
    ASSERT(len > 0 && len < sizeof covered);
    return run(&data);
}

static uint32_t ask_own(long number, uint64_t first, uint64_t second, uint64_t third)
{
    return ask(OWN, number, first, second, third);
}

/* The same of another filter. */
static uint32_t ask_kind(enum filter_kind kind, long number, uint64_t first,
                         uint64_t second, uint64_t third)
{
    static struct sock_filter other[PLAN_FILTER_MAX];
    struct sock_filter *own = code;
    size_t own_len = len;
    struct filter filter;

    ASSERT_OK(filter_build(kind, &filter, &err));
    memcpy(other, filter.code, filter.len * sizeof *other);
    code = other;
    len = filter.len;
    marks = elsewhere;
    uint32_t action = ask_own(number, first, second, third);
    code = own;
    len = own_len;
    marks = covered;
    return action;
}

TEST(every_number_is_allowed_refused_or_unknown)
{
    size_t allowed = 0, refused = 0;

    for (long number = 0; number < 2048; number++) {
        uint32_t action = ask_own(number, 0, 0, 0);
        allowed += action == SECCOMP_RET_ALLOW;
        refused += action == REFUSED(EPERM);
        ASSERT(action == SECCOMP_RET_ALLOW || action == REFUSED(EPERM) ||
               action == REFUSED(ENOSYS) || number == SYS_socket ||
               number == SYS_socketpair);
        if (number >= 600)
            ASSERT_INT(action, REFUSED(ENOSYS));
    }
    printf("# filter: %zu instructions; %zu calls allowed, %zu refused by EPERM\n", len,
           allowed, refused);
}

TEST(another_architecture_or_table_kills_whatever_the_number)
{
    for (long number = 0; number < 1024; number++) {
        ASSERT_INT(ask(OTHER, number, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
        ASSERT_INT(ask(OTHER, number, ~0ull, ~0ull, ~0ull), SECCOMP_RET_KILL_PROCESS);
        ASSERT_INT(ask(0, number, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
#if defined(__x86_64__)
        ASSERT_INT(ask_own(0x40000000 | number, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
#endif
    }
    ASSERT_INT(ask_own(-1, 0, 0, 0), REFUSED(ENOSYS)); /* taken back by a tracer */
}

TEST(families_are_an_allow_list_in_all_their_bits)
{
    for (uint64_t family = 0; family < 256; family++) {
        bool fine = family == AF_UNIX || family == AF_INET || family == AF_NETLINK;
        uint32_t action = ask_own(SYS_socket, family, SOCK_STREAM, 0);
        ASSERT_INT(action, fine ? SECCOMP_RET_ALLOW : REFUSED(EAFNOSUPPORT));
        ASSERT_INT(ask_own(SYS_socket, UPPER | family, SOCK_STREAM, 0),
                   REFUSED(EAFNOSUPPORT));
        action = ask_own(SYS_socketpair, family, SOCK_STREAM, 0);
        ASSERT_INT(action, family == AF_UNIX ? SECCOMP_RET_ALLOW : REFUSED(EAFNOSUPPORT));
        ASSERT_INT(ask_own(SYS_socketpair, UPPER | family, SOCK_STREAM, 0),
                   REFUSED(EAFNOSUPPORT));
    }
}

/* Finding S1: an end of another pair can be connected to the host's sockets. */
TEST(S1_only_connected_pairs_are_allowed_without_namespaces)
{
    static const uint64_t flags[] = {0, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC,
                                     UPPER | SOCK_CLOEXEC};

    for (uint64_t type = 0; type < 16; type++)
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
            bool fine = type == SOCK_STREAM || type == SOCK_SEQPACKET;
            uint32_t want = fine ? SECCOMP_RET_ALLOW : REFUSED(ESOCKTNOSUPPORT);
            uint64_t word = type | flags[i];
            ASSERT_INT(ask_kind(FILTER_ALONE, SYS_socketpair, AF_UNIX, word, 0), want);
            ASSERT_INT(
                ask_kind(FILTER_ALONE_HOST_NETWORK, SYS_socketpair, AF_UNIX, word, 0),
                want);
            /* Where there are, sockets of any type can be made, and reach nothing. */
            ASSERT_INT(ask_own(SYS_socketpair, AF_UNIX, word, 0), SECCOMP_RET_ALLOW);
        }
    ASSERT_INT(ask_kind(FILTER_ALONE, SYS_socketpair, AF_INET, SOCK_STREAM, 0),
               REFUSED(EAFNOSUPPORT));
}

/* Finding S10: programs go on without them, and they reach far into the kernel. */
TEST(S10_calls_that_no_program_needs_are_unknown)
{
    static const long numbers[] = {SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy,
                                   SYS_process_madvise, 453 /* map_shadow_stack */};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int kind = 0; kind < FILTER_KINDS; kind++)
            ASSERT_INT(ask_kind((enum filter_kind)kind, numbers[i], 0, 0, 0),
                       REFUSED(ENOSYS));
}

static size_t count_numbers(const int *numbers, size_t count)
{
    size_t known = 0;

    for (size_t i = 0; i < count; i++)
        known += numbers[i] >= 0;
    return known;
}

/* That a name without one does not compile is asserted by meson.build. */
TEST(S10_every_listed_call_has_its_number_in_the_filter)
{
    size_t allowed = 0;

    for (size_t i = 0; i < calls_allowed_count; i++)
        if (calls_allowed[i] >= 0) {
            uint32_t action = ask_own(calls_allowed[i], 0, 0, 0);
            allowed += action == SECCOMP_RET_ALLOW || action == REFUSED(EAFNOSUPPORT);
        }
    ASSERT_INT(allowed, count_numbers(calls_allowed, calls_allowed_count));
#if defined(__x86_64__)
    ASSERT_INT(allowed, calls_allowed_count);
#endif
    for (size_t i = 0; i < calls_refused_count; i++)
        if (calls_refused[i] >= 0)
            ASSERT_INT(ask_own(calls_refused[i], 0, 0, 0), REFUSED(EPERM));
}

TEST(protocols_are_an_allow_list_and_netlink_has_one)
{
    for (uint64_t protocol = 0; protocol < 300; protocol++) {
        bool fine = protocol <= 1 || protocol == 6 || protocol == 17 || protocol == 58;
        ASSERT_INT(ask_own(SYS_socket, AF_INET, SOCK_STREAM, protocol),
                   fine ? SECCOMP_RET_ALLOW : REFUSED(EPROTONOSUPPORT));
        ASSERT_INT(ask_own(SYS_socket, AF_NETLINK, SOCK_RAW, protocol),
                   protocol == 0 ? SECCOMP_RET_ALLOW : REFUSED(EPROTONOSUPPORT));
        ASSERT_INT(ask_own(SYS_socket, AF_INET, SOCK_STREAM, UPPER | protocol),
                   REFUSED(EPROTONOSUPPORT));
    }
}

static void must_be_refused(long number, int argument, uint64_t value)
{
    uint64_t plain[3] = {0}, high[3] = {0};

    plain[argument] = value;
    high[argument] = ~(UPPER - 1) | value;
    ASSERT_INT(ask_own(number, plain[0], plain[1], plain[2]), REFUSED(EPERM));
    ASSERT_INT(ask_own(number, high[0], high[1], high[2]), REFUSED(EPERM));
}

TEST(values_that_are_denied_are_denied_whatever_the_upper_half)
{
    static const uint64_t ioctls[] = {TIOCSTI, TIOCCONS, TIOCSETD, TIOCSSERIAL, 0x541C};

    for (size_t i = 0; i < sizeof ioctls / sizeof *ioctls; i++)
        must_be_refused(SYS_ioctl, 1, ioctls[i]);
    ASSERT_INT(ask_own(SYS_ioctl, 0, TIOCGWINSZ, 0), SECCOMP_RET_ALLOW);
    must_be_refused(SYS_fcntl, 1, F_SETLEASE);
    ASSERT_INT(ask_own(SYS_fcntl, 0, F_GETFL, 0), SECCOMP_RET_ALLOW);
}

static uint32_t ask_fourth(long number, uint64_t fourth)
{
    const struct seccomp_data data = {
        .nr = (int)number, .arch = OWN, .args = {0, 0, 0, fourth}};

    return run(&data);
}

TEST(huge_pages_are_denied_and_the_cache_stays_as_it_is)
{
    static const uint64_t plain = MAP_PRIVATE | MAP_ANONYMOUS;

    ASSERT_INT(ask_fourth(SYS_mmap, plain), SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_fourth(SYS_mmap, plain | MAP_HUGETLB), REFUSED(ENOMEM));
    ASSERT_INT(ask_fourth(SYS_mmap, UPPER | plain | MAP_HUGETLB), REFUSED(ENOMEM));
    ASSERT_INT(ask_own(SYS_memfd_create, 1, 1, 0), SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_memfd_create, 1, 4 /* MFD_HUGETLB */, 0), REFUSED(EINVAL));
    ASSERT_INT(ask_own(SYS_shmget, 1, 1, 0600), SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_shmget, 1, 1, SHM_HUGETLB | 0600), REFUSED(ENOMEM));
    ASSERT_INT(ask_own(SYS_madvise, 1, 1, MADV_DONTNEED), SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_madvise, 1, 1, MADV_MERGEABLE), REFUSED(EINVAL));
    ASSERT_INT(ask_fourth(SYS_fadvise64, POSIX_FADV_WILLNEED), SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_fourth(SYS_fadvise64, POSIX_FADV_DONTNEED), REFUSED(0));
}

TEST(no_filter_is_attached_to_a_socket_and_none_lingers)
{
    static const uint64_t levels[] = {SOL_SOCKET, UPPER | SOL_SOCKET};

    for (size_t i = 0; i < 2; i++) {
        ASSERT_INT(ask_own(SYS_setsockopt, 3, levels[i], SO_ATTACH_FILTER),
                   REFUSED(EPERM));
        ASSERT_INT(ask_own(SYS_setsockopt, 3, levels[i], SO_ATTACH_REUSEPORT_CBPF),
                   REFUSED(EPERM));
        ASSERT_INT(ask_own(SYS_setsockopt, 3, levels[i], SO_LINGER), REFUSED(0));
        ASSERT_INT(ask_own(SYS_setsockopt, 3, levels[i], SO_REUSEADDR),
                   SECCOMP_RET_ALLOW);
    }
    ASSERT_INT(ask_own(SYS_setsockopt, 3, IPPROTO_TCP, 31 /* TCP_ULP */),
               REFUSED(ENOPROTOOPT));
    ASSERT_INT(ask_own(SYS_setsockopt, 3, IPPROTO_TCP, SO_ATTACH_FILTER),
               SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_socket, AF_INET, SOCK_PACKET, 0), REFUSED(EAFNOSUPPORT));
    ASSERT_INT(ask_own(SYS_socket, AF_INET, SOCK_PACKET | SOCK_CLOEXEC, 0),
               REFUSED(EAFNOSUPPORT));
}

TEST(every_namespace_flag_is_denied)
{
    static const uint64_t flags[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS,
                                     CLONE_NEWIPC, CLONE_NEWUSER,   CLONE_NEWPID,
                                     CLONE_NEWNET};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        must_be_refused(SYS_clone, 0, flags[i]);
        must_be_refused(SYS_clone, 0, flags[i] | CLONE_VM | SIGCHLD);
        must_be_refused(SYS_unshare, 0, flags[i]);
    }
    must_be_refused(SYS_unshare, 0, 0x80 /* CLONE_NEWTIME */);
    for (unsigned bit = 0; bit < 32; bit++) {
        uint64_t flag = 1ull << bit;
        bool fine = flag == CLONE_FS || flag == CLONE_FILES || flag == CLONE_SYSVSEM;
        ASSERT_INT(ask_own(SYS_unshare, flag, 0, 0),
                   fine ? SECCOMP_RET_ALLOW : REFUSED(EPERM));
    }
    ASSERT_INT(ask_own(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0),
               SECCOMP_RET_ALLOW);
}

TEST(personalities_are_an_allow_list)
{
    static const uint64_t fine[] = {0, 8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF};
    static const uint64_t others[] = {1, 2, 0x0100000, 0x0200000, 0x0400000, 0x0800000};

    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        ASSERT_INT(ask_own(SYS_personality, fine[i], 0, 0), SECCOMP_RET_ALLOW);
        ASSERT_INT(ask_own(SYS_personality, UPPER | fine[i], 0, 0), REFUSED(EPERM));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        must_be_refused(SYS_personality, 0, others[i]);
}

TEST(limits_are_set_for_oneself_only)
{
    ASSERT_INT(ask_own(SYS_prlimit64, 0, 7, 0), SECCOMP_RET_ALLOW);
    must_be_refused(SYS_prlimit64, 0, 1);
    must_be_refused(SYS_prlimit64, 0, 4711);
    ASSERT_INT(ask_own(SYS_prlimit64, UPPER, 7, 0), REFUSED(EPERM));
}

/* With 0 the kernel would start the host's handler of cores. */
TEST(the_core_limit_stays_what_it_is)
{
    ASSERT_INT(ask_own(SYS_prlimit64, 0, RLIMIT_CORE, 0), SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_prlimit64, 0, RLIMIT_CORE, 4096), REFUSED(0));
    ASSERT_INT(ask_own(SYS_prlimit64, 0, RLIMIT_CORE, UPPER), REFUSED(0));
    ASSERT_INT(ask_own(SYS_prlimit64, 0, UPPER | RLIMIT_CORE, 4096), REFUSED(0));
    ASSERT_INT(ask_own(SYS_prlimit64, 0, RLIMIT_NOFILE, 4096), SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_setrlimit, RLIMIT_CORE, 4096, 0), REFUSED(0));
    ASSERT_INT(ask_own(SYS_setrlimit, UPPER | RLIMIT_CORE, 4096, 0), REFUSED(0));
    ASSERT_INT(ask_own(SYS_setrlimit, RLIMIT_NOFILE, 4096, 0), SECCOMP_RET_ALLOW);
}

/* Finding S3. */
TEST(a_filter_of_the_callers_own_is_counted_by_init)
{
    const uint32_t asks = SECCOMP_RET_USER_NOTIF;
    const uint64_t pointer = 4096;

    ASSERT_INT(ask_own(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, pointer),
               SECCOMP_RET_ALLOW); /* its pass is 0 here, and drawn by each PID 1 */
    for (int half = 0; half < 2; half++) {
        const struct seccomp_data data = {
            .nr = (int)SYS_seccomp,
            .arch = OWN,
            .args = {SECCOMP_SET_MODE_FILTER, 0, pointer, half ? UPPER : 1}};
        ASSERT_INT(run(&data), asks);
    }
    for (int half = 0; half < 2; half++) {
        const struct seccomp_data data = {
            .nr = (int)SYS_seccomp,
            .arch = OWN,
            .args = {UPPER | SECCOMP_SET_MODE_FILTER, 0, half ? UPPER : 0, 1}};
        ASSERT_INT(run(&data), half ? asks : SECCOMP_RET_ALLOW);
    }
    ASSERT_INT(ask_own(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, pointer),
               SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer), asks);
    ASSERT_INT(ask_own(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, UPPER), asks);
    ASSERT_INT(ask_own(SYS_prctl, UPPER | PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer),
               asks);
    ASSERT_INT(ask_own(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0),
               SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, pointer),
               SECCOMP_RET_ALLOW);
    ASSERT_INT(ask_own(SYS_prctl, PR_SET_NAME, SECCOMP_MODE_FILTER, 0),
               SECCOMP_RET_ALLOW);
}

TEST(the_calls_of_the_third_rule_are_out)
{
    static const long unknown[] = {SYS_io_uring_setup,    SYS_io_uring_enter,
                                   SYS_io_uring_register, SYS_keyctl,
                                   SYS_add_key,           SYS_request_key};
    static const long refused[] = {SYS_bpf,        SYS_userfaultfd, SYS_perf_event_open,
                                   SYS_kexec_load, SYS_init_module, SYS_mount,
                                   SYS_setns,      SYS_pivot_root,  SYS_open_by_handle_at,
                                   SYS_kcmp};

    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        ASSERT_INT(ask_own(unknown[i], ~0ull, ~0ull, ~0ull), REFUSED(ENOSYS));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        ASSERT_INT(ask_own(refused[i], ~0ull, ~0ull, ~0ull), REFUSED(EPERM));
}

TEST(every_instruction_was_executed)
{
    size_t missed = 0;

    for (size_t at = 0; at < len; at++)
        if (!covered[at]) {
            printf("# never executed: %zu (0x%x, %u)\n", at, code[at].code, code[at].k);
            missed++;
        }
    ASSERT_INT(missed, 0);
}
