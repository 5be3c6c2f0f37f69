/* SPDX-License-Identifier: Apache-2.0 */

/* Two parts.  Rules on arguments are written here, in BPF, and come first: libseccomp
 * takes only one comparison for each argument, and a deny list of values needs several.
 * The names behind them are libseccomp's work, which knows every architecture's numbers.
 */
#include "backend/native/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"

static const char *const allowed[] = {
    /* files */
    "access",
    "chdir",
    "chmod",
    "chown",
    "close",
    "close_range",
    "copy_file_range",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "fcntl",
    "fdatasync",
    "fgetxattr",
    "flistxattr",
    "flock",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futimesat",
    "getcwd",
    "getdents",
    "getdents64",
    "getxattr",
    "inotify_add_watch",
    "inotify_init",
    "inotify_init1",
    "inotify_rm_watch",
    "lchown",
    "lgetxattr",
    "link",
    "linkat",
    "listxattr",
    "llistxattr",
    "lremovexattr",
    "lseek",
    "lsetxattr",
    "lstat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "name_to_handle_at",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readlink",
    "readlinkat",
    "readv",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "setxattr",
    "splice",
    "stat",
    "statfs",
    "statx",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "syncfs",
    "tee",
    "truncate",
    "umask",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimes",
    "vmsplice",
    "write",
    "writev",
    "cachestat",
    /* memory */
    "brk",
    "madvise",
    "membarrier",
    "memfd_create",
    "mincore",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "mprotect",
    "mremap",
    "msync",
    "munlock",
    "munlockall",
    "munmap",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "process_madvise",
    "set_mempolicy",
    "get_mempolicy",
    "mbind",
    "map_shadow_stack",
    "process_mrelease",
    /* processes */
    "arch_prctl",
    "clone",
    "clone3",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "fork",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getpriority",
    "getrlimit",
    "getrusage",
    "getsid",
    "gettid",
    "kcmp",
    "kill",
    "personality",
    "pidfd_open",
    "pidfd_send_signal",
    "prctl",
    "prlimit64",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "rseq",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "sched_yield",
    "set_robust_list",
    "get_robust_list",
    "set_tid_address",
    "setpgid",
    "setpriority",
    "setrlimit",
    "setsid",
    "tgkill",
    "times",
    "tkill",
    "unshare",
    "vfork",
    "wait4",
    "waitid",
    "ioprio_get",
    "ioprio_set",
    "getcpu",
    "capget",
    "capset",
    "seccomp",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "set_thread_area",
    "get_thread_area",
    /* users */
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getresgid",
    "getresuid",
    "getuid",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setuid",
    /* signals, time, waiting */
    "alarm",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd",
    "eventfd2",
    "futex",
    "futex_waitv",
    "getitimer",
    "gettimeofday",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect6",
    "restart_syscall",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "select",
    "setitimer",
    "sigaltstack",
    "signalfd",
    "signalfd4",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    "adjtimex",
    /* talking */
    "accept",
    "accept4",
    "bind",
    "connect",
    "getpeername",
    "getsockname",
    "getsockopt",
    "listen",
    "pipe",
    "pipe2",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "socket",
    "socketpair",
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    "ioctl",
    /* the machine */
    "getrandom",
    "sysinfo",
    "uname",
    "io_setup",
    "io_submit",
    "io_getevents",
    "io_pgetevents",
    "io_cancel",
    "io_destroy",
};

/* Known, and refused: EPERM, since a fall-back would not help. */
static const char *const refused[] = {
    "acct",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "fanotify_mark",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "iopl",
    "ioperm",
    "kexec_file_load",
    "kexec_load",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "migrate_pages",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "userfaultfd",
    "vhangup",
    "modify_ldt",
    "memfd_secret",
};

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

static void add_argument_rules(struct program *program, bool own_network)
{
    static const uint32_t families[] = {AF_UNIX, AF_INET, AF_NETLINK, AF_INET6};
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

    /* IPv6 code has had more holes than programs without a network have use for it. */
    allow_values(program, SYS_socket, 0, families, own_network ? 3 : 4, EAFNOSUPPORT);
    deny_other_netlink(program);
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

static int add_names(scmp_filter_ctx context, const char *const *names, size_t count,
                     uint32_t action, const char **ret_name)
{
    for (size_t i = 0; i < count; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        *ret_name = names[i];
        if (number == __NR_SCMP_ERROR)
            return -ENOENT;
        if (number < 0)
            continue; /* this architecture never had it */
        int error = seccomp_rule_add(context, action, number, 0);
        if (error)
            return error;
    }
    return 0;
}

static int build_names(scmp_filter_ctx context, const char **ret_name)
{
    *ret_name = "attributes";
    int error = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (!error)
        error =
            seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree */
    if (!error)
        error = add_names(context, allowed, sizeof allowed / sizeof *allowed,
                          SCMP_ACT_ALLOW, ret_name);
    if (!error)
        error = add_names(context, refused, sizeof refused / sizeof *refused,
                          SCMP_ACT_ERRNO(EPERM), ret_name);
    return error;
}

/* libseccomp writes its program to a descriptor only. */
static int append_names(struct program *program, scmp_filter_ctx context)
{
    AUTO_FD fd = memfd_create("filter", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    int error = seccomp_export_bpf(context, fd);
    if (error)
        return error;
    off_t size = lseek(fd, 0, SEEK_END);
    size_t room = (PLAN_FILTER_MAX - program->len) * sizeof *program->code;
    if (size < 0 || (size_t)size > room)
        return -E2BIG;
    if (io_pread(fd, program->code + program->len, (size_t)size, 0) != size)
        return -EIO;
    program->len += (uint32_t)((size_t)size / sizeof *program->code);
    return 0;
}

static int compile(bool own_network, struct program *program, struct cay_error *err)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    const char *name = "seccomp";

    if (!context)
        return cay_fail_memory(err, "sandbox.filter");
    add_argument_rules(program, own_network);
    int error = build_names(context, &name);
    if (!error)
        error = append_names(program, context);
    seccomp_release(context);
    if (error)
        return cay_fail(err, CAY_E_INTERNAL, -error, "sandbox.filter", name,
                        "the list of system calls cannot be made into a filter",
                        "report this with the version of libseccomp");
    return CAY_OK;
}

/* Compiling takes longer than all the rest of making a sandbox, and there are only two
 * outcomes. */
static struct {
    pthread_mutex_t mutex;
    struct plan_filter code[2][PLAN_FILTER_MAX];
    uint32_t len[2]; /* 0 until it is compiled */
} compiled = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int filter_build(bool own_network, const struct plan_filter **ret_filter,
                 uint32_t *ret_len, struct cay_error *err)
{
    struct program program = {.code = compiled.code[own_network]};
    int code = CAY_OK;

    pthread_mutex_lock(&compiled.mutex);
    if (!compiled.len[own_network]) {
        code = compile(own_network, &program, err);
        if (!code)
            compiled.len[own_network] = program.len;
    }
    *ret_filter = program.code;
    *ret_len = compiled.len[own_network];
    pthread_mutex_unlock(&compiled.mutex);
    return code;
}
