/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_HINT_H
#define CLI_HINT_H

#include <stdbool.h>

#include "cay/sandbox.h"

/* What would make a command work that did not, because something of this machine is not
 * inside.  Written for the one who typed the command: it may name paths of the host. */
struct hint {
    cay_sandbox *sandbox;
    const struct cay_exec_options *exec;
    bool is_fresh; /* made for this command: its options can be given anew */
};

#define HINT_ROOM 1024

/* The program could not be started for this errno. */
const char *hint_program(const struct hint *hint, int exec_errno, char room[HINT_ROOM]);

/* The program ran and failed: the first of its arguments that is a file of this machine
 * and not there inside, with what to do about it in `room`; NULL if there is none. */
const char *hint_argument(const struct hint *hint, char room[HINT_ROOM]);

#endif
