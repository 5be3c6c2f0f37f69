/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_HINT_H
#define CLI_HINT_H

#include "cay/sandbox.h"

/* Explains a command that failed because a file of the host is not visible inside, and
 * which options would make it work.  Every proposal was checked.  The text is for the
 * user who typed the command, so it may name host paths. */
struct hint {
    cay_sandbox *sandbox;
    const struct cay_exec_options *exec;
    /* Options of the sandbox if this command created it, so that they can be changed;
     * else NULL. */
    const struct cay_sandbox_options *made;
};

#define HINT_ROOM 1024

/* One line on standard error if the sandbox has no user namespace, and so an isolation
 * level below "single".  Not with --require, which checked the layers at creation. */
void hint_level(const cay_sandbox *sandbox, unsigned require);

/* The program could not be started for this errno. */
const char *hint_program(const struct hint *hint, int exec_errno, char room[HINT_ROOM]);

/* The program ran and failed: returns the argument that is a file of the host but missing
 * inside, or needs one, with a hint in `room`; NULL if there is none. */
const char *hint_failure(const struct hint *hint, int exit_code, char room[HINT_ROOM]);

#endif
