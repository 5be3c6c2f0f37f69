/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_HINT_H
#define CLI_HINT_H

#include "cay/sandbox.h"

/* What would make a command work that did not, because something of this machine is not
 * inside.  What is said was looked up, and what is proposed works as it stands; else
 * nothing is proposed.  Written for the one who typed the command: it may name paths of
 * the host. */
struct hint {
    cay_sandbox *sandbox;
    const struct cay_exec_options *exec;
    /* What the sandbox was made with, if that was for this command, and its options can
     * be given anew; NULL if not. */
    const struct cay_sandbox_options *made;
};

#define HINT_ROOM 1024

/* One line on standard error if the sandbox has no user namespace, and so an isolation
 * level below "single".  Required layers were checked when it was created: whoever names
 * some needs no note. */
void hint_level(const cay_sandbox *sandbox, unsigned require);

/* The program could not be started for this errno. */
const char *hint_program(const struct hint *hint, int exec_errno, char room[HINT_ROOM]);

/* The program ran and failed: which of its words is a file of this machine and not there
 * inside, or needs one, with what to do about it in `room`; NULL if that is none. */
const char *hint_failure(const struct hint *hint, int exit_code, char room[HINT_ROOM]);

#endif
