/* SPDX-License-Identifier: Apache-2.0 */

/* cay-init: PID 1 of a native sandbox.
 *
 * Theory of operation.  The library clones itself into a new user and PID namespace and
 * the sandbox's cgroup, and executes this program there (native/make/program.c).  While
 * PID 1 creates the other namespaces, the library writes the uid map, the limits, the
 * plan (plan.h) and the file systems that need the host's privilege, and sends all of it.
 * setup.c assembles the root and confines PID 1 (confine.c); serve.c then runs commands
 * for every client that can open the control socket.  PID 1 never executes another
 * program: no process inside can change its memory or its binary.
 *
 * Every failure before the sandbox is ready is one struct cay_error on the status socket.
 */
#include <fcntl.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/code.h"
#include "init/oom.h"
#include "init/setup.h"
#include "init/sudo.h"

enum { OOM_SCORE_RAISE = 500 };

/* Commands must not inherit signals that the creator ignores; Python, for one, ignores
 * SIGPIPE.  Raw calls with a zeroed kernel struct, since the C library reserves some
 * signals. */
static void heed_all_signals(void)
{
    static const char by_default[64];

    for (long number = 1; number <= 64; number++)
        (void)syscall(SYS_rt_sigaction, number, by_default, NULL, 8L);
}

/* Real-time scheduling or I/O priority inside would starve the host. */
static void leave_real_time(void)
{
    static const int normal[] = {0};
    long policy = syscall(SYS_sched_getscheduler, 0L) & ~SCHED_RESET_ON_FORK;

    if (policy == SCHED_FIFO || policy == SCHED_RR)
        (void)syscall(SYS_sched_setscheduler, 0L, (long)SCHED_OTHER, normal);
    if (IOPRIO_PRIO_CLASS(syscall(SYS_ioprio_get, (long)IOPRIO_WHO_PROCESS, 0L)) ==
        IOPRIO_CLASS_RT)
        (void)syscall(SYS_ioprio_set, (long)IOPRIO_WHO_PROCESS, 0L, 0L);
}

/* When the machine, or a cgroup that contains both sandbox and server, runs out of
 * memory, the kernel kills processes of sandboxes first.  Set after execve(2): before it
 * the memory is shared with the creator, and the score would apply to both.  If the
 * creator has CAP_SYS_RESOURCE, programs inside cannot lower it. */
static void raise_oom_score(void)
{
    oom_raise(OOM_SCORE_RAISE);
}

/* Makes brk(2) fail, so that malloc() uses mmap(2): the heap is far from all other
 * memory, and its first page would take three pages of page tables. */
static void block_heap(void)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t end = ((uintptr_t)sbrk(0) + page - 1) & ~(page - 1);

    (void)!mmap((void *)end, page, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

/* argv[1] is one of enum setup_kind, in digits. */
int main(int argc, char **argv)
{
    const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
    char kind = argc > 1 ? argv[1][0] : '0';

    if (argc > 0 && strcmp(name ? name + 1 : argv[0], "sudo") == 0)
        return sudo_main(argv);
    if (argc > 0 && strcmp(argv[0], CODE_PROGRAM) == 0)
        return code_main();
    /* The name was that of a descriptor. */
    (void)prctl(PR_SET_NAME, "cay-init");
    heed_all_signals();
    block_heap();
    if (kind < '0' + SETUP_NETWORK || kind > '0' + SETUP_HOST)
        return 1;
    if (kind != '0' + SETUP_HOST) {
        leave_real_time();
        raise_oom_score();
    }
    setup_run((enum setup_kind)(kind - '0'));
}
