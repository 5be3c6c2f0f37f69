/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_COMMANDS_H
#define SERVER_COMMANDS_H

#include "server/broker/api-key.h"
#include "server/wire/options.h"

/* Shared by `cay serve`, `cay env` and `cay key`.  `argv` starts after the command's
 * name. */

struct state {
    struct serve_options options;
    struct registry *registry;
    char store[PATH_MAX]; /* path of the database */
};

/* Creates the state directory and the store if they are missing, unless only_existing. */
int server_state_open(struct state *state, bool only_existing, struct cay_error *err);

int exports_command(char *const *argv, struct cay_error *err);
/* exports_print() writes to standard output, exports_warn() to standard error. */
void exports_print(const struct serve_options *options, const char *key);
void exports_warn(const struct serve_options *options);

/* `ret_json`: print errors as JSON. */
int keys_command(char *const *argv, bool *ret_json, struct cay_error *err);

/* Flushes standard output and reports a failed write. */
int keys_finish_output(struct cay_error *err);

#endif
