/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_COMMAND_H
#define AGENT_COMMAND_H

#include "agent/userfs.h"

/* What commands and code have in common. */

/* MAX_ARG_STRLEN is 128 KiB; a longer command goes into a file. */
enum { COMMAND_ARGUMENT_MAX = 100 << 10 };

int command_take_options(const struct cay_command_options *options, unsigned allowed,
                         const char *op, struct cay_command_options *ret_known,
                         struct cay_error *err);

/* 0 for none; `fallback` if the options have no timeout. */
uint64_t command_timeout(const struct cay_command_options *options, uint64_t fallback);

/* The result for CAY_TIMEOUT_AT_ONCE: nothing runs. */
int command_expire(struct cay_command_result *ret_result, struct cay_error *err);

/* Fills in status, exit code, duration and message from `end`.  CAY_E_UNAVAILABLE if the
 * sandbox itself ended. */
int command_judge(cay_sandbox *sandbox, const struct cay_exec_result *end,
                  uint64_t timeout_ms, const char *program,
                  struct cay_command_result *result, struct cay_error *err);

/* Whether the caller gets an error as a failed command: a missing working directory or
 * user, say.  Then fills in the result. */
bool command_blame(const struct cay_error *error, struct cay_command_result *result);

/* Sets missing streams to empty ones. */
int command_fill(struct cay_command_result *result, struct cay_error *err);

struct command_job {
    cay_sandbox *sandbox;
    const char *const *argv;
    const char *command; /* for command.txt; NULL: none */
    const void *input;   /* NULL: none */
    size_t input_len;
    const struct cay_command_options *options; /* from command_take_options() */
};

/* Runs it and waits.  *ret_missing: the program does not exist, and the result is unset.
 */
int command_run(const struct command_job *job, bool *ret_missing,
                struct cay_command_result *ret_result, struct cay_error *err);

/* For a command that goes into a file: CAY_E_NOT_APPROVED. */
int command_check_long(cay_sandbox *sandbox, const char *command, struct cay_error *err);

/* The shells to try, in this order; NULL after the last. */
extern const char *const shells[];

int background_start(cay_sandbox *sandbox, const char *command,
                     const struct cay_command_options *options,
                     struct cay_command_result *ret_result, struct cay_error *err);

/* The line of a Python traceback that names the error: "ZeroDivisionError: division by
 * zero".  False if the text has no traceback. */
bool code_traceback_error(const char *text, size_t len, char *ret_line, size_t room);

#endif
