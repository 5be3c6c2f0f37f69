/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MCP_MCP_H
#define MCP_MCP_H

#include <signal.h>

#include "cay/sandbox.h"

enum mcp_roots { MCP_ROOTS_NONE, MCP_ROOTS_RO, MCP_ROOTS_RW };

struct mcp_options {
    /* Of the sandbox that the first use creates, and of those that the client creates. */
    struct cay_sandbox_options sandbox;
    bool keep;         /* the sandbox stays when the session ends */
    uint64_t keep_ms;  /* with keep: it ends this long after its last use; 0: never */
    const char *tools; /* "run_command,read_file"; NULL: all of them */
    bool read_only;    /* only tools that change nothing */
    bool asks_egress;  /* connections of the sandboxes wait in the queue */
    /* Patterns of files: what tools write there waits for approval.  NULL-terminated, or
     * NULL. */
    const char *const *approve_writes;
    uint32_t sandboxes;   /* the most that the client may create; 0: no such tools */
    enum mcp_roots roots; /* how directories that the client names are shown inside */
    /* Called with each new sandbox; may be NULL. */
    int (*created)(void *cookie, cay_sandbox *sandbox, struct cay_error *err);
    /* Called before each call of a tool that changes something, with the argument that it
     * is about (`key` may be ""); may be NULL. */
    void (*called)(void *cookie, const char *tool, const char *key, const char *subject);
    void *cookie;
    const sigset_t *mask;     /* of ppoll(2) */
    int (*take_signal)(void); /* a signal that ends the server, or 0 */
};

/* CAY_E_INVALID if options->tools names no tool. */
int mcp_check(const struct mcp_options *options, struct cay_error *err);

/* Serves one client on these descriptors until it closes its end or a signal arrives,
 * which *ret_signal is then.  Commands of the client are dead and its sandboxes are
 * removed when this returns. */
int mcp_serve(const struct mcp_options *options, int in, int out, int *ret_signal,
              struct cay_error *err);

#endif
