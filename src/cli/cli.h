/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cay/error.h"
#include "cli/options.h"

/* Opens missing standard descriptors and sets signal actions: first of all. */
void cli_begin(void);

/* Executes another program of Cay: the one beside this one, as in a build directory, or
 * else the one in CAY_LIBEXEC.  Returns only if that fails. */
int cli_exec(const char *name, char *const *argv, struct cay_error *err);

/* The commands: `cay config` and so on, and those about sandboxes, whose first word is
 * the name of a subcommand. */
extern const struct grammar agent_grammar, approve_grammar, build_grammar, code_grammar,
    config_grammar, context_grammar, diff_grammar, explain_grammar, files_grammar,
    sandbox_grammar, pool_grammar, session_grammar, setup_grammar, snapshot_grammar,
    template_grammar, try_grammar, volume_grammar, warm_grammar;

#endif
