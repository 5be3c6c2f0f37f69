/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MCP_SERVER_H
#define MCP_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "mcp/message.h"
#include "mcp/session.h"
#include "json/json.h"

/* The parts of one server: its loop and the messages of its client (server.c), the
 * methods of the protocol (method.c), calls of tools (task.c) and messages to the client
 * (reply.c). */

enum {
    MCP_WORKERS_MAX = 16,
    MCP_CALLS_MAX = 128,      /* with those that wait */
    MCP_REPLY_MAX = 16 << 20, /* bytes of a result */
    MCP_READ_SIZE = 64 << 10,
    MCP_PROGRESS_MS = 1000,
    MCP_APPROVAL_MS = 100, /* between looks at the queue of approvals */
    MCP_VERSION_COUNT = 5
};

/* The newest first.  The first one needs no initialize. */
extern const char *const mcp_versions[MCP_VERSION_COUNT];
#define MCP_MODERN      mcp_versions[0]
#define MCP_LEGACY      mcp_versions[1]
#define MCP_HAS_BATCHES mcp_versions[3]

/* Messages that came together, whose answers go together. */
struct batch {
    struct buf out;
    size_t waiting;
};

/* A request. */
struct request {
    json_t *id;
    bool is_modern; /* it has its revision and the client's capabilities in itself */
    struct batch *batch;
};

/* A call of a tool, until it is answered. */
struct task {
    struct request request;
    const struct mcp_tool *tool; /* NULL: the place is free */
    json_t *arguments, *token;
    size_t size; /* of its message in memory */
    pid_t pid;   /* 0: it waits for its turn */
    int fd;
    struct mcp_lines lines;
    uint64_t begun_ms, progress_ms;
    uint64_t progress;
    bool can_elicit;                   /* the client can show a form */
    char approval[CAY_PENDING_ID_MAX]; /* the request that it was sent, or "" */
    unsigned elicited;                 /* the number of that message */
};

struct server {
    const struct mcp_options *options;
    struct mcp_session session;
    int in, out;
    struct mcp_lines lines;
    struct buf output;
    size_t output_at;
    const char *version; /* of initialize, or NULL */
    bool has_roots;      /* the client can name some */
    bool can_elicit;
    unsigned elicited;
    uint64_t looked_ms;      /* at the queue of approvals */
    uint64_t roots_until_ms; /* tools wait for them until then; 0: they do not */
    unsigned roots_asked;
    struct task tasks[MCP_CALLS_MAX];
    unsigned next; /* where the search for a free task begins: calls keep their order */
    unsigned workers;
    size_t size, queued; /* bytes of the present message, and of all tasks */
    bool is_over;        /* the client is gone */
};

/* The client has to read first. */
bool mcp_is_full(const struct server *server);

/* --- Messages to the client (reply.c) --- */

/* A message is complete or not there. */
void mcp_send(struct server *server, struct batch *batch, const struct buf *text);
void mcp_end_batch(struct server *server, struct batch *batch);

void mcp_put_tree(struct json *json, const json_t *tree);
void mcp_begin_message(struct json *json, struct buf *text, const json_t *id);
void mcp_begin_result(struct json *json, struct buf *text, const struct request *request,
                      bool is_cacheable);
void mcp_send_result(struct server *server, struct json *json, struct buf *text,
                     const struct request *request);
/* `request` NULL: of a message without an id. */
void mcp_send_error(struct server *server, const struct request *request, int code,
                    const char *message, const char *data);

/* What every result of the newest revision has. */
void mcp_put_modern(struct json *json, const struct request *request, bool is_cacheable);
/* The members of a failure that a model can read and react to. */
void mcp_put_failure(struct json *json, const struct cay_error *failure);
/* Runs the tool, and writes the members of its result. */
void mcp_run_tool(const struct mcp_call *begun, const struct mcp_tool *tool,
                  struct json *json);

/* --- Methods (method.c) --- */

void mcp_take_request(struct server *server, const struct mcp_message *message,
                      struct batch *batch);

/* --- Calls of tools (task.c) --- */

/* A free place for a call, or NULL. */
struct task *mcp_task_place(struct server *server);
void mcp_task_free(struct server *server, struct task *task);
/* Reads from the worker. */
void mcp_task_read(struct server *server, struct task *task);
/* Whether an approval may be what the call waits for. */
bool mcp_task_may_wait(const struct server *server, const struct task *task);

/* In the order in which they came. */
void mcp_tasks_start(struct server *server);
/* A sign of life of calls that take long. */
void mcp_tasks_report(struct server *server);
/* Commands wait for approval in workers, which do not say so. */
void mcp_tasks_approve(struct server *server);

#endif
