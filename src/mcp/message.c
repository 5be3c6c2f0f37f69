/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/message.h"

#include <stdint.h>
#include <string.h>

/* --- Lines --- */

void mcp_lines_init(struct mcp_lines *lines)
{
    *lines = (struct mcp_lines){.at = 0};
    buf_init(&lines->text, 2 * (size_t)MCP_LINE_MAX);
}

void mcp_lines_done(struct mcp_lines *lines)
{
    buf_done(&lines->text);
}

/* Removes what was taken. */
static void compact(struct mcp_lines *lines)
{
    struct buf *text = &lines->text;

    if (!lines->at)
        return;
    memmove(text->data, text->data + lines->at, text->len - lines->at);
    text->len -= lines->at;
    lines->seen -= lines->at;
    lines->at = 0;
}

bool mcp_lines_add(struct mcp_lines *lines, const char *data, size_t len)
{
    compact(lines);
    if (lines->is_skipping) {
        const char *end = memchr(data, '\n', len);
        if (!end)
            return true;
        lines->is_skipping = false;
        len -= (size_t)(end + 1 - data);
        data = end + 1;
    }
    return buf_append(&lines->text, data, len);
}

/* A buffer that has held a large message does not stay. */
static void shrink(struct mcp_lines *lines)
{
    if (lines->at == lines->text.len && lines->text.room > 1u << 20) {
        mcp_lines_done(lines);
        bool has_skipped = lines->has_skipped, is_skipping = lines->is_skipping;
        mcp_lines_init(lines);
        lines->has_skipped = has_skipped;
        lines->is_skipping = is_skipping;
    }
}

int mcp_lines_take(struct mcp_lines *lines, const char **ret_line, size_t *ret_len)
{
    struct buf *text = &lines->text;

    if (lines->has_skipped) {
        lines->has_skipped = false;
        return -1;
    }
    const char *end = text->len > lines->seen ? memchr(text->data + lines->seen, '\n',
                                                       text->len - lines->seen)
                                              : NULL;
    size_t len = (end ? (size_t)(end - text->data) : text->len) - lines->at;
    if (len > MCP_LINE_MAX) {
        lines->at = lines->seen = end ? lines->at + len + 1 : text->len;
        lines->is_skipping = !end;
        shrink(lines);
        return -1;
    }
    if (!end) {
        lines->seen = text->len;
        shrink(lines);
        return 0;
    }
    *ret_line = text->data + lines->at;
    lines->at = lines->seen = lines->at + len + 1;
    *ret_len = len && (*ret_line)[len - 1] == '\r' ? len - 1 : len;
    return 1;
}

/* --- Messages --- */

/* In jansson "{}" alone takes 240 bytes. */
size_t mcp_tree_size(const char *text, size_t len)
{
    static const uint16_t sizes[UINT8_MAX + 1] = {
        [','] = 48, [':'] = 96, ['"'] = 48, ['['] = 128, ['{'] = 256};
    bool in_string = false;
    size_t size = len;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        if (!in_string)
            size += sizes[(unsigned char)text[i]];
        else if (text[i] == '\\')
            i++;
    }
    return size;
}

json_t *mcp_parse(const char *text, size_t len, const char **ret_reason)
{
    if (mcp_tree_size(text, len) > MCP_TREE_MAX) {
        *ret_reason = "the message has too many values";
        return NULL;
    }
    json_t *tree = json_loadb(text, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    if (!tree)
        *ret_reason = "the message is not valid JSON";
    return tree;
}

static bool is_id(const json_t *id)
{
    return json_is_string(id) || json_is_number(id);
}

void mcp_message(json_t *item, struct mcp_message *ret_message)
{
    const char *version = json_string_value(json_object_get(item, "jsonrpc"));
    json_t *id = json_object_get(item, "id");
    json_t *method = json_object_get(item, "method");
    json_t *params = json_object_get(item, "params");
    json_t *result = json_object_get(item, "result");
    bool is_valid = version && strcmp(version, "2.0") == 0 && (!id || is_id(id)) &&
                    (!params || json_is_object(params));

    *ret_message = (struct mcp_message){
        .kind = MCP_MALFORMED, .id = is_id(id) ? id : NULL, .params = params};
    if (!is_valid)
        return;
    if (json_is_string(method) &&
        strlen(json_string_value(method)) == json_string_length(method)) {
        ret_message->kind = id ? MCP_REQUEST : MCP_NOTIFICATION;
        ret_message->method = json_string_value(method);
    } else if (!method && id && (result || json_object_get(item, "error"))) {
        ret_message->kind = MCP_RESPONSE;
        ret_message->result = result;
    }
}
