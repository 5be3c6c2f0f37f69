/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_SCRIPT_H
#define E2B_SCRIPT_H

#include "e2b/command.h"

/* Helpers that run inside the sandbox, for what envd cannot do.  The text of a script is
 * constant; what it works on is passed as arguments. */
struct e2b_script {
    const char *text;        /* for sh(1) */
    const char *words[3];    /* $1 and so on, up to a NULL */
    const char *const *argv; /* instead of a text: a program */
    const char *user, *cwd;
    const char *const *env;
    uint64_t timeout_ms; /* 0: E2B_KILL_MS */
};

enum { E2B_FILES_MS = 10 * 60 * 1000 }; /* timeout for work on many files */

/* Runs the helper.  Its standard output is appended to `out`, which may be NULL. */
int e2b_script_run(struct e2b *e2b, const struct e2b_script *script, const char *op,
                   struct buf *out, int *ret_exit, struct cay_error *err);

/* e2b_command_step(), which also ends the command with its first process: envd by itself
 * waits until no process has the output open. */
void e2b_script_step(struct e2b_command *command, uint64_t until_ms);
uint64_t e2b_script_watch_due(const struct e2b_command *command); /* UINT64_MAX: never */

/* Sends a signal to the first process: SIGTERM and SIGKILL by envd, others by kill(1). */
int e2b_command_signal(struct e2b_command *command, int signal, struct cay_error *err);

/* Kills all processes of the command that have its marker. */
int e2b_command_kill(struct e2b_command *command, struct cay_error *err);

#endif
