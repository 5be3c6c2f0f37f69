/* SPDX-License-Identifier: Apache-2.0 */

/* The methods of the protocol. */
#include "mcp/server.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"

const char *const mcp_versions[MCP_VERSION_COUNT] = {
    "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

static void put_server_info(struct json *json, const char *key)
{
    json_put_key(json, key);
    json_put_object(json);
    json_set_text(json, "name", "cay");
    json_set_text(json, "title", "Cay sandbox");
    json_set_text(json, "version", cay_version());
    json_put_end(json);
}

static void put_capabilities(struct json *json)
{
    static const char instructions[] =
        "Tools that work inside an isolated Linux sandbox: run commands and code, read "
        "and "
        "write files. Nothing of the user's machine is visible inside but what was "
        "mounted. "
        "The sandbox is created by the first call and removed when the session ends.";

    json_put_key(json, "capabilities");
    json_put_raw(json, "{\"tools\":{},\"resources\":{}}");
    json_set_text(json, "instructions", instructions);
}

/* Forms are what a client without a list of modes can show. */
static bool has_forms(const json_t *capabilities)
{
    const json_t *modes = json_object_get(capabilities, "elicitation");

    return json_is_object(modes) &&
           (!json_object_size(modes) || json_object_get(modes, "form"));
}

static void initialize(struct server *server, const struct request *request,
                       const json_t *params)
{
    const char *asked = json_string_value(json_object_get(params, "protocolVersion"));
    AUTO_BUF text = {0};
    struct json json;

    if (!asked) {
        mcp_send_error(server, request, MCP_E_PARAMS, "protocolVersion is missing", NULL);
        return;
    }
    server->version = MCP_LEGACY;
    for (size_t i = 1; i < MCP_VERSION_COUNT; i++)
        if (strcmp(mcp_versions[i], asked) == 0)
            server->version = mcp_versions[i];
    server->has_roots =
        server->options->roots != MCP_ROOTS_NONE &&
        json_is_object(json_object_get(json_object_get(params, "capabilities"), "roots"));
    server->can_elicit = has_forms(json_object_get(params, "capabilities"));
    mcp_begin_result(&json, &text, request, false);
    json_set_text(&json, "protocolVersion", server->version);
    put_capabilities(&json);
    put_server_info(&json, "serverInfo");
    mcp_send_result(server, &json, &text, request);
}

static void discover(struct server *server, const struct request *request,
                     const json_t *params)
{
    AUTO_BUF text = {0};
    struct json json;

    (void)params;
    mcp_begin_result(&json, &text, request, true);
    json_put_key(&json, "supportedVersions");
    json_put_array(&json);
    for (size_t i = 0; i < MCP_VERSION_COUNT; i++)
        json_put_text(&json, mcp_versions[i]);
    json_put_end(&json);
    put_capabilities(&json);
    put_server_info(&json, "serverInfo");
    mcp_send_result(server, &json, &text, request);
}

static void ping(struct server *server, const struct request *request,
                 const json_t *params)
{
    AUTO_BUF text = {0};
    struct json json;

    (void)params;
    mcp_begin_result(&json, &text, request, false);
    mcp_send_result(server, &json, &text, request);
}

static void list_tools(struct server *server, const struct request *request,
                       const json_t *params)
{
    AUTO_BUF text = {0};
    struct json json;

    (void)params;
    mcp_begin_result(&json, &text, request, true);
    json_put_key(&json, "tools");
    mcp_tools_put(server->options, &json);
    mcp_send_result(server, &json, &text, request);
}

static void list_templates(struct server *server, const struct request *request,
                           const json_t *params)
{
    AUTO_BUF text = {0};
    struct json json;

    (void)params;
    mcp_begin_result(&json, &text, request, true);
    mcp_resources_put_templates(&json);
    mcp_send_result(server, &json, &text, request);
}

static void fail_resource(struct server *server, const struct request *request,
                          const struct cay_error *failure)
{
    bool is_unknown = failure->code == CAY_E_NOT_FOUND || failure->code == CAY_E_INVALID;
    char message[1300];

    snprintf(message, sizeof message, "%s: %s (%s)", failure->subject, failure->message,
             failure->hint);
    mcp_send_error(server, request,
                   !is_unknown          ? MCP_E_INTERNAL
                   : request->is_modern ? MCP_E_PARAMS
                                        : MCP_E_RESOURCE,
                   message, NULL);
}

static void list_resources(struct server *server, const struct request *request,
                           const json_t *params)
{
    const char *cursor = json_string_value(json_object_get(params, "cursor"));
    struct cay_error failure = {0};
    AUTO_BUF text = {0};
    struct json json;

    mcp_begin_result(&json, &text, request, true);
    if (mcp_resources_list(&server->session, cursor, &json, &failure) != CAY_OK)
        fail_resource(server, request, &failure);
    else
        mcp_send_result(server, &json, &text, request);
}

static void read_resource(struct server *server, const struct request *request,
                          const json_t *params)
{
    const char *uri = json_string_value(json_object_get(params, "uri"));
    struct cay_error failure = {0};
    AUTO_BUF text = {0};
    struct json json;

    mcp_begin_result(&json, &text, request, true);
    if (!uri)
        mcp_send_error(server, request, MCP_E_PARAMS, "uri is missing", NULL);
    else if (mcp_resource_read(&server->session, uri, &json, &failure) != CAY_OK)
        fail_resource(server, request, &failure);
    else
        mcp_send_result(server, &json, &text, request);
}

static void fail_arguments(struct server *server, const struct request *request,
                           const struct cay_error *failure)
{
    AUTO_BUF text = {0};
    struct json json;

    mcp_begin_result(&json, &text, request, false);
    mcp_put_failure(&json, failure);
    mcp_send_result(server, &json, &text, request);
}

/* A client of the newest revision sends the call again, with the user's reply. */
static void take_reply(struct server *server, struct task *task, const json_t *params)
{
    const char *id = json_string_value(json_object_get(params, "requestState"));
    const json_t *replies = json_object_get(params, "inputResponses");

    if (!id || !json_is_object(replies) ||
        !mcp_approval_is_for(&server->session, task->arguments, id))
        return;
    mcp_approval_reply(id, json_object_get(replies, "approval"), true);
    cay_copy_text(task->approval, sizeof task->approval, id); /* it is not sent again */
}

static void call_tool(struct server *server, const struct request *request,
                      const json_t *params)
{
    const char *name = json_string_value(json_object_get(params, "name"));
    json_t *arguments = json_object_get(params, "arguments");
    json_t *token = json_object_get(json_object_get(params, "_meta"), "progressToken");
    const struct mcp_tool *tool = name ? mcp_tool_find(server->options, name) : NULL;
    struct cay_error failure = {0};

    if (!tool) {
        mcp_send_error(server, request, MCP_E_PARAMS,
                       name ? "unknown tool" : "name is missing", NULL);
        return;
    }
    if (json_is_null(arguments))
        arguments = NULL;
    if (mcp_schema_check(tool->input, arguments, &failure) != CAY_OK) {
        fail_arguments(server, request, &failure);
        return;
    }
    struct task *task = mcp_task_place(server);
    if (!task) {
        mcp_send_error(server, request, MCP_E_INTERNAL, "too many calls wait", NULL);
        return;
    }
    *task = (struct task){.request = *request,
                          .tool = tool,
                          .arguments = json_incref(arguments),
                          .size = server->size,
                          .token = json_is_string(token) || json_is_integer(token)
                                       ? json_incref(token)
                                       : NULL};
    server->queued += task->size;
    task->can_elicit = server->can_elicit && !request->is_modern;
    if (request->is_modern) {
        const json_t *meta = json_object_get(params, "_meta");
        task->can_elicit = has_forms(
            json_object_get(meta, "io.modelcontextprotocol/clientCapabilities"));
        take_reply(server, task, params);
    }
    (void)json_incref(request->id);
    if (request->batch)
        request->batch->waiting++;
}

static const struct method {
    const char *name;
    void (*run)(struct server *server, const struct request *request,
                const json_t *params);
} methods[] = {
    {"initialize", initialize},
    {"ping", ping},
    {"resources/list", list_resources},
    {"resources/read", read_resource},
    {"resources/templates/list", list_templates},
    {"server/discover", discover},
    {"tools/call", call_tool},
    {"tools/list", list_tools},
};

/* --- Requests --- */

/* Whether a request has a revision, and this server has it, too. */
static bool check_version(struct server *server, struct request *request,
                          const struct mcp_message *message)
{
    const json_t *meta = json_object_get(message->params, "_meta");
    const char *asked = json_string_value(
        json_object_get(meta, "io.modelcontextprotocol/protocolVersion"));
    AUTO_BUF data = {0};
    struct json json;

    if (!asked) {
        if (server->version || strcmp(message->method, "initialize") == 0 ||
            strcmp(message->method, "ping") == 0)
            return true;
        mcp_send_error(server, request, MCP_E_REQUEST,
                       "the session is not initialized: send initialize first", NULL);
        return false;
    }
    request->is_modern = strcmp(asked, MCP_MODERN) == 0;
    if (request->is_modern)
        return true;
    buf_init(&data, 1024 + 6 * strlen(asked));
    json_to_unicode(&json, &data);
    json_put_object(&json);
    json_put_key(&json, "supported");
    json_put_array(&json);
    for (size_t i = 0; i < MCP_VERSION_COUNT; i++)
        json_put_text(&json, mcp_versions[i]);
    json_put_end(&json);
    json_set_text(&json, "requested", asked);
    json_put_end(&json);
    mcp_send_error(server, request, MCP_E_VERSION, "Unsupported protocol version",
                   json_finish(&json) ? data.data : NULL);
    return false;
}

void mcp_take_request(struct server *server, const struct mcp_message *message,
                      struct batch *batch)
{
    struct request request = {.id = message->id, .batch = batch};

    if (!check_version(server, &request, message))
        return;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, message->method) == 0) {
            methods[i].run(server, &request, message->params);
            return;
        }
    mcp_send_error(server, &request, MCP_E_METHOD, "unknown method", NULL);
}
