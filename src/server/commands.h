/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_COMMANDS_H
#define SERVER_COMMANDS_H

#include "server/broker/api-key.h"
#include "server/wire/options.h"

/* What `cay serve`, `cay env` and `cay key` share.  `argv` begins after the name. */

struct state {
    struct serve_options options;
    struct registry *registry;
    char store[PATH_MAX]; /* where the records are */
};

/* Creates what is missing, unless only_existing. */
int server_state_open(struct state *state, bool only_existing, struct cay_error *err);

int exports_command(char *const *argv, struct cay_error *err);
/* To standard output, and what to know about the address to standard error. */
void exports_print(const struct serve_options *options, const char *key);
void exports_warn(const struct serve_options *options);

/* `ret_json`: errors are to be JSON, too. */
int keys_command(char *const *argv, bool *ret_json, struct cay_error *err);

/* What was printed so far. */
int keys_finish_output(struct cay_error *err);

#endif
