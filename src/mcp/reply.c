/* SPDX-License-Identifier: Apache-2.0 */

/* Messages to the client: results, errors, batches, and results of tools. */
#include "mcp/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"

void mcp_put_tree(struct json *json, const json_t *tree)
{
    AUTO_FREE char *text = json_dumps(tree, JSON_COMPACT | JSON_ENCODE_ANY);

    if (text)
        json_put_raw(json, text);
    else
        json_put_null(json);
}

void mcp_send(struct server *server, struct batch *batch, const struct buf *text)
{
    struct buf *out = batch ? &batch->out : &server->output;
    bool is_sent =
        !text->failed && text->data && (!batch || buf_text(out, out->len ? "," : "[")) &&
        buf_append(out, text->data, text->len) && (batch || buf_text(out, "\n"));

    if (!is_sent && !batch)
        server->is_over = true; /* memory is exhausted */
}

void mcp_end_batch(struct server *server, struct batch *batch)
{
    if (!batch || --batch->waiting)
        return;
    if (batch->out.len) {
        (void)buf_text(&batch->out, "]");
        mcp_send(server, NULL, &batch->out);
    }
    buf_done(&batch->out);
    free(batch);
}

void mcp_begin_message(struct json *json, struct buf *text, const json_t *id)
{
    buf_init(text, MCP_REPLY_MAX);
    json_to_unicode(json, text);
    json_put_object(json);
    json_set_text(json, "jsonrpc", "2.0");
    json_put_key(json, "id");
    mcp_put_tree(json, id);
}

void mcp_send_error(struct server *server, const struct request *request, int code,
                    const char *message, const char *data)
{
    AUTO_BUF text = {0};
    struct json json;

    mcp_begin_message(&json, &text, request ? request->id : NULL);
    json_put_key(&json, "error");
    json_put_object(&json);
    json_set_int(&json, "code", code);
    json_set_text(&json, "message", message);
    if (data) {
        json_put_key(&json, "data");
        json_put_raw(&json, data);
    }
    json_put_end(&json);
    json_put_end(&json);
    mcp_send(server, request ? request->batch : NULL, &text);
}

void mcp_put_modern(struct json *json, const struct request *request, bool is_cacheable)
{
    if (!request->is_modern)
        return;
    json_set_text(json, "resultType", "complete");
    if (!is_cacheable)
        return;
    json_set_int(json, "ttlMs", 0);
    json_set_text(json, "cacheScope", "private");
}

void mcp_begin_result(struct json *json, struct buf *text, const struct request *request,
                      bool is_cacheable)
{
    mcp_begin_message(json, text, request->id);
    json_put_key(json, "result");
    json_put_object(json);
    mcp_put_modern(json, request, is_cacheable);
}

void mcp_send_result(struct server *server, struct json *json, struct buf *text,
                     const struct request *request)
{
    json_put_end(json);
    json_put_end(json);
    if (json_finish(json))
        mcp_send(server, request->batch, text);
    else
        mcp_send_error(server, request, MCP_E_INTERNAL, "the result is too large", NULL);
}

/* --- Results of tools --- */

void mcp_put_failure(struct json *json, const struct cay_error *failure)
{
    char text[1600];

    snprintf(text, sizeof text, "%s: %s%s%s (%s)", cay_code_slug(failure->code),
             failure->subject, *failure->subject ? ": " : "", failure->message,
             failure->hint);
    json_put_key(json, "content");
    json_put_array(json);
    json_put_object(json);
    json_set_text(json, "type", "text");
    json_set_text(json, "text", text);
    json_put_end(json);
    json_put_end(json);
    json_set_bool(json, "isError", true);
    json_put_key(json, "_meta");
    json_put_object(json);
    json_put_key(json, "cay/error");
    json_put_object(json);
    json_set_text(json, "code", cay_code_slug(failure->code));
    json_set_text(json, "subject", failure->subject);
    json_set_text(json, "message", failure->message);
    json_set_text(json, "hint", failure->hint);
    json_put_end(json);
    json_put_end(json);
}

static void put_success(struct json *json, const struct buf *data, const struct buf *text,
                        const struct buf *more)
{
    const struct buf *shown = text->len ? text : data;
    AUTO_BUF first = {0};
    struct json item;

    buf_init(&first, MCP_REPLY_MAX);
    json_to_unicode(&item, &first);
    json_put_object(&item);
    json_set_text(&item, "type", "text");
    json_put_key(&item, "text");
    json_put_bytes(&item, shown->data, shown->len);
    json_put_end(&item);
    (void)buf_append(&first, more->data ? more->data : "", more->len);
    json_put_key(json, "content");
    json_put_array(json);
    if (first.failed || more->failed || text->failed || data->failed || !first.data)
        json->failed = true;
    else
        json_put_raw(json, first.data);
    json_put_end(json);
    if (!json->failed) {
        json_put_key(json, "structuredContent");
        json_put_raw(json, data->data);
    }
    json_set_bool(json, "isError", false);
}

void mcp_run_tool(const struct mcp_call *begun, const struct mcp_tool *tool,
                  struct json *json)
{
    struct mcp_call call = *begun;
    struct cay_error failure = {0};
    struct json data;
    AUTO_BUF data_text = {0}, text = {0}, more = {0};
    int code = CAY_OK;

    buf_init(&data_text, MCP_REPLY_MAX);
    buf_init(&text, MCP_REPLY_MAX);
    buf_init(&more, MCP_REPLY_MAX);
    call.text = &text;
    call.more = &more;
    json_to_unicode(&data, &data_text);
    json_put_object(&data);
    if (!(tool->flags & MCP_TOOL_BOXES))
        code = mcp_session_box(call.session, mcp_text(&call, "sandbox", NULL), &call.box,
                               &failure);
    if (!code)
        code = tool->run(&call, &data, &failure);
    json_put_end(&data);
    if (code)
        mcp_put_failure(json, &failure);
    else
        put_success(json, &data_text, &text, &more);
}
