/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_EXECUTE_H
#define CLI_EXECUTE_H

#include "cli/cmd-sandbox.h"

/* A command in a sandbox that somebody waits for. */
struct execute {
    struct sandbox_call *call;
    struct sandbox_plan plan;
    cay_sandbox *sandbox;
    cay_process *process; /* afterwards, too: what takes time is done once all is told */
    bool is_fresh;        /* the sandbox is this command's own, and made with it */
    int signal;           /* afterwards: end by this signal, if not 0 */
};

/* Runs it with our standard streams, tells what became of it, and returns the exit status
 * or a negative code.  signals_catch() must have been called. */
int execute_wait(struct execute *execute, struct cay_error *err);

void execute_done(struct execute *execute);

/* The status of a command that could not be started for that errno, told with a hint. */
int execute_not_started(struct execute *execute, struct cay_error *err);

#endif
