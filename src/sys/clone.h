/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_CLONE_H
#define SYS_CLONE_H

#include <linux/sched.h>

/* clone3(2) whose child starts in run(cookie) on the given stack; the pid, or a negative
 * errno.  With CLONE_VM the child shares the memory: it may touch only what the cookie
 * points to, and must end by execve(2) or _exit(2). */
long clone_run(const struct clone_args *args, void (*run)(void *cookie), void *cookie);

/* For functions of such a child: sanitizers keep shadow memory for each stack and would
 * misread what a child that never returns leaves there. */
#define IN_CLONE __attribute__((no_sanitize("address", "undefined"), no_stack_protector))

#endif
