/* SPDX-License-Identifier: Apache-2.0 */

/* At this point the front has all its sockets, memory and code.  Only calls on open
 * descriptors remain, and those that libmicrohttpd, libuv and the C library need. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "server/front/front.h"
#include "sys/landlock.h"

enum { NOBODY = 65534 };

static const char op[] = "server.confine";

static const int allowed[] = {
    SCMP_SYS(accept4),
    SCMP_SYS(brk),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(close),
    SCMP_SYS(dup),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(eventfd2),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(fcntl),
    SCMP_SYS(fstat),
    SCMP_SYS(ftruncate),
    SCMP_SYS(futex),
    SCMP_SYS(getpeername),
    SCMP_SYS(getpid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(gettid),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(lseek),
    SCMP_SYS(madvise),
    SCMP_SYS(memfd_create),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(nanosleep),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sched_yield),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(sigaltstack), /* sanitizers query the stack */
    SCMP_SYS(time),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(write),
    SCMP_SYS(writev),
};

/* Sockets can only reach their peer.  A datagram socket could address any socket of the
 * host with each packet, so only pairs of other types are allowed: for these AF_UNIX
 * ignores the address of sendmsg(), which the filter cannot see.  TCP uses the address of
 * sendmsg() with MSG_FASTOPEN, which would connect a disconnected socket. */
static int add_socket_rules(scmp_filter_ctx filter)
{
    static const unsigned types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    enum { TYPE_MASK = 0xf }; /* the rest are flags */
    int error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(sendto), 2,
                                 SCMP_A3_32(SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0),
                                 SCMP_A4(SCMP_CMP_EQ, 0));

    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(sendmsg), 1,
                                 SCMP_A2_32(SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0));
    for (size_t i = 0; i < sizeof types / sizeof *types && !error; i++)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 2,
                                 SCMP_A0_32(SCMP_CMP_EQ, AF_UNIX),
                                 SCMP_A1_32(SCMP_CMP_MASKED_EQ, TYPE_MASK, types[i]));
    /* Disconnects a socket (rights_dismiss()); no address is this short. */
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(connect), 1,
                                 SCMP_A2_32(SCMP_CMP_EQ, sizeof(sa_family_t)));
    return error;
}

static int add_rules(scmp_filter_ctx filter)
{
    int error = add_socket_rules(filter);

    for (size_t i = 0; i < sizeof allowed / sizeof *allowed && !error; i++)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    /* No executable memory. */
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                                 SCMP_A2_32(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
                                 SCMP_A2_32(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    /* libuv sets each descriptor nonblocking. */
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                                 SCMP_A1_32(SCMP_CMP_EQ, FIONBIO));
    return error;
}

static int set_filter(struct cay_error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int error = filter ? add_rules(filter) : -ENOMEM;

    if (!error)
        error = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (!error)
        error = seccomp_load(filter);
    seccomp_release(filter);
    return error ? cay_fail_errno(err, -error, op, "seccomp") : CAY_OK;
}

int confine_deny_rings(struct cay_error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int error = filter ? seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS),
                                          SCMP_SYS(io_uring_setup), 0)
                       : -ENOMEM;

    if (!error)
        error = seccomp_load(filter);
    seccomp_release(filter);
    return error ? cay_fail_errno(err, -error, op, "seccomp") : CAY_OK;
}

int confine(struct cay_error *err)
{
    const struct rlimit none = {0, 0};

    /* The new root is a directory of procfs that contains only the numbers of our
     * descriptors, and is not writable. */
    if (geteuid() == 0 &&
        (chdir("/proc/self/fdinfo") != 0 || chroot(".") != 0 || setgroups(0, NULL) != 0 ||
         setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
         setresuid(NOBODY, NOBODY, NOBODY) != 0))
        return cay_fail_errno(err, errno, op, "user");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        setrlimit(RLIMIT_CORE, &none) != 0 || setrlimit(RLIMIT_NPROC, &none) != 0 ||
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return cay_fail_errno(err, errno, op, "limits");
    /* Besides the file system, landlock denies signals through fcntl(), which the filter
     * cannot, and is a second layer for abstract sockets.  Kernels without landlock have
     * the other layers; with it, a failure is an error. */
    int error = landlock_deny_all();
    if (error && error != -ENOSYS && error != -EOPNOTSUPP)
        return cay_fail_errno(err, -error, op, "landlock");
    return set_filter(err);
}
