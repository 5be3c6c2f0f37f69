/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MCP_MESSAGE_H
#define MCP_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* JSON-RPC 2.0 in lines, as MCP's stdio transport has it.  The peer may send anything. */

#define MCP_LINE_MAX (16u << 20) /* bytes of a message */
#define MCP_TREE_MAX (64u << 20) /* bytes of memory that its tree may take, about */

enum mcp_code {
    MCP_E_PARSE = -32700,
    MCP_E_REQUEST = -32600,
    MCP_E_METHOD = -32601,
    MCP_E_PARAMS = -32602,
    MCP_E_INTERNAL = -32603,
    MCP_E_RESOURCE = -32002, /* before revision 2026-07-28 */
    MCP_E_HEADERS = -32020,
    MCP_E_VERSION = -32022
};

/* Bytes as they arrive, to be taken line by line. */
struct mcp_lines {
    struct buf text;
    size_t at, seen; /* the next line; where no line end was found up to now */
    bool is_skipping;
    bool has_skipped; /* a line that was too long, which the next take reports */
};
void mcp_lines_init(struct mcp_lines *lines);
void mcp_lines_done(struct mcp_lines *lines);

/* False if memory is exhausted. */
bool mcp_lines_add(struct mcp_lines *lines, const char *data, size_t len);

/* 1: a line without its end, which is valid until the next call; 0: there is none yet;
 * -1: a line was longer than MCP_LINE_MAX and is lost. */
int mcp_lines_take(struct mcp_lines *lines, const char **ret_line, size_t *ret_len);

/* About the memory that the tree of this text takes. */
size_t mcp_tree_size(const char *text, size_t len);

/* The tree of a message, to be freed with json_decref(); NULL with a reason if it is
 * neither an object nor an array, or takes too much memory. */
json_t *mcp_parse(const char *text, size_t len, const char **ret_reason);

enum mcp_kind { MCP_REQUEST, MCP_NOTIFICATION, MCP_RESPONSE, MCP_MALFORMED };

struct mcp_message {
    enum mcp_kind kind;
    json_t *id;         /* of MCP_REQUEST and MCP_RESPONSE; else perhaps NULL */
    const char *method; /* of MCP_REQUEST and MCP_NOTIFICATION */
    json_t *params;     /* an object, or NULL */
    json_t *result;     /* of MCP_RESPONSE; NULL for an error */
};

/* Pointers into `item`. */
void mcp_message(json_t *item, struct mcp_message *ret_message);

#endif
