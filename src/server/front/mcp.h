/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_MCP_H
#define SERVER_FRONT_MCP_H

#include <jansson.h>

#include "mcp/message.h"
#include "server/front/front.h"

/* MCP over HTTP: the requests of clients (mcp.c), the processes of their sessions
 * (mcp-session.c) and the streams of events to clients (mcp-stream.c). */

enum {
    MCP_EVENTS_MAX = 256,      /* that a session keeps for clients that return */
    MCP_STREAM_MAX = 40 << 20, /* of a stream: two of the largest messages */
    MCP_SESSION_ID = 33,
    MCP_NAME_MAX_LEN = 64 /* of Cay-Session */
};

/* Part of a stream, as it was sent. */
struct event {
    uint64_t stream, number;
    char *text;
    size_t len;
};

/* A request that the process has not answered. */
struct pending {
    struct pending *next;
    uint64_t number;           /* its id for the process */
    uint64_t stream;           /* to which the answer belongs */
    json_t *id, *token;        /* of the client; token: NULL for none */
    struct exchange *exchange; /* NULL: the client has left */
};

struct mcp_session {
    struct mcp_session *next;
    struct front *front;
    uv_poll_t poll;
    int fd;
    char id[MCP_SESSION_ID]; /* "": of requests without a session */
    char name[MCP_NAME_MAX_LEN + 1];
    char kept[MCP_KEPT_MAX]; /* its sandbox, if that outlives it; or "" */
    char tenant[TENANT_MAX];
    struct mcp_lines lines;
    struct buf output;
    size_t output_at;
    struct pending *pending;
    unsigned pending_count;
    struct exchange *listener; /* the stream of a GET */
    struct event events[MCP_EVENTS_MAX];
    unsigned first_event, event_count;
    size_t event_bytes;
    uint64_t used_ms;
    bool is_over;
};

/* The state of an exchange. */
struct mcp_call {
    json_t *message;
    struct mcp_session *session; /* while it has requests there, or listens */
    uint64_t stream;
    unsigned waiting; /* requests without an answer */
    bool is_modern, takes_json, takes_stream, is_batch, has_primer;
    bool is_new; /* the response names the session */
    bool is_checked;
    char name[MCP_NAME_MAX_LEN + 1];
    char kept[MCP_KEPT_MAX];
    char session_id[MCP_SESSION_ID];
};

static inline struct mcp_call *front_mcp_call(const struct exchange *exchange)
{
    return exchange->state;
}

/* Of requests, streams and events. */
extern uint64_t front_mcp_last;

/* --- Sessions (mcp-session.c) --- */

/* Takes over `fd`, the socket to its process.  NULL if memory is exhausted. */
struct mcp_session *front_mcp_new(struct exchange *exchange, int fd);
/* That of the client's tenant with this id; "": the one of requests without a session. */
struct mcp_session *front_mcp_find(struct exchange *exchange, const char *id);
/* Closes the socket: the process removes its sandbox and exits.  Requests that wait are
 * answered with the message. */
void front_mcp_end(struct mcp_session *session, const char *message);
/* Waits for what the process may send, and take. */
void front_mcp_update(struct mcp_session *session);

/* A message of the client.  False if the process cannot take it; it then has its own id.
 */
bool front_mcp_send(struct mcp_session *session, struct exchange *exchange, json_t *item);
/* The exchange is about to be freed. */
void front_mcp_call_done(struct exchange *exchange);

/* --- Streams (mcp-stream.c) --- */

void front_mcp_add_header(struct exchange *exchange, const char *name, const char *value);
void front_mcp_stream_begin(struct exchange *exchange);
/* Whether the key of an open stream was removed, as the latest check says. */
bool front_mcp_is_refused(struct exchange *exchange);
/* A message for the client of this stream; `exchange` NULL: it has left. */
void front_mcp_deliver(struct mcp_session *session, struct exchange *exchange,
                       uint64_t stream, struct buf *data, bool is_last);
/* Sends what followed the event, "STREAM-NUMBER". */
void front_mcp_stream_resume(struct mcp_session *session, struct exchange *exchange,
                             const char *id);
/* Forgets the oldest event. */
void front_mcp_drop_event(struct mcp_session *session);

#endif
