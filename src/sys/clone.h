/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_CLONE_H
#define SYS_CLONE_H

#include <linux/sched.h>

/* clone3(2) whose child starts in run(cookie) on the given stack; the pid, or a negative
 * errno.  With CLONE_VM the child shares the memory: it may touch only what the cookie
 * points to, and must end by execve(2) or _exit(2). */
long clone_run(const struct clone_args *args, void (*run)(void *cookie), void *cookie);

enum { CLONE_SOCKET = 3, CLONE_PROGRAM = 4 };

/* In such a child: executes `program` with /dev/null as its standard streams, `socket` as
 * CLONE_SOCKET and no other descriptor.  Both are above CLONE_PROGRAM.  Returns only with
 * a negative errno. */
long clone_execute(int socket, int program, char *const *argv, char *const *env);

/* For functions of such a child: sanitizers keep shadow memory for each stack and would
 * misread what a child that never returns leaves there. */
#define IN_CLONE __attribute__((no_sanitize("address", "undefined"), no_stack_protector))

#endif
