/* SPDX-License-Identifier: Apache-2.0 */

/* cay-net and cay-net-tls read hostile bytes.  They need descriptors that they have and
 * memory, and cay-net new sockets of IP: no file, no other process, no program. */
#include "relay/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/landlock.h"

/* Every right on files, ports to bind, and signals; TCP connections are cay-net's work.
 */
static int drop_files(bool has_sockets)
{
    enum { CONNECT_TCP = 1 << 1 };
    const struct landlock_rights *all = landlock_all();

    if (!all) /* a kernel without landlock: the filter has the same effect */
        return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
    struct landlock_rights rights = *all;
    if (has_sockets)
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

static int set_limits(const struct confinement *confinement)
{
    const struct {
        int resource;
        rlim_t most;
    } limits[] = {
        {RLIMIT_CORE, 0},
        {RLIMIT_NPROC, 0},
        {RLIMIT_FSIZE, confinement->file_bytes},
        {RLIMIT_NOFILE, confinement->files},
        {RLIMIT_DATA, confinement->memory_bytes},
        {RLIMIT_MEMLOCK, 0},
    };

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit now;
        /* Not setrlimit(): C libraries differ in the type of its first argument. */
        if (syscall(SYS_prlimit64, 0, limits[i].resource, NULL, &now) != 0)
            return -errno;
        if (now.rlim_max > limits[i].most)
            now.rlim_max = limits[i].most;
        now.rlim_cur = now.rlim_max;
        if (syscall(SYS_prlimit64, 0, limits[i].resource, &now, NULL) != 0)
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

/* Sockets of TCP and UDP. */
static const struct sock_filter sockets[] = {
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
};

/* Memory that is not executable.  A call that the filter does not name ends the process,
 * and with it every connection. */
static const struct sock_filter end[] = {
    IF(SYS_mmap, 0, 3),
    ARGUMENT(2),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
    RETURN(SECCOMP_RET_ALLOW),
    RETURN(SECCOMP_RET_KILL_PROCESS),
};

enum { CALLS_MAX = 64, CODE_MAX = 2 * CALLS_MAX + 64 };

static unsigned short add(struct sock_filter *code, unsigned short len,
                          const struct sock_filter *more, size_t count)
{
    memcpy(code + len, more, count * sizeof *more);
    return (unsigned short)(len + count);
}

static int install_filter(const struct confinement *confinement)
{
    struct sock_filter code[CODE_MAX];
    struct sock_fprog program = {.filter = code};

    if (confinement->call_count > CALLS_MAX)
        return -E2BIG;
    program.len = add(code, 0, start, sizeof start / sizeof *start);
    for (size_t i = 0; i < confinement->call_count; i++) {
        code[program.len++] = (struct sock_filter)IF(confinement->calls[i], 0, 1);
        code[program.len++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    }
    if (confinement->has_sockets)
        program.len = add(code, program.len, sockets, sizeof sockets / sizeof *sockets);
    program.len = add(code, program.len, end, sizeof end / sizeof *end);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : -errno;
}

int confine_process(const struct confinement *confinement)
{
    int error = drop_bounding_set();

    if (!error)
        error = drop_user(confinement->uid);
    if (!error)
        error = set_limits(confinement);
    if (!error)
        error = drop_capabilities();
    if (!error && (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
                   prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0))
        error = -errno;
    if (!error)
        error = drop_files(confinement->has_sockets);
    return error ? error : install_filter(confinement);
}

/* The creator's limits and signals are for its commands: splice(2) to a connection that
 * the peer has reset raises SIGPIPE. */
void confine_reset_inherited(void)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t empty;

    (void)sigaction(SIGPIPE, &ignore, NULL); /* allow: sigaction own program */
    (void)sigaction(SIGXFSZ, &ignore, NULL); /* allow: sigaction own program */
    sigemptyset(&empty);
    (void)sigprocmask(SIG_SETMASK, &empty, NULL);
    (void)!setrlimit(RLIMIT_CPU, &none);
}
