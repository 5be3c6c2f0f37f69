/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_COMMAND_H
#define INIT_COMMAND_H

#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"
#include "init/leaf.h"
#include "init/user.h"

/* What is to be executed: strings of our own, already checked. */
struct command {
    char **argv, **env;
    const char *cwd; /* "" is the user's home */
    struct user user;
    int stdio[3];
};

/* Starts it in the leaf as a session of its own.  CAY_OK and a pid and pidfd; or
 * CAY_E_EXEC_FAILED with sys_errno, when the program could not be executed (op tells the
 * step: "exec.cwd", "exec.program"); or another code when it was not even tried. */
int command_start(const struct command *command, const struct leaf *leaf, pid_t *ret_pid,
                  int *ret_pidfd, struct cay_error *err);

#endif
