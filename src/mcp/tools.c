/* SPDX-License-Identifier: Apache-2.0 */

/* Which tools there are, and how clients see them. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "mcp/session.h"

static const struct mcp_tool *const groups[] = {mcp_run_tools, mcp_file_tools,
                                                mcp_sandbox_tools};

const struct mcp_tool *mcp_tool_at(size_t index)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (const struct mcp_tool *tool = groups[i]; tool->name; tool++)
            if (index-- == 0)
                return tool;
    return NULL;
}

static bool is_listed(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = list; *at;) {
        size_t one = strcspn(at, ",");
        if (one == len && memcmp(at, name, len) == 0)
            return true;
        at += one + (at[one] == ',');
    }
    return false;
}

bool mcp_tool_is_there(const struct mcp_options *options, const struct mcp_tool *tool)
{
    if (options->tools && !is_listed(options->tools, tool->name))
        return false;
    if (options->read_only && !(tool->flags & MCP_TOOL_READS))
        return false;
    if (tool->flags & MCP_TOOL_BOXES && !options->sandboxes)
        return false;
    /* Whole directories are too much for a form. */
    if (tool->flags & MCP_TOOL_HOST && options->approve_writes)
        return false;
    return !(tool->flags & MCP_TOOL_HOST) || mcp_session_has_host(options);
}

const struct mcp_tool *mcp_tool_find(const struct mcp_options *options, const char *name)
{
    const struct mcp_tool *tool;

    for (size_t i = 0; (tool = mcp_tool_at(i)); i++)
        if (strcmp(tool->name, name) == 0)
            return mcp_tool_is_there(options, tool) ? tool : NULL;
    return NULL;
}

static int fail_unknown(const char *word, struct cay_error *err)
{
    enum { TOOLS_MAX = 64 };
    const char *names[TOOLS_MAX];
    char known[400];
    const struct mcp_tool *tool;
    size_t count = 0, used = 0;

    for (; count < TOOLS_MAX && (tool = mcp_tool_at(count)); count++) {
        names[count] = tool->name;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                     count ? ", " : "", tool->name);
    }
    const char *near = nearest_name(word, names, sizeof *names, count);
    return cay_fail(err, CAY_E_INVALID, 0, "mcp.tools", word, "unknown tool", "%s%s%s",
                    near ? "did you mean " : "the tools are ", near ? near : known,
                    near ? "?" : "");
}

int mcp_check(const struct mcp_options *options, struct cay_error *err)
{
    char word[64];

    for (const char *at = options->tools ? options->tools : ""; *at;) {
        size_t len = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(len < sizeof word ? len : sizeof word),
                 at);
        const struct mcp_tool *tool;
        size_t i = 0;
        while ((tool = mcp_tool_at(i)) && strcmp(tool->name, word) != 0)
            i++;
        if (!tool)
            return fail_unknown(word, err);
        at += len + (at[len] == ',');
    }
    return CAY_OK;
}

/* --- Schemas --- */

/* Which sandbox is a question only if there may be several. */
static void put_input(const struct mcp_options *options, const struct mcp_tool *tool,
                      struct json *json)
{
    enum { FIELDS_MAX = 16 };
    struct mcp_field fields[FIELDS_MAX];
    size_t count = 0;

    for (const struct mcp_field *field = tool->input; field->name; field++)
        if (count < FIELDS_MAX - 1 &&
            (strcmp(field->name, "sandbox") != 0 || options->sandboxes))
            fields[count++] = *field;
    fields[count] = (struct mcp_field){.name = NULL};
    mcp_schema_put(json, fields, true);
}

static void put_tool(const struct mcp_options *options, const struct mcp_tool *tool,
                     struct json *json)
{
    json_put_object(json);
    json_set_text(json, "name", tool->name);
    json_set_text(json, "title", tool->title);
    json_set_text(json, "description", tool->help);
    json_put_key(json, "inputSchema");
    put_input(options, tool, json);
    json_put_key(json, "outputSchema");
    mcp_schema_put(json, tool->output, false);
    json_put_key(json, "annotations");
    json_put_object(json);
    json_set_text(json, "title", tool->title);
    json_set_bool(json, "readOnlyHint", tool->flags & MCP_TOOL_READS);
    json_set_bool(json, "destructiveHint", tool->flags & MCP_TOOL_DESTROYS);
    json_set_bool(json, "openWorldHint",
                  options->sandbox.network != CAY_NETWORK_NONE ||
                      (options->sandbox.policy &&
                       cay_policy_network(options->sandbox.policy) != CAY_NETWORK_NONE));
    json_put_end(json);
    json_put_end(json);
}

void mcp_tools_put(const struct mcp_options *options, struct json *json)
{
    const struct mcp_tool *tool;

    json_put_array(json);
    for (size_t i = 0; (tool = mcp_tool_at(i)); i++)
        if (mcp_tool_is_there(options, tool))
            put_tool(options, tool, json);
    json_put_end(json);
}
