/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_STEPS_H
#define TESTS_STEPS_H

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "../unit/harness.h"

/* A child that is killed before one of its system calls. */

/* The child, before its first step. */
static inline void be_stepped(void)
{
    ASSERT_INT(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
    ASSERT_INT(raise(SIGSTOP), 0);
}

/* Lets it make `steps` system calls; true if it came to its end before. */
static inline bool run_for(pid_t pid, unsigned steps)
{
    int status, signal = 0;

    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    ASSERT_INT(ptrace(PTRACE_SETOPTIONS, pid, NULL,
                      (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)),
               0);
    for (unsigned stops = 0; stops < 2 * steps;) {
        ASSERT_INT(ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal), 0);
        ASSERT_INT(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status)) {
            ASSERT_INT(WEXITSTATUS(status), 0);
            return true;
        }
        ASSERT(WIFSTOPPED(status));
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        signal = is_call ? 0 : WSTOPSIG(status);
        stops += is_call;
    }
    ASSERT_INT(kill(pid, SIGKILL), 0);
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return false;
}

/* How many system calls lie between two points to die at.  Every one is one, but that
 * takes minutes: each run takes every fifth, from another one on, and CAY_CRASH_STEP=1
 * takes all. */
static inline unsigned step_width(void)
{
    const char *given = getenv("CAY_CRASH_STEP");
    unsigned step = given ? (unsigned)strtoul(given, NULL, 10) : 5;

    return step ? step : 1;
}

#endif
