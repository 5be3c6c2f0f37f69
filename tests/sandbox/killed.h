/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KILLED_H
#define KILLED_H

#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/harness.h"

/* Runs `act` in a process that is killed after so many system calls; false if it has
 * ended before.  Processes that it starts are not traced. */
static inline bool dies_after(void (*act)(void), int calls)
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0)
            _exit(1);
        act();
        _exit(0);
    }
    ASSERT(waitpid(pid, &status, 0) == pid);
    for (int stops = 0; WIFSTOPPED(status) && stops < 2 * calls; stops++) {
        int signal = WSTOPSIG(status) == SIGCHLD ? SIGCHLD : 0;
        ASSERT(ptrace(PTRACE_SYSCALL, pid, NULL, signal) == 0);
        ASSERT(waitpid(pid, &status, 0) == pid);
    }
    if (!WIFSTOPPED(status)) {
        ASSERT_INT(status, 0);
        return false;
    }
    ASSERT(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
    return true;
}

#endif
