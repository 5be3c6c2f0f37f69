/* SPDX-License-Identifier: Apache-2.0 */

/* What a client of cay mcp sends: lines in pieces of any size, messages, and arguments
 * for every tool.  A line is what was sent between two line ends, whatever the pieces. */
#include <stdlib.h>
#include <string.h>

#include "mcp/message.h"
#include "mcp/session.h"

static void demand(bool truth)
{
    if (!truth)
        abort();
}

static void check_arguments(const json_t *arguments)
{
    const struct mcp_tool *tool;
    struct cay_error err;

    for (size_t i = 0; (tool = mcp_tool_at(i)); i++) {
        memset(&err, 0, sizeof err);
        int code = mcp_schema_check(tool->input, arguments, &err);
        demand(code == CAY_OK || (err.code == code && *err.message && *err.hint));
    }
}

static void take_item(json_t *item)
{
    struct mcp_message message;

    mcp_message(item, &message);
    if (message.kind == MCP_REQUEST)
        demand(message.id && message.method);
    if (message.kind == MCP_NOTIFICATION)
        demand(!message.id && message.method);
    if (message.params && message.kind != MCP_MALFORMED)
        check_arguments(json_object_get(message.params, "arguments"));
}

static void take_line(const char *line, size_t len)
{
    const char *reason = NULL;
    json_t *tree = mcp_parse(line, len, &reason);
    json_t *item;
    size_t i;

    demand(tree || reason);
    if (json_is_array(tree))
        json_array_foreach(tree, i, item) take_item(item);
    else if (tree)
        take_item(tree);
    json_decref(tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte is the size of the pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1, *expected = text, *line;
    size_t piece = size ? data[0] % 64 + 1u : 1, len = size ? size - 1 : 0, found;
    struct mcp_lines lines;

    mcp_lines_init(&lines);
    for (size_t at = 0; at < len; at += piece) {
        demand(mcp_lines_add(&lines, text + at, len - at < piece ? len - at : piece));
        while (mcp_lines_take(&lines, &line, &found) > 0) {
            const char *end = memchr(expected, '\n', len - (size_t)(expected - text));
            demand(end && memcmp(line, expected, found) == 0);
            demand(expected + found == end || end[-1] == '\r');
            expected = end + 1;
            take_line(line, found);
        }
    }
    mcp_lines_done(&lines);
    return 0;
}
