/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_OPTIONS_H
#define SERVER_WIRE_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "cay/error.h"
#include "cay/sandbox.h"

enum { NODE_LEN = 4 };

/* The letters of names of nodes, and of ids. */
#define NODE_LETTERS "abcdefghijklmnopqrstuvwxyz234567"
bool options_is_node(const char *text);
/* A valid name of a tenant. */
bool options_is_tenant(const char *name);

struct serve_options {
    char address[64];   /* "127.0.0.1", "::1" */
    uint16_t port;      /* 0: any */
    bool has_listen;    /* address and port were given */
    const char *domain; /* suffix of sandbox host names; NULL: "localhost:PORT" */
    const char *tls_cert, *tls_key;
    const char *api_key_file;
    uint64_t memory_bytes, disk_bytes; /* of each sandbox */
    bool has_memory, has_disk; /* given: an error if the limit cannot be enforced */
    enum cay_storage storage;
    enum cay_network internet;      /* for sandboxes that request it */
    const char *internet_rules;     /* with commas, if that is CAY_NETWORK_RULES */
    const char *network_limit;      /* of each sandbox, or NULL */
    const char *mcp_tools;          /* see options_next_tools(); NULL: all */
    const char *mcp_approve;        /* patterns with commas, or NULL */
    const char *mcp_approve_writes; /* the same */
    unsigned mcp_sandboxes;         /* that a session may create besides its own */
    unsigned mcp_idle_s;            /* after which a session ends */
    unsigned mcp_keep;              /* sandboxes of a tenant that stay */
    uint64_t reserve_bytes;         /* memory to leave free */
    uint32_t max_timeout_s;
    unsigned drain_s; /* for requests in flight at SIGTERM */
    enum { ON_EXIT_LEAVE = 1, ON_EXIT_KILL = 2 } on_exit;         /* 0: not given */
    enum { LOG_FORMAT_TEXT = 1, LOG_FORMAT_JSON = 2 } log_format; /* 0: not given */
    unsigned pool;
    unsigned audit_days; /* 0: no audit record */
    bool mcp;            /* MCP over HTTP */
    bool is_quiet;
    bool no_ui;                                /* no dashboard */
    bool prints_haproxy;                       /* for these nodes, and exit */
    bool checks, checks_store, rebuilds_store; /* and exit */
    const char *store;                         /* NULL: serve.db in home */
    const char *webhook, *webhook_secret_file; /* NULL: none */
    const char *access_log;                    /* NULL: none; "-": standard error */
    char home[PATH_MAX];                       /* $CAY_HOME or its default */
    /* One of several servers: docs/design/scale.md. */
    char node[NODE_LEN + 1];     /* "": the only one */
    unsigned agent_port;         /* 0: none */
    unsigned max_sandboxes;      /* 0: as many as memory allows */
    const char *server_key_file; /* NULL: serve.key in home */
    const char *require_level;   /* NULL: any */
    const char *store_url;       /* of PostgreSQL; NULL: none */
    const char *store_password_file;
    const char *shared; /* directory, or s3://, of snapshots; NULL: none: wire/bucket.h */
    const char *shared_endpoint, *shared_region; /* of s3://; NULL: the default */
    const char *shared_credentials_file;         /* NULL: the environment */
    char *const *nodes; /* of prints_haproxy: NODE=ADDRESS, NULL-terminated */
};

/* Finds the state directory, and creates it if `make` is set: sys/state-home.h. */
int options_home(struct serve_options *options, bool make, struct cay_error *err);

/* The store: a path, or ":memory:". */
int options_store(const struct serve_options *options, char ret_path[PATH_MAX],
                  struct cay_error *err);

/* The next part of a copy of --mcp-tools, which is cut up: a tenant, or "" for all
 * others, and its list: "all", "read-only" or names.  False past the last one. */
bool options_next_tools(char **at, const char **ret_tenant, const char **ret_list);

/* Erases a URL that came from the environment, which has a password. */
void options_hide_store(struct serve_options *options);

void options_help(struct buf *text);

/* `argv` starts after the command's name.  Returns 1 for --help. */
int options_parse(char *const *argv, struct serve_options *ret_options,
                  struct cay_error *err);

#endif
