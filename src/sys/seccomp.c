/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/seccomp.h"

#include <errno.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/mman.h>

static const int allowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(sched_yield),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getrandom), /* malloc(3) draws a key */
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack), /* the address sanitizer's way out */
    SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/* The third argument of both calls is the protection. */
static const int allowed_unless_executable[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};

static int add_rules(scmp_filter_ctx filter)
{
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        int error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
        if (error)
            return error;
    }
    for (size_t i = 0; i < 2; i++) {
        int error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed_unless_executable[i],
                                     1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
        if (error)
            return error;
    }
    return 0;
}

int seccomp_allow_computation(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));

    if (!filter)
        return -ENOMEM;
    int error = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (!error)
        error = add_rules(filter);
    if (!error)
        error = seccomp_load(filter);
    seccomp_release(filter);
    return error;
}
