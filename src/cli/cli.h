/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

/* What every program of the command does first. */
void cli_begin(void);

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
