/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cay/error.h"

/* Opens missing standard descriptors and sets signal actions: first of all. */
void cli_begin(void);

/* Executes another program of Cay: the one beside this one, as in a build directory, or
 * else the one in CAY_LIBEXEC.  Returns only if that fails. */
int cli_exec(const char *name, char *const *argv, struct cay_error *err);

/* `argv` is what follows the command's name, and ends with NULL.  Returns the exit
 * status. */
int cmd_config(char *const *argv);
int cmd_files(char *const *argv);
int cmd_session(char *const *argv);
int cmd_template(char *const *argv);
int cmd_serve(char *const *argv);
int cmd_key(char *const *argv);
int cmd_env(char *const *argv);

/* Here the first word is the command's own name, one of sandbox_grammar's. */
int cmd_sandbox(char *const *argv);

#endif
