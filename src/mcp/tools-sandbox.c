/* SPDX-License-Identifier: Apache-2.0 */

/* Tools for checkpoints, differences, ports, and further sandboxes. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/diff.h"
#include "mcp/session.h"

enum { DIFF_MAX = 1 << 20, DIFF_MS = 60000 };

/* --- Checkpoints --- */

static const struct mcp_field checkpoint_input[] = {
    {"name", "letters, digits, _, . and -", MCP_STRING},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

#define CHECKPOINT_FIELDS                                                                \
    {"id", "its number", MCP_INTEGER, true},                                             \
        {"name", "its name, or empty", MCP_STRING, true},                                \
        {"cause", "checkpoint, rollback, ...", MCP_STRING, true},                        \
        {"created_ms", "since 1970", MCP_INTEGER, true},                                 \
    {                                                                                    \
        .name = NULL                                                                     \
    }

static const struct mcp_field checkpoint_fields[] = {CHECKPOINT_FIELDS};

static void put_checkpoint(struct json *data, const struct cay_checkpoint *checkpoint)
{
    json_set_uint(data, "id", checkpoint->id);
    json_set_text(data, "name", checkpoint->name);
    json_set_text(data, "cause", checkpoint->cause);
    json_set_int(data, "created_ms", checkpoint->created_ms);
}

static int create_checkpoint(struct mcp_call *call, struct json *data,
                             struct cay_error *err)
{
    const struct cay_checkpoint_options options = {.size = sizeof options,
                                                   .name = mcp_text(call, "name", NULL)};
    struct cay_checkpoint checkpoint;

    TRY(cay_sandbox_checkpoint(call->box->sandbox, &options, &checkpoint, err));
    put_checkpoint(data, &checkpoint);
    return CAY_OK;
}

static const struct mcp_field no_input[] = {MCP_SANDBOX_FIELD, {.name = NULL}};

static const struct mcp_field checkpoints_output[] = {
    {"checkpoints", "in the order of their creation", MCP_LIST, true,
     .fields = checkpoint_fields},
    {.name = NULL},
};

static int list_checkpoints(struct mcp_call *call, struct json *data,
                            struct cay_error *err)
{
    AUTO_FREE struct cay_checkpoint *list = NULL;
    size_t count = 0;

    TRY(cay_sandbox_checkpoints(call->box->sandbox, &list, &count, err));
    json_put_key(data, "checkpoints");
    json_put_array(data);
    for (size_t i = 0; i < count; i++) {
        json_put_object(data);
        put_checkpoint(data, &list[i]);
        json_put_end(data);
    }
    json_put_end(data);
    return CAY_OK;
}

static const struct mcp_field rollback_input[] = {
    {"checkpoint", "its number, as text, or its name", MCP_STRING, true},
    {"keep_processes", "keep processes that use no file that changes", MCP_BOOLEAN,
     .fallback = "false"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field ended_fields[] = {
    {"pid", "inside", MCP_INTEGER, true},
    {"command", "its arguments", MCP_STRING, true},
    {.name = NULL},
};

static const struct mcp_field rollback_output[] = {
    {"undone", "the checkpoint with what was there before; 0: nothing had changed",
     MCP_INTEGER, true},
    {"ended", "processes that were killed", MCP_LIST, true, .fields = ended_fields},
    {.name = NULL},
};

static int rollback(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const struct cay_rollback_options options = {
        .size = sizeof options, .keep = mcp_flag(call, "keep_processes")};
    struct cay_rollback result = {.ended = NULL};

    TRY(cay_sandbox_rollback_with(call->box->sandbox, mcp_text(call, "checkpoint", ""),
                                  &options, &result, err));
    json_set_uint(data, "undone", result.undone.id);
    json_put_key(data, "ended");
    json_put_array(data);
    for (size_t i = 0; i < result.ended_count; i++) {
        json_put_object(data);
        json_set_int(data, "pid", result.ended[i].pid);
        json_set_text(data, "command", result.ended[i].command);
        json_put_end(data);
    }
    json_put_end(data);
    cay_free(result.ended);
    return CAY_OK;
}

/* --- Differences --- */

static const struct mcp_field diff_input[] = {
    {"from",
     "a checkpoint: its number, as text, or its name (default: the sandbox's template)",
     MCP_STRING},
    {"to", "a later checkpoint (default: the files as they are now)", MCP_STRING},
    {"format", "what is returned", MCP_STRING, false, .choices = "unified|names|stat",
     .fallback = "\"unified\""},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field diff_output[] = {
    {"diff", "the differences", MCP_STRING, true},
    {"changes", "paths that differ", MCP_INTEGER, true},
    {"truncated", "whether the text was cut, after 1 MiB", MCP_BOOLEAN, true},
    {.name = NULL},
};

struct printed {
    struct buf text;
    bool is_cut;
};

static int print(void *cookie, enum cay_diff_line line, const char *text, size_t len)
{
    struct printed *printed = cookie;

    (void)line;
    if (printed->text.len + len > DIFF_MAX)
        printed->is_cut = true;
    else
        (void)buf_append(&printed->text, text, len);
    return 0;
}

static int put_diff(struct mcp_call *call, struct json *data, cay_diff *diff,
                    struct cay_error *err)
{
    const char *name = mcp_text(call, "format", "unified");
    enum cay_diff_format format = strcmp(name, "names") == 0  ? CAY_DIFF_NAMES
                                  : strcmp(name, "stat") == 0 ? CAY_DIFF_STAT
                                                              : CAY_DIFF_UNIFIED;
    struct printed printed = {.is_cut = false};
    size_t count = 0;

    buf_init(&printed.text, DIFF_MAX);
    (void)cay_diff_changes(diff, &count);
    int code = cay_diff_print(diff, format, print, &printed, err);
    if (!code) {
        json_put_key(data, "diff");
        json_put_bytes(data, printed.text.data ? printed.text.data : "",
                       printed.text.len);
        json_set_uint(data, "changes", count + cay_diff_cut(diff));
        json_set_bool(data, "truncated", printed.is_cut || cay_diff_cut(diff) > 0);
        (void)buf_append(call->text, printed.text.data ? printed.text.data : "",
                         printed.text.len);
        if (!call->text->len)
            (void)buf_text(call->text, "[nothing differs]");
    }
    buf_done(&printed.text);
    return code;
}

static int diff_files(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const struct cay_diff_options options = {.size = sizeof options,
                                             .timeout_ms = DIFF_MS};
    const char *from = mcp_text(call, "from", NULL), *to = mcp_text(call, "to", NULL);
    cay_diff *diff = NULL;

    if (to && !from)
        return cay_fail(err, CAY_E_INVALID, 0, "mcp.diff", "from",
                        "\"to\" needs a \"from\"", "pass an earlier checkpoint as from");
    if (from)
        TRY(cay_sandbox_diff_checkpoints(call->box->id, from, to, &options, &diff, err));
    else
        TRY(cay_sandbox_diff(call->box->id, &options, &diff, err));
    int code = put_diff(call, data, diff, err);
    cay_diff_free(diff);
    return code;
}

/* --- Ports --- */

static const struct mcp_field port_fields[] = {
    {"port", "inside", MCP_INTEGER, true},
    {"listens", "the address inside; empty: no program listens", MCP_STRING, true},
    {"published", "the address and port on the user's machine", MCP_STRING},
    {.name = NULL},
};

static const struct mcp_field ports_output[] = {
    {"ports", "TCP ports, by their numbers", MCP_LIST, true, .fields = port_fields},
    {.name = NULL},
};

static int list_ports(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    AUTO_FREE struct cay_port *ports = NULL;
    size_t count = 0;
    AUTO_BUF text = {0};

    TRY(cay_sandbox_list_ports(call->box->id, &ports, &count, err));
    buf_init(&text, 256);
    json_put_key(data, "ports");
    json_put_array(data);
    for (size_t i = 0; i < count; i++) {
        json_put_object(data);
        json_set_uint(data, "port", ports[i].inside);
        json_set_text(data, "listens", ports[i].listens);
        text.len = 0;
        if (ports[i].port && buf_format(&text, "%s:%u", ports[i].address, ports[i].port))
            json_set_text(data, "published", text.data);
        json_put_end(data);
    }
    json_put_end(data);
    return CAY_OK;
}

/* --- Further sandboxes --- */

static const struct mcp_field none[] = {{.name = NULL}};

static const struct mcp_field id_fields[] = {
    {"sandbox", "its ID", MCP_STRING, true},
    {.name = NULL},
};

static int create_sandbox(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    struct mcp_box *box;

    TRY(mcp_session_create(call->session, &box, err));
    json_set_text(data, "sandbox", box->id);
    return CAY_OK;
}

static const struct mcp_field sandboxes_output[] = {
    {"sandboxes", "of this session", MCP_LIST, true, .fields = id_fields},
    {.name = NULL},
};

static int list_sandboxes(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    (void)err;
    json_put_key(data, "sandboxes");
    json_put_array(data);
    for (size_t i = 0; i < call->session->box_count; i++) {
        if (!*call->session->boxes[i].id)
            continue;
        json_put_object(data);
        json_set_text(data, "sandbox", call->session->boxes[i].id);
        json_put_end(data);
    }
    json_put_end(data);
    return CAY_OK;
}

static const struct mcp_field kill_output[] = {
    {"removed", "it is gone", MCP_BOOLEAN, true},
    {.name = NULL},
};

static int kill_sandbox(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    TRY(mcp_session_kill(call->session, mcp_text(call, "sandbox", ""), err));
    json_set_bool(data, "removed", true);
    return CAY_OK;
}

const struct mcp_tool mcp_sandbox_tools[] = {
    {"checkpoint", "Create a checkpoint",
     "Save the state of the sandbox's files, to which rollback returns.",
     MCP_TOOL_WAITS | MCP_TOOL_RESETS, checkpoint_input, checkpoint_fields,
     create_checkpoint},
    {"list_checkpoints", "List checkpoints", "List the checkpoints of the sandbox.",
     MCP_TOOL_WAITS | MCP_TOOL_READS, no_input, checkpoints_output, list_checkpoints},
    {"rollback", "Roll back",
     "Restore the files of a checkpoint. Processes of the sandbox end.",
     MCP_TOOL_WAITS | MCP_TOOL_DESTROYS | MCP_TOOL_RESETS, rollback_input,
     rollback_output, rollback},
    {"diff", "Show differences",
     "Show which files of the sandbox have changed since a checkpoint.",
     MCP_TOOL_WAITS | MCP_TOOL_READS, diff_input, diff_output, diff_files},
    {"ports", "List ports", "List the TCP ports on which programs in the sandbox listen.",
     MCP_TOOL_WAITS | MCP_TOOL_READS, no_input, ports_output, list_ports},
    {"create_sandbox", "Create a sandbox",
     "Create a further sandbox, which the other tools use by its ID.", MCP_TOOL_BOXES,
     none, id_fields, create_sandbox},
    {"list_sandboxes", "List sandboxes", "List the sandboxes of this session.",
     MCP_TOOL_BOXES | MCP_TOOL_READS, none, sandboxes_output, list_sandboxes},
    {"kill_sandbox", "Remove a sandbox", "Remove a sandbox of create_sandbox.",
     MCP_TOOL_BOXES | MCP_TOOL_DESTROYS, id_fields, kill_output, kill_sandbox},
    {.name = NULL},
};
