/* SPDX-License-Identifier: Apache-2.0 */

/* Raw system calls, with arguments that no kernel accepts: an answer other than the
 * filter's shows that the kernel's own code was reached, and nothing else happens. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "probe.h"

#define UPPER (1ul << 32)

static const struct {
    const char *name;
    long number, arguments[5];
} calls[] = {
    {"io_uring_setup", SYS_io_uring_setup, {1}},
    {"io_uring_enter", SYS_io_uring_enter, {-1}},
    {"io_uring_register", SYS_io_uring_register, {-1}},
    {"io_setup", SYS_io_setup, {1}},
    {"bpf", SYS_bpf, {9999}},
    {"perf_event_open", SYS_perf_event_open, {0, 0, -1, -1, -1}},
    {"userfaultfd", SYS_userfaultfd, {1}},
    {"kexec_load", SYS_kexec_load, {0, 99}},
    {"kexec_file_load", SYS_kexec_file_load, {-1, -1, 0, 0, -1}},
    {"init_module", SYS_init_module, {0}},
    {"finit_module", SYS_finit_module, {-1, 0, -1}},
    {"delete_module", SYS_delete_module, {0}},
    {"clock_settime", SYS_clock_settime, {0, 0}},
    {"settimeofday", SYS_settimeofday, {1}},
    {"clock_adjtime", SYS_clock_adjtime, {0, 1}},
    {"reboot", SYS_reboot, {0}},
    {"swapon", SYS_swapon, {0, -1}},
    {"swapoff", SYS_swapoff, {0}},
    {"acct", SYS_acct, {1}},
    {"syslog", SYS_syslog, {10}},             /* the size of the buffer */
    {"quotactl", SYS_quotactl, {0x80000100}}, /* sync */
    {"quotactl_fd", SYS_quotactl_fd, {-1, -1}},
    {"vhangup", SYS_vhangup, {0}},
    {"sethostname", SYS_sethostname, {0, -1}},
    {"setdomainname", SYS_setdomainname, {0, -1}},
    {"keyctl", SYS_keyctl, {0, -3}},
    {"add_key", SYS_add_key, {0}},
    {"request_key", SYS_request_key, {0}},
    {"mount", SYS_mount, {0}},
    {"umount2", SYS_umount2, {0, -1}},
    {"pivot_root", SYS_pivot_root, {0}},
    {"fsopen", SYS_fsopen, {0}},
    {"fsconfig", SYS_fsconfig, {-1, -1}},
    {"fsmount", SYS_fsmount, {-1}},
    {"fspick", SYS_fspick, {-1}},
    {"open_tree", SYS_open_tree, {-1, 0, 0}},
    {"move_mount", SYS_move_mount, {-1, 0, -1}},
    {"mount_setattr", SYS_mount_setattr, {-1, 0, -1}},
    {"setns", SYS_setns, {-1}},
    {"open_by_handle_at", SYS_open_by_handle_at, {-1}},
    {"fanotify_init", SYS_fanotify_init, {0x200}},
    {"fanotify_mark", SYS_fanotify_mark, {-1, -1}},
    {"lookup_dcookie", SYS_lookup_dcookie, {0}},
    {"pidfd_getfd", SYS_pidfd_getfd, {-1, -1}},
    {"move_pages", SYS_move_pages, {0}},
    {"migrate_pages", SYS_migrate_pages, {0}},
    {"memfd_secret", SYS_memfd_secret, {-1}},
    {"nfsservctl", SYS_nfsservctl, {-1}},
    {"remap_file_pages", SYS_remap_file_pages, {0, 0, -1}},
#if defined(__x86_64__)
    {"iopl", SYS_iopl, {4}},
    {"ioperm", SYS_ioperm, {-1, 1}},
    {"modify_ldt", SYS_modify_ldt, {0}},
    {"ustat", SYS_ustat, {-1}},
    {"sysfs", SYS_sysfs, {3}},
    {"uselib", SYS_uselib, {0}},
#endif
};

struct answer probe_call(const char *arg)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, arg) == 0) {
            const long *a = calls[i].arguments;
            return answer_call(syscall(calls[i].number, a[0], a[1], a[2], a[3], a[4]));
        }
    return answer_make(ERROR, 0, "no such call");
}

/* All that kernels after the list have, and more. */
struct answer probe_new_calls(const char *arg)
{
    struct answer answer = {0};

    (void)arg;
    for (long number = 454; number < 600; number++) {
        answer = answer_call(syscall(number, -1l, -1l, -1l, -1l, -1l, -1l));
        if (answer.verdict != BLOCKED || answer.error != ENOSYS)
            return answer_make(ESCAPE, answer.error, "number %ld", number);
    }
    return answer;
}

struct answer probe_personality(const char *arg)
{
    return answer_call(syscall(SYS_personality, strtol(arg, NULL, 0)));
}

/* Reads the clock's state and writes the same back. */
struct answer probe_adjtimex(const char *arg)
{
    struct timex state = {0};

    (void)arg;
    if (syscall(SYS_adjtimex, &state) < 0)
        return answer_make(ERROR, errno, "reading the clock");
    state.modes = ADJ_STATUS;
    return answer_call(syscall(SYS_adjtimex, &state));
}

/* --- Sockets --- */

/* The answer that got furthest, of every type of socket. */
static struct answer try_socket(long family, long protocol)
{
    static const long types[] = {SOCK_RAW, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM,
                                 SOCK_STREAM};
    struct answer answer = {0};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        long fd = syscall(SYS_socket, family, types[i] | SOCK_CLOEXEC, protocol);
        answer = answer_call(fd);
        if (fd >= 0)
            close((int)fd);
        if (answer.verdict == ESCAPE)
            break;
    }
    return answer;
}

struct answer probe_family(const char *arg)
{
    if (*arg)
        return try_socket(strtol(arg, NULL, 10), 0);
    struct answer answer = {0};
    for (long family = 0; family < 64; family++) {
        if (family == AF_UNIX || family == AF_INET || family == AF_NETLINK)
            continue;
        answer = try_socket(family, 0);
        if (answer.verdict == ESCAPE)
            return answer_make(ESCAPE, answer.error, "family %ld", family);
    }
    return answer;
}

static struct answer try_netlink(long protocol)
{
    long fd = syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    struct answer answer = answer_call(fd);

    if (fd >= 0)
        close((int)fd);
    return answer;
}

struct answer probe_netlink(const char *arg)
{
    if (*arg)
        return try_netlink(strtol(arg, NULL, 10));
    struct answer answer = {0};
    for (long protocol = 1; protocol < 64; protocol++) {
        answer = try_netlink(protocol);
        if (answer.verdict == ESCAPE)
            return answer_make(ESCAPE, answer.error, "protocol %ld", protocol);
    }
    return answer;
}

struct answer probe_raw_socket(const char *arg)
{
    (void)arg;
    return answer_call(syscall(SYS_socket, AF_INET, SOCK_RAW | SOCK_CLOEXEC, 1));
}

struct answer probe_protocol(const char *arg)
{
    static const long fine[] = {0, 1 /* ICMP */, 6 /* TCP */, 17 /* UDP */,
                                58 /* ICMP6 */};
    struct answer answer = {0};

    if (*arg)
        return try_socket(AF_INET, strtol(arg, NULL, 10));
    for (long protocol = 0; protocol < 300; protocol++) {
        bool skip = false;
        for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
            skip |= fine[i] == protocol;
        if (skip)
            continue;
        answer = try_socket(AF_INET, protocol);
        if (answer.verdict == ESCAPE)
            return answer_make(ESCAPE, answer.error, "protocol %ld", protocol);
    }
    return answer;
}

/* --- Terminals --- */

static struct answer push_into_own_terminal(const char *arg)
{
    char name[64];
    int number, unlock = 0;
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

    (void)arg;
    if (master < 0)
        return answer_call(master);
    if (ioctl(master, TIOCSPTLCK, &unlock) != 0 || ioctl(master, TIOCGPTN, &number) != 0)
        return answer_make(ERROR, errno, "ptmx");
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    setsid();
    int terminal = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) != 0)
        return answer_make(ERROR, errno, "%s", name);
    return answer_call(ioctl(terminal, TIOCSTI, "x"));
}

struct answer probe_tty(const char *arg)
{
    if (strcmp(arg, "own") == 0)
        return answer_of_child(push_into_own_terminal, arg);
    return answer_call(syscall(SYS_ioctl, -1l, strtol(arg, NULL, 0), 0l));
}

/* --- The upper half of arguments, which the kernel ignores --- */

static struct answer end_clone(long result)
{
    struct answer answer = answer_call(result);

    if (result == 0)
        _exit(0);
    if (result > 0)
        (void)waitpid((pid_t)result, NULL, __WALL);
    if (result < 0 && errno == ENOSPC)
        return answer_make(BLOCKED, ENOSPC, "refused");
    return answer;
}

static long raw_clone(unsigned long flags)
{
    return syscall(SYS_clone, flags | SIGCHLD, 0l, 0l, 0l, 0l);
}

struct answer probe_high(const char *arg)
{
    if (strcmp(arg, "socket") == 0)
        return answer_call(syscall(SYS_socket, UPPER | 40, SOCK_STREAM, 0l));
    if (strcmp(arg, "ioctl") == 0)
        return answer_call(syscall(SYS_ioctl, -1l, UPPER | TIOCSTI, 0l));
    if (strcmp(arg, "unshare") == 0)
        return answer_call(syscall(SYS_unshare, UPPER | CLONE_NEWUSER));
    if (strcmp(arg, "personality") == 0)
        return answer_call(syscall(SYS_personality, UPPER | 0x0400000));
    if (strcmp(arg, "fcntl") == 0)
        return answer_call(syscall(SYS_fcntl, -1l, UPPER | F_SETLEASE, 0l));
    return end_clone(raw_clone(UPPER | CLONE_NEWUSER));
}

/* --- Namespaces --- */

struct answer probe_clone(const char *arg)
{
    return end_clone(raw_clone((unsigned long)strtol(arg, NULL, 0)));
}

struct answer probe_clone3(const char *arg)
{
    struct clone_args args = {.flags = (__u64)strtol(arg, NULL, 0),
                              .exit_signal = SIGCHLD};

    return end_clone(syscall(SYS_clone3, &args, sizeof args));
}

static struct answer unshare_it(const char *arg)
{
    long result = syscall(SYS_unshare, strtol(arg, NULL, 0));

    if (result < 0 && errno == ENOSPC)
        return answer_make(BLOCKED, ENOSPC, "refused");
    return answer_call(result);
}

struct answer probe_unshare(const char *arg)
{
    return answer_of_child(unshare_it, arg);
}

/* --- Other ways into the kernel --- */

#if defined(__x86_64__)
static struct answer call_int80(const char *arg)
{
    long result = strtol(arg, NULL, 10);

    __asm__ volatile("int $0x80"
                     : "+a"(result)
                     : "b"(-1l), "c"(0l), "d"(0l)
                     : "memory", "r8", "r9", "r10", "r11");
    if ((int)result < 0) {
        errno = -(int)result;
        return answer_call(-1);
    }
    return answer_call(0);
}

struct answer probe_int80(const char *arg)
{
    struct answer answer = answer_of_child(call_int80, arg);

    /* Without the 32-bit entry the instruction itself faults. */
    if (answer.verdict == ERROR)
        return answer_make(BLOCKED, ENOSYS, "%s", answer.detail);
    return answer;
}

static struct answer call_x32(const char *arg)
{
    return answer_call(syscall(0x40000000 | strtol(arg, NULL, 10), -1l, 0l, 0l));
}

struct answer probe_x32(const char *arg)
{
    return answer_of_child(call_x32, arg);
}
#elif defined(__aarch64__)
/* The other table of calls is there for programs of 32 bits alone, and not on every
 * processor.  This one calls getpid(), and then exit(0). */
static struct answer execute_arm32(const char *arg)
{
    enum { AT = 0x400000 };
    static const struct {
        Elf32_Ehdr head;
        Elf32_Phdr segment;
        uint32_t code[5];
    } program = {
        .head = {.e_ident = {0x7F, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT},
                 .e_type = ET_EXEC,
                 .e_machine = EM_ARM,
                 .e_version = EV_CURRENT,
                 .e_entry = AT + sizeof(Elf32_Ehdr) + sizeof(Elf32_Phdr),
                 .e_phoff = sizeof(Elf32_Ehdr),
                 .e_flags = EF_ARM_EABI_VER5,
                 .e_ehsize = sizeof(Elf32_Ehdr),
                 .e_phentsize = sizeof(Elf32_Phdr),
                 .e_phnum = 1},
        .segment = {.p_type = PT_LOAD,
                    .p_vaddr = AT,
                    .p_filesz = sizeof program,
                    .p_memsz = sizeof program,
                    .p_flags = PF_R | PF_X,
                    .p_align = 1 << 16},
        .code = {0xE3A07014 /* mov r7, #20 */, 0xEF000000 /* svc 0 */,
                 0xE3A00000 /* mov r0, #0 */, 0xE3A07001 /* mov r7, #1 */,
                 0xEF000000 /* svc 0 */},
    };
    char *const argv[] = {(char[]){"arm32"}, NULL}, *const env[] = {NULL};
    int fd = memfd_create("arm32", MFD_CLOEXEC);

    (void)arg;
    if (fd < 0 || write(fd, &program, sizeof program) != (ssize_t)sizeof program)
        return answer_make(ERROR, errno, "memfd");
    (void)fexecve(fd, argv, env);
    return errno == ENOEXEC ? answer_make(BLOCKED, ENOSYS, "no such programs")
                            : answer_make(ERROR, errno, "execve");
}

struct answer probe_arm32(const char *arg)
{
    struct answer answer = answer_of_child(execute_arm32, arg);

    /* A child that executed it reports nothing. */
    return answer.verdict ? answer : answer_make(ESCAPE, 0, "succeeded");
}
#endif
