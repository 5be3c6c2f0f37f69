/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

/* One per command, in cmd-NAME.c.  `argv` is what follows the command's name, and ends
 * with NULL.  Returns the exit status. */
int cmd_files(char *const *argv);
int cmd_run(char *const *argv);

#endif
