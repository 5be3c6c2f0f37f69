/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_COMMAND_H
#define AGENT_COMMAND_H

#include "agent/userfs.h"

/* What every way to run something has in common: options in, a result out. */

/* One argument has room for 128 KiB; what is longer goes into a file. */
enum { COMMAND_ARGUMENT_MAX = 100 << 10 };

int command_take_options(const struct cay_command_options *options, unsigned allowed,
                         const char *op, struct cay_command_options *ret_known,
                         struct cay_error *err);

/* 0 for none; `fallback` for what was not said. */
uint64_t command_timeout(const struct cay_command_options *options, uint64_t fallback);

/* The result of what was not to run at all. */
int command_expire(struct cay_command_result *ret_result, struct cay_error *err);

/* Status, exit code, duration and message of what has ended as `end` says.
 * CAY_E_UNAVAILABLE if the sandbox has. */
int command_judge(cay_sandbox *sandbox, const struct cay_exec_result *end,
                  uint64_t timeout_ms, const char *program,
                  struct cay_command_result *result, struct cay_error *err);

/* Whether an error is one of the command rather than of the sandbox: the result then says
 * so, and the error is none. */
bool command_blame(const struct cay_error *error, struct cay_command_result *result);

/* Empty streams, where there are none. */
int command_fill(struct cay_command_result *result, struct cay_error *err);

struct command_job {
    cay_sandbox *sandbox;
    const char *const *argv;
    const char *command; /* for command.txt; NULL: none */
    const void *input;   /* NULL: none */
    size_t input_len;
    const struct cay_command_options *options; /* complete */
};

/* Runs it and waits.  *ret_missing: there is no such program, and nothing in the result.
 */
int command_run(const struct command_job *job, bool *ret_missing,
                struct cay_command_result *ret_result, struct cay_error *err);

#endif
