/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MCP_SESSION_H
#define MCP_SESSION_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "cay/approval.h"
#include "cay/files.h"
#include "cay/sandbox.h"
#include "mcp/mcp.h"
#include "mcp/schema.h"
#include "json/json.h"

/* What a client works with: its sandboxes, and the directories of the host that it may
 * name.  The process that serves the client owns it; a worker, which is a child of that
 * process and serves one call, has a copy. */

#define MCP_BOXES_MAX 64
#define MCP_ROOTS_MAX 32

struct mcp_box {
    char id[CAY_ID_MAX]; /* "": none yet */
    cay_sandbox *sandbox;
    cay_files *files; /* opened when needed, or NULL */
    bool is_opened;   /* it existed before this session, which does not remove it */
};

struct mcp_session {
    const struct mcp_options *options;
    struct mcp_box boxes[MCP_BOXES_MAX]; /* the first is the default one */
    size_t box_count;                    /* with that */
    struct cay_bind roots[MCP_ROOTS_MAX];
    size_t root_count;
    bool is_worker;
    uint64_t renewed_ms; /* the time to live of the kept sandbox; 0: not yet */
};

void mcp_session_init(struct mcp_session *session, const struct mcp_options *options);
void mcp_session_done(struct mcp_session *session);

/* Directories of the client: "file:///home/me/src".  Others are ignored.  They are shown
 * in sandboxes that are created later. */
void mcp_session_set_roots(struct mcp_session *session, const json_t *roots);

/* The sandbox with this ID, or the default one (NULL), which is created if necessary. */
int mcp_session_box(struct mcp_session *session, const char *id, struct mcp_box **ret_box,
                    struct cay_error *err);
int mcp_session_create(struct mcp_session *session, struct mcp_box **ret_box,
                       struct cay_error *err);
int mcp_session_kill(struct mcp_session *session, const char *id, struct cay_error *err);

uint64_t mcp_now_ms(void);

/* Files of the host, as far as a mount of the sandbox shows their directory: paths are
 * those of the host.  The caller frees it. */
int mcp_session_host(const struct mcp_session *session, cay_files **ret_files,
                     struct cay_error *err);
bool mcp_session_has_host(const struct mcp_options *options);

/* --- Calls --- */

/* One call of a tool. */
struct mcp_call {
    struct mcp_session *session;
    const json_t *arguments; /* checked against the tool's table */
    struct mcp_box *box;     /* if the tool works in a sandbox */
    struct buf *text;        /* what the model reads; empty: the data as JSON */
    struct buf *more;        /* further content, each item with a comma before it */
    void (*progress)(struct mcp_call *call, const char *text, size_t len);
    int progress_fd;
};

/* An argument, or what stands for it if it is missing or null. */
const char *mcp_text(const struct mcp_call *call, const char *name, const char *fallback);
const char *mcp_bytes(const struct mcp_call *call, const char *name, size_t *ret_len);
int64_t mcp_number(const struct mcp_call *call, const char *name, int64_t fallback);
bool mcp_flag(const struct mcp_call *call, const char *name);
/* "NAME=value" of an argument of type MCP_MAP, NULL-terminated; mcp_free_env(). */
char **mcp_env(const struct mcp_call *call, const char *name);
void mcp_free_env(char **env);

int mcp_files(struct mcp_call *call, cay_files **ret_files, struct cay_error *err);

/* A picture as an item of call->more; `base64` is its text. */
void mcp_put_image(struct mcp_call *call, const char *mime, const char *base64);
char *mcp_base64(const void *data, size_t len);

enum mcp_tool_flag {
    MCP_TOOL_READS = 1 << 0,    /* changes nothing */
    MCP_TOOL_WAITS = 1 << 1,    /* may take long: a worker runs it */
    MCP_TOOL_DESTROYS = 1 << 2, /* what was there before is lost */
    MCP_TOOL_RESETS = 1 << 3,   /* open files of the sandbox are no longer valid */
    MCP_TOOL_HOST = 1 << 4,     /* only if directories of the host are shown */
    MCP_TOOL_BOXES = 1 << 5,    /* only if the client may create sandboxes; without one */
    MCP_TOOL_WRITES = 1 << 6,   /* a file, which may need approval */
};

/* The last line of the input of every tool that works in a sandbox. */
#define MCP_SANDBOX_FIELD                                                                \
    {                                                                                    \
        .name = "sandbox", .type = MCP_STRING,                                           \
        .help = "ID of a sandbox of create_sandbox (default: the session's own)"         \
    }

struct mcp_tool {
    const char *name, *title, *help;
    unsigned flags; /* enum mcp_tool_flag */
    const struct mcp_field *input, *output;
    /* Writes members of the object that is the result. */
    int (*run)(struct mcp_call *call, struct json *data, struct cay_error *err);
};

/* In tools-*.c; a tool without a name ends each. */
extern const struct mcp_tool mcp_file_tools[], mcp_run_tools[], mcp_sandbox_tools[];

/* The tool at this index of all, or NULL past the last one. */
const struct mcp_tool *mcp_tool_at(size_t index);
const struct mcp_tool *mcp_tool_find(const struct mcp_options *options, const char *name);
bool mcp_tool_is_there(const struct mcp_options *options, const struct mcp_tool *tool);
void mcp_tools_put(const struct mcp_options *options, struct json *json);

/* --- Approvals --- */

/* The request in the queue for which a call with these arguments waits. */
bool mcp_approval_find(const struct mcp_session *session, const json_t *arguments,
                       char ret_id[CAY_PENDING_ID_MAX]);
bool mcp_approval_is_for(const struct mcp_session *session, const json_t *arguments,
                         const char *id);

/* A request for a connection of one of the sandboxes, of those that `is_shown` has not
 * seen.  Nothing says which call has caused it. */
bool mcp_approval_find_egress(const struct mcp_session *session,
                              bool (*is_shown)(const void *cookie, const char *id),
                              const void *cookie, char ret_id[CAY_PENDING_ID_MAX]);
/* Whether it is still pending: without a reply. */
bool mcp_approval_is_open(const char *id);

/* The params of elicitation/create. */
void mcp_approval_put(const char *id, bool has_mode, struct json *json);

/* What a tool is about to write to one file. */
struct mcp_write {
    const char *path; /* as the client spelled it */
    char *place;      /* where it leads; NULL: it needs no approval */
    struct cay_pin pin;
};

/* Whether a pattern wants approval of it, and what is at the path now.  To be freed with
 * mcp_write_done(), also on failure. */
int mcp_write_begin(const struct mcp_call *call, cay_files *files, const char *path,
                    struct mcp_write *ret_write, struct cay_error *err);
void mcp_write_done(struct mcp_write *write);

/* Wait for the reply, in a worker: CAY_E_NOT_APPROVED.  Then the operation has to use the
 * pin. */
int mcp_write_await(const struct mcp_call *call, const struct mcp_write *write,
                    const void *content, size_t len, struct cay_error *err);
int mcp_write_await_edits(const struct mcp_call *call, cay_files *files,
                          const struct mcp_write *write, struct cay_error *err);

/* Replies with the client's result.  One that has no decision leaves the request, or
 * denies it. */
void mcp_approval_reply(const char *id, const json_t *result, bool denies_cancel);

/* --- Resources --- */

/* Write members of the result. */
int mcp_resources_list(struct mcp_session *session, const char *cursor, struct json *json,
                       struct cay_error *err);
void mcp_resources_put_templates(struct json *json);
int mcp_resource_read(struct mcp_session *session, const char *uri, struct json *json,
                      struct cay_error *err);

#endif
