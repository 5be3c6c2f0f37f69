/* SPDX-License-Identifier: Apache-2.0 */

/* cay-init: PID 1 of a native sandbox.
 *
 * Theory of operation.  The library clones itself into a new user and PID namespace and
 * the sandbox's cgroup, and executes this program there from a sealed memfd.  While it
 * makes the other namespaces, the library writes its user maps, makes its limits, the
 * plan (plan.h) and the file systems that need the host's privilege, and hands all that
 * over.  inside.c puts the root together from them, drops what it does not need and locks
 * the door behind it; serve.c then runs commands for whoever may open the control socket.
 * It never executes another program itself: nothing inside can touch its memory or its
 * binary.
 *
 * Every failure before the sandbox is ready is one struct cay_error on the status socket.
 */
#include <fcntl.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/setup.h"
#include "init/sudo.h"

enum { OOM_SCORE_RAISE = 500, OOM_SCORE_MAX = 1000 };

/* What the program that made us ignores is not for our commands to inherit: Python, for
 * one, ignores SIGPIPE.  By the kernel's own call and struct, all zeros, since the C
 * library keeps some signals for itself. */
static void heed_all_signals(void)
{
    static const char by_default[64];

    for (long number = 1; number <= 64; number++)
        (void)syscall(SYS_rt_sigaction, number, by_default, NULL, 8L);
}

/* Neither the processor's nor the disks': who has it keeps them from everybody else. */
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

/* Where memory is short for the whole machine, or for a cgroup that holds us and the
 * server which made us, the kernel ends processes of sandboxes first.  After execve(2):
 * before it we share the memory of our maker, and the score would be set for both.  If
 * our maker has CAP_SYS_RESOURCE, programs inside cannot lower it again. */
static void raise_oom_score(void)
{
    char text[16] = "";
    AUTO_FD fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return;
    long score = strtol(text, NULL, 10) + OOM_SCORE_RAISE;
    int len =
        snprintf(text, sizeof text, "%ld", score < OOM_SCORE_MAX ? score : OOM_SCORE_MAX);
    (void)!pwrite(fd, text, (size_t)len, 0);
}

/* The word is one of enum setup_kind, in digits. */
int main(int argc, char **argv)
{
    const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
    char kind = argc > 1 ? argv[1][0] : '0';

    if (argc > 0 && strcmp(name ? name + 1 : argv[0], "sudo") == 0)
        return sudo_main(argv);
    /* We were started by the number of a descriptor. */
    (void)prctl(PR_SET_NAME, "cay-init");
    heed_all_signals();
    if (kind < '0' + SETUP_NETWORK || kind > '0' + SETUP_HOST)
        return 1;
    if (kind != '0' + SETUP_HOST) {
        leave_real_time();
        raise_oom_score();
    }
    setup_run((enum setup_kind)(kind - '0'));
}
