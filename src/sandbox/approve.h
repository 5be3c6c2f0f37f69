/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SANDBOX_APPROVE_H
#define SANDBOX_APPROVE_H

#include "base/buf.h"
#include "cay/sandbox.h"

/* Commands that need approval.  A backend stores the options as a text: the scope, the
 * timeout in milliseconds and the patterns, each with a NUL after it. */

enum { APPROVE_SCOPE_MAX = 4096, APPROVE_TEXT_MAX = CAY_APPROVE_BYTES + 4096 + 32 };

/* `scope` is used if the options have none.  Empty without patterns and a scope. */
int approve_pack(const struct cay_sandbox_options *options, const char *scope,
                 struct buf *ret_text, struct cay_error *err);

/* Whether the options can be packed. */
int approve_check(const struct cay_sandbox_options *options, struct cay_error *err);

/* A command of a sandbox that has such options.  Zeroed first, freed by approve_done().
 */
struct approve_command {
    bool is_needed;
    char *text; /* of the backend, or NULL */
    const char *scope;
    uint64_t timeout_ms;
    struct cay_exec_options exec; /* complete */
    char *line;                   /* as for a shell; only if is_needed */
};

int approve_look(cay_sandbox *sandbox, const struct cay_exec_options *options,
                 struct approve_command *ret_command, struct cay_error *err);
void approve_done(struct approve_command *command);
#define AUTO_APPROVE __attribute__((cleanup(approve_done))) struct approve_command

/* The command line, quoted as for a shell; NULL: memory is exhausted. */
char *approve_line(const char *const *argv);

/* Whether the pattern matches the line, also with the last part of the program's path
 * alone, or an argument after "sh -c". */
bool approve_matches(const char *pattern, const char *const *argv, const char *line);

/* For a command that is passed in a file, so that the user could not see what they
 * approve.  CAY_E_NOT_APPROVED: it needs approval. */
int approve_refuse_hidden(cay_sandbox *sandbox, const char *const *argv,
                          struct cay_error *err);

/* Waits until the command may start: CAY_E_NOT_APPROVED.  The small program has another
 * definition. */
int approve_await(cay_sandbox *sandbox, const struct approve_command *command,
                  struct cay_error *err);

/* What comes before every command that may start. */
int sandbox_before_command(cay_sandbox *sandbox, struct cay_error *err);

#endif
