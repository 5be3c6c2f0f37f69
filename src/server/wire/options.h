/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_OPTIONS_H
#define SERVER_WIRE_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "cay/error.h"
#include "cay/sandbox.h"

struct serve_options {
    char address[64];   /* "127.0.0.1", "::1" */
    uint16_t port;      /* 0: any */
    bool has_listen;    /* the two were given */
    const char *domain; /* names of sandboxes end in it; NULL: "localhost:PORT" */
    const char *tls_cert, *tls_key;
    const char *api_key_file;
    unsigned pool;
    uint64_t memory_bytes, disk_bytes; /* of each sandbox */
    bool has_memory, has_disk; /* given: then it is an error if they cannot be kept */
    enum cay_storage storage;
    enum cay_network internet; /* of those that ask for it */
    uint64_t reserve_bytes;    /* of memory that stays free */
    uint32_t max_timeout_s;
    unsigned drain_s; /* for requests in flight at SIGTERM */
    bool kills_at_exit;
    bool is_quiet;
    bool checks_store, rebuilds_store; /* instead of serving */
    bool leaves_at_exit;               /* said so */
    const char *store;                 /* as given; NULL: in the home */
    const char *access_log;            /* NULL: none; "-": standard error */
    char home[PATH_MAX];               /* $CAY_HOME and its like */
};

/* Finds the directory for state, and with `make` creates it: sys/state-home.h. */
int options_home(struct serve_options *options, bool make, struct cay_error *err);

/* Where the records are: a path, or ":memory:". */
int options_store(const struct serve_options *options, char ret_path[PATH_MAX],
                  struct cay_error *err);

/* `argv` begins after the command's name.  1 if help was asked for. */
int options_parse(char *const *argv, struct serve_options *ret_options,
                  struct cay_error *err);

#endif
