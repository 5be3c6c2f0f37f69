/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_E2B_H
#define E2B_E2B_H

#include <jansson.h>

#include "cay/backend.h"
#include "e2b/http.h"

/* A client of E2B's protocol, which has two servers: the service creates, pauses and ends
 * sandboxes and requires an API key; envd, a daemon in each sandbox, runs commands,
 * serves files and requires a token that the service issues.  Neither secret is sent to
 * the other server. */

enum {
    E2B_ENVD_PORT = 49983,
    E2B_KILL_MS = 10000 /* time limit for ending a command */
};

/* The first version of envd with this feature. */
enum {
    E2B_HAS_DEFAULT_USER = 0x000400,
    E2B_HAS_CLOSE_STDIN = 0x000502,
    E2B_HAS_PLAIN_UPLOAD = 0x000507
};

/* The configuration; constant. */
struct e2b_settings {
    char *key;
    char *workdir;    /* absolute */
    char domain[272]; /* a host name of 253 characters, and a port */
    struct e2b_origin api;
    struct e2b_origin sandbox; /* no url: built from the id and the domain */
    bool force_http;
    unsigned retries;
    uint32_t timeout_s;
    uint32_t keepalive_s; /* 0: never extend the lifetime */
};

/* The handle of a sandbox. */
struct e2b {
    struct e2b_settings settings;
    struct e2b_http http;
    char id[64];
    char *token, *traffic_token; /* NULL: none */
    struct e2b_origin envd;
    unsigned version;     /* of envd: 0.6.13 is 0x00060d */
    uint64_t extended_ms; /* when the lifetime was last extended */
    char *passwd, *group; /* /etc/passwd and /etc/group inside; NULL: not read yet */
    char user_name[64];   /* the result of the last e2b_envd_user() */
};

/* Reads the configuration and creates a handle without a sandbox. */
int e2b_new(const cay_config *config, const char *op, struct e2b **ret_e2b,
            struct cay_error *err);
void e2b_free(struct e2b *e2b); /* NULL is fine */

static inline void auto_e2b(struct e2b **e2b)
{
    e2b_free(*e2b);
}
#define AUTO_E2B __attribute__((cleanup(auto_e2b))) struct e2b *

/* Creates another handle of the same sandbox, with its own connections. */
int e2b_dup(const struct e2b *e2b, const char *op, struct e2b **ret_copy,
            struct cay_error *err);

static inline void auto_json(json_t **json)
{
    json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(auto_json))) json_t *

enum { E2B_FIELDS = 10 };
extern const struct cay_field e2b_fields[E2B_FIELDS];

extern const struct cay_file_backend e2b_files;
extern const struct cay_process_backend e2b_processes;

int e2b_exec(void *cookie, const struct cay_exec_options *options,
             struct cay_exec_result *ret_result, struct cay_error *err);

#endif
