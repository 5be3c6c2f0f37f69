/* SPDX-License-Identifier: Apache-2.0 */

/* cay-store reads what a database sends, with libpq and its TLS library.  It keeps the
 * right to connect to servers and to read public files (certificates, resolv.conf). */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netdb.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "server/store/store.h"

enum { NOBODY = 65534, MEMORY_MAX = 256 << 20 };

static const char op[] = "store.confine";

static const int allowed[] = {
    SCMP_SYS(access),
    SCMP_SYS(bind), /* of netlink sockets: getaddrinfo() */
    SCMP_SYS(brk),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(close),
    SCMP_SYS(connect),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(faccessat),
    SCMP_SYS(fcntl),
    SCMP_SYS(fstat),
    SCMP_SYS(futex),
    SCMP_SYS(getdents64),
    SCMP_SYS(getegid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getpeername),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(gettid),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getuid),
    SCMP_SYS(lseek),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(nanosleep),
    SCMP_SYS(newfstatat),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(pread64),
    SCMP_SYS(read),
    SCMP_SYS(readlink),
    SCMP_SYS(readv),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmmsg),
    SCMP_SYS(recvmsg),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigpending),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sendmmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(sigaltstack), /* sanitizers query the stack */
    SCMP_SYS(stat),
    SCMP_SYS(statfs),
    SCMP_SYS(sysinfo),
    SCMP_SYS(time),
    SCMP_SYS(uname),
    SCMP_SYS(write),
    SCMP_SYS(writev),
};

static int add_arguments(scmp_filter_ctx filter)
{
    static const int families[] = {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK};
    int error = 0;

    for (size_t i = 0; i < sizeof families / sizeof *families && !error; i++)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                                 SCMP_A0_32(SCMP_CMP_EQ, families[i]));
    /* Only to read. */
    if (!error)
        error = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
            SCMP_A2_32(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY));
    /* No executable memory. */
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                                 SCMP_A2_32(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
                                 SCMP_A2_32(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                                 SCMP_A1_32(SCMP_CMP_EQ, FIONREAD));
    return error;
}

static int set_filter(struct cay_error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int error = filter ? add_arguments(filter) : -ENOMEM;

    for (size_t i = 0; i < sizeof allowed / sizeof *allowed && !error; i++)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    if (!error)
        error = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (!error)
        error = seccomp_load(filter);
    seccomp_release(filter);
    return error ? cay_fail_errno(err, -error, op, "seccomp") : CAY_OK;
}

static bool drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    return syscall(SYS_capset, &header, none) == 0;
}

/* The C library loads the modules of nsswitch.conf at the first look-up. */
static void load_modules(void)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;

    if (getaddrinfo("localhost", "5432", &hints, &found) == 0)
        freeaddrinfo(found);
}

int store_confine(struct cay_error *err)
{
    const struct rlimit none = {0, 0}, memory = {MEMORY_MAX, MEMORY_MAX};

    load_modules();
    if (geteuid() == 0 &&
        (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
         setresuid(NOBODY, NOBODY, NOBODY) != 0))
        return cay_fail_errno(err, errno, op, "user");
    if (!drop_capabilities() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        setrlimit(RLIMIT_CORE, &none) != 0 || setrlimit(RLIMIT_NPROC, &none) != 0 ||
        setrlimit(RLIMIT_FSIZE, &none) != 0 || setrlimit(RLIMIT_DATA, &memory) != 0 ||
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return cay_fail_errno(err, errno, op, "limits");
    return set_filter(err);
}
