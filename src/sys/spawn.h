/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_SPAWN_H
#define SYS_SPAWN_H

#include <sys/types.h>

struct spawn {
    const char *program; /* a path */
    char *const *argv, *const *env;
    int dir;        /* its working directory; -1: this process's */
    int streams[3]; /* what it has as standard input, output and error; -1: /dev/null */
};

/* Starts a program as posix_spawn(3) does, and also closes all other descriptors (musl
 * has no posix_spawn_file_actions_addclosefrom_np()): other code of this process may have
 * opened them without O_CLOEXEC.  No signal is blocked or ignored in the program.  The
 * caller waits for *ret_pid.  0 or a negative errno, also of execve(2). */
int spawn_program(const struct spawn *spawn, pid_t *ret_pid);

#endif
