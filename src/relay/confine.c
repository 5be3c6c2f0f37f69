/* SPDX-License-Identifier: Apache-2.0 */

/* cay-net reads hostile bytes and has a way to the network.  It needs descriptors that it
 * has, new sockets of IP, and memory: no file, no other process, no program. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "relay/server.h"
#include "sys/landlock.h"

/* Every right on files, ports to bind, and signals; TCP connections are its work. */
static int drop_files(void)
{
    enum { CONNECT_TCP = 1 << 1 };
    const struct landlock_rights *all = landlock_all();

    if (!all) /* a kernel without landlock: the filter has the same effect */
        return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
    struct landlock_rights rights = *all;
    rights.net &= ~(uint64_t)CONNECT_TCP;
    AUTO_FD fd = landlock_create(&rights);
    if (fd < 0)
        return fd;
    return syscall(SYS_landlock_restrict_self, fd, 0) == 0 ? 0 : -errno;
}

static int drop_user(uint32_t uid)
{
    /* Raw calls: the C library's also look for other threads. */
    if (uid && (syscall(SYS_setgroups, 0L, NULL) != 0 ||
                syscall(SYS_setresgid, uid, uid, uid) != 0 ||
                syscall(SYS_setresuid, uid, uid, uid) != 0))
        return -errno;
    return 0;
}

/* While it still may: the bounding set is what a program with file capabilities can get.
 * EPERM: without CAP_SETPCAP there is nothing to drop. */
static int drop_bounding_set(void)
{
    int capability = 0;

    while (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0)
        capability++;
    return errno == EINVAL || errno == EPERM ? 0 : -errno; /* EINVAL: after the last */
}

/* Root of a user namespace without other ids has no user to change to. */
static int drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    return syscall(SYS_capset, &header, none) == 0 ? 0 : -errno;
}

static int set_limits(void)
{
    static const struct {
        int resource;
        rlim_t most;
    } limits[] = {
        {RLIMIT_CORE, 0},
        {RLIMIT_NPROC, 0},
        {RLIMIT_FSIZE, RELAY_EVENTS_MAX * RELAY_EVENT_BYTES},
        {RLIMIT_NOFILE, RELAY_LINKS_MAX * RELAY_LINK_FDS + RELAY_MEMBERS_MAX + 128},
        {RLIMIT_DATA, 32 << 20},
        {RLIMIT_MEMLOCK, 0},
    };

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit now;
        if (getrlimit(limits[i].resource, &now) != 0)
            return -errno;
        if (now.rlim_max > limits[i].most)
            now.rlim_max = limits[i].most;
        now.rlim_cur = now.rlim_max;
        if (setrlimit(limits[i].resource, &now) != 0)
            return -errno;
    }
    return 0;
}

/* --- The filter --- */

#if defined(__x86_64__)
enum { ARCHITECTURE = (int)AUDIT_ARCH_X86_64 };
#elif defined(__aarch64__)
enum { ARCHITECTURE = (int)AUDIT_ARCH_AARCH64 };
#endif

static const int allowed[] = {
    SYS_epoll_pwait,     SYS_epoll_ctl,  SYS_accept4,    SYS_getsockname,
    SYS_getsockopt,      SYS_setsockopt, SYS_recvfrom,   SYS_recvmsg,
    SYS_sendto,          SYS_sendmsg,    SYS_connect,    SYS_shutdown,
    SYS_splice,          SYS_pipe2,      SYS_close,      SYS_read,
    SYS_pwrite64,        SYS_fcntl,      SYS_getrandom,  SYS_clock_gettime,
    SYS_munmap,          SYS_mremap,     SYS_madvise,    SYS_brk,
    SYS_futex,           SYS_exit,       SYS_exit_group, SYS_rt_sigreturn,
    SYS_restart_syscall,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
};

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define ARGUMENT(number)                                                                 \
    LOAD(offsetof(struct seccomp_data, args) + (number) * sizeof(uint64_t))
#define IF(value, then, otherwise)                                                       \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), (then), (otherwise))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, (action))

static const struct sock_filter start[] = {
    LOAD(offsetof(struct seccomp_data, arch)),
    IF(ARCHITECTURE, 1, 0),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(offsetof(struct seccomp_data, nr)),
};

/* Sockets of TCP and UDP, and memory that is not executable.  What the
 * filter does not name ends cay-net, and with it every connection. */
static const struct sock_filter end[] = {
    IF(SYS_socket, 0, 11),
    ARGUMENT(0),
    IF(AF_INET, 1, 0),
    IF(AF_INET6, 0, 7),
    ARGUMENT(1),
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xF),
    IF(SOCK_STREAM, 1, 0),
    IF(SOCK_DGRAM, 0, 3),
    ARGUMENT(2),
    IF(0, 0, 1),
    RETURN(SECCOMP_RET_ALLOW),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    IF(SYS_mmap, 0, 3),
    ARGUMENT(2),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
    RETURN(SECCOMP_RET_ALLOW),
    RETURN(SECCOMP_RET_KILL_PROCESS),
};

enum {
    ALLOWED = sizeof allowed / sizeof *allowed,
    START = sizeof start / sizeof *start,
    END = sizeof end / sizeof *end
};

static int install_filter(void)
{
    struct sock_filter code[START + 2 * ALLOWED + END];
    struct sock_fprog program = {.filter = code};
    unsigned short len = 0;

    for (size_t i = 0; i < START; i++)
        code[len++] = start[i];
    for (size_t i = 0; i < ALLOWED; i++) {
        code[len++] = (struct sock_filter)IF(allowed[i], 0, 1);
        code[len++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    }
    for (size_t i = 0; i < END; i++)
        code[len++] = end[i];
    program.len = len;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : -errno;
}

int confine(uint32_t uid)
{
    int error = drop_bounding_set();

    if (!error)
        error = drop_user(uid);
    if (!error)
        error = set_limits();
    if (!error)
        error = drop_capabilities();
    if (!error && (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
                   prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0))
        error = -errno;
    if (!error)
        error = drop_files();
    return error ? error : install_filter();
}
