/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_COMMANDS_H
#define SERVER_COMMANDS_H

#include "server/broker/secrets.h"
#include "server/wire/options.h"

/* Shared by `cay serve`, `cay env`, `cay key` and `cay secret`.  `argv` starts after the
 * command's name. */

struct state {
    struct serve_options options;
    struct registry *registry;
    char store[PATH_MAX]; /* path of the database */
};

/* Creates the state directory and the store if they are missing, unless only_existing. */
int server_state_open(struct state *state, bool only_existing, struct cay_error *err);

int commands_env(char *const *argv, struct cay_error *err);
/* commands_print_exports() writes to standard output, commands_warn() to standard error.
 */
void commands_print_exports(const struct serve_options *options, const char *key);
void commands_warn(const struct serve_options *options);
/* Whether other machines reach its address. */
bool commands_is_public(const struct serve_options *options);

/* --- TLS: tls.c --- */

/* Reads a certificate and its key, and checks that they match.  Free both. */
int server_tls_load(const struct serve_options *options, char **ret_cert, char **ret_key,
                    struct cay_error *err);

/* What clients would refuse about a valid certificate, or NULL. */
const char *server_tls_doubt(const char *cert, const char *domain);

/* --- cay serve --check: check.c --- */

/* Prints a line for each part of the configuration.  Listens nowhere and creates nothing;
 * fails if the server would not start. */
int server_check(struct state *state, struct cay_error *err);

/* --haproxy: prints the configuration for the nodes of the options. */
int haproxy_print(const struct serve_options *options, struct cay_error *err);

/* --- Running servers --- */

/* The address of each server, for `cay env`: a file $CAY_HOME/serve-PORT.live, which the
 * server keeps locked.  A file without a lock belongs to a server that was killed. */

struct live {
    char address[64], domain[256]; /* domain "": none */
    unsigned port;
    bool has_tls;
};

/* The server works without it, so a failure is ignored. */
void live_write(const struct serve_options *options, const char *store);
void live_remove(void);

/* Counts the servers with this home and store, and returns one of them. */
unsigned live_find(const char *home, const char *store, struct live *ret_live);

/* --- cay key, cay secret --- */

/* key.c.  `ret_json`: print errors as JSON. */
int key_command(char *const *argv, bool *ret_json, struct cay_error *err);

/* cay audit verify, cay audit export: audit.c */
int audit_command(char *const *argv, bool *ret_json, struct cay_error *err);

int secret_command(char *const *argv, bool *ret_json, struct cay_error *err);

/* Splits off the options, which may be anywhere: --store STORE,
 * --store-password-file FILE, -o text|json and, if
 * `ret_tenant` is not NULL, --tenant TENANT. */
enum { COMMAND_WORDS = 4 };
int commands_take_options(char *const *argv, char *ret_words[COMMAND_WORDS + 1],
                          bool *ret_json, const char **ret_tenant,
                          struct serve_options *options, struct cay_error *err);

/* Flushes standard output and reports a failed write. */
int commands_finish_output(struct cay_error *err);

#endif
