/* SPDX-License-Identifier: Apache-2.0 */

/* Approvals by the client's user.  A command that needs one waits in the queue of
 * cay/approval.h, in the worker; the server looks for its request there and sends it to
 * the client, as a form.  The queue stays: the reply may also come from cay approve. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "cay/approval.h"
#include "mcp/session.h"

enum {
    SHOWN_MAX = 12 << 10, /* of what belongs to the command */
    MESSAGE_MAX = 8 * (SHOWN_MAX + CAY_PENDING_TEXT_MAX) /* all of it as escapes */
};

static bool is_scope(const struct mcp_session *session, const char *scope)
{
    const struct cay_sandbox_options *options = &session->options->sandbox;
    bool is_own =
        (options->approve_scope && strcmp(options->approve_scope, scope) == 0) ||
        (options->name && strcmp(options->name, scope) == 0);

    for (size_t i = 0; i < session->box_count && *scope; i++)
        is_own = is_own || strcmp(session->boxes[i].id, scope) == 0;
    return is_own;
}

/* The command is the last argument of the shell, at the end of the content. */
static bool ends_with(const char *content, size_t len, const char *command)
{
    char number[32];
    size_t tail = strlen(command) + strlen("\n");
    size_t head =
        (size_t)snprintf(number, sizeof number, ", %zu bytes: ", strlen(command));

    return len > head + tail && content[len - 1] == '\n' &&
           memcmp(content + len - tail, command, tail - 1) == 0 &&
           memcmp(content + len - tail - head, number, head) == 0;
}

/* Whether a call with these arguments may wait for this request: not one whose command
 * has only a part of the text. */
static bool is_for(const struct mcp_session *session, const json_t *arguments,
                   const struct cay_pending *pending)
{
    const char *command = json_string_value(json_object_get(arguments, "command"));
    AUTO_FREE struct cay_pending *found = NULL;
    char *content = NULL;

    if (!command || pending->is_decided || strcmp(pending->kind, "command") != 0 ||
        !is_scope(session, pending->scope))
        return false;
    found = calloc(1, sizeof *found);
    bool is_it = found &&
                 cay_pending_find(pending->id, found, &content, NULL) == CAY_OK &&
                 content && ends_with(content, found->content_len, command);
    cay_free(content);
    return is_it;
}

bool mcp_approval_find(const struct mcp_session *session, const json_t *arguments,
                       char ret_id[CAY_PENDING_ID_MAX])
{
    struct cay_pending *list = NULL;
    size_t count = 0;
    bool is_found = false;

    if (cay_pending_list(&list, &count, NULL) != CAY_OK)
        return false;
    for (size_t i = 0; i < count && !is_found; i++)
        if ((is_found = is_for(session, arguments, &list[i])))
            memcpy(ret_id, list[i].id, CAY_PENDING_ID_MAX);
    cay_free(list);
    return is_found;
}

bool mcp_approval_find_egress(const struct mcp_session *session,
                              bool (*is_shown)(const void *cookie, const char *id),
                              const void *cookie, char ret_id[CAY_PENDING_ID_MAX])
{
    struct cay_pending *list = NULL;
    size_t count = 0;
    bool is_found = false;

    if (cay_pending_list(&list, &count, NULL) != CAY_OK)
        return false;
    for (size_t i = 0; i < count && !is_found; i++) {
        is_found = !list[i].is_decided && strcmp(list[i].kind, "egress") == 0 &&
                   is_scope(session, list[i].scope) && !is_shown(cookie, list[i].id);
        if (is_found)
            memcpy(ret_id, list[i].id, CAY_PENDING_ID_MAX);
    }
    cay_free(list);
    return is_found;
}

bool mcp_approval_is_open(const char *id)
{
    AUTO_FREE struct cay_pending *pending = calloc(1, sizeof *pending);
    char *content = NULL;

    if (!pending || cay_pending_find(id, pending, &content, NULL) != CAY_OK)
        return false;
    cay_free(content);
    return !pending->is_decided;
}

bool mcp_approval_is_for(const struct mcp_session *session, const json_t *arguments,
                         const char *id)
{
    AUTO_FREE struct cay_pending *pending = calloc(1, sizeof *pending);
    char *content = NULL;

    if (!pending || strlen(id) != CAY_PENDING_ID_MAX - 1 ||
        cay_pending_find(id, pending, &content, NULL) != CAY_OK)
        return false;
    cay_free(content);
    return strcmp(pending->id, id) == 0 && is_for(session, arguments, pending);
}

/* What would change the form instead of being in it, as escapes: control characters, and
 * those that turn the direction of text. */
static void put_shown(struct buf *text, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint32_t code;
        size_t size = utf8_next(bytes + i, len - i, &code);
        bool is_valid = code != UTF8_INVALID;
        bool is_hidden = (code < 0x20 && code != '\n' && code != '\t') ||
                         (code >= 0x7F && code < 0xA0) ||
                         (code >= 0x200B && code <= 0x200F) ||
                         (code >= 0x2028 && code <= 0x202E) ||
                         (code >= 0x2060 && code <= 0x2069) || code == 0xFEFF;
        if (!is_valid || is_hidden)
            buf_format(text, "\\u{%x}",
                       is_valid ? (unsigned)code : (unsigned char)bytes[i]);
        else
            (void)buf_append(text, bytes + i, size);
        i += is_valid ? size : 1;
    }
}

/* What the subject does not show is approved, too: the directory, variables, the user,
 * and the rest of a long command. */
static void put_message(const struct cay_pending *pending, const char *content,
                        struct buf *text)
{
    static const char first[] = "argument 0, ";
    size_t len = content ? pending->content_len : 0;
    bool is_all = len < sizeof first || (memcmp(content, first, strlen(first)) == 0 &&
                                         len < CAY_PENDING_TEXT_MAX);
    bool is_egress = strcmp(pending->kind, "egress") == 0;

    (void)buf_text(text, is_egress ? "Allow this connection of the sandbox?\n\n"
                                   : "Allow this command in the sandbox?\n\n");
    put_shown(text, pending->subject, strlen(pending->subject));
    if (is_all || is_egress)
        return;
    (void)buf_text(text, "\n\nThis belongs to it:\n");
    put_shown(text, content, len < SHOWN_MAX ? len : SHOWN_MAX);
    if (len > SHOWN_MAX)
        buf_format(text, "\n... and %zu more bytes: cay approve show %.8s",
                   len - SHOWN_MAX, pending->id);
}

void mcp_approval_put(const char *id, bool has_mode, struct json *json)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"decision\":{\"type\":\"string\","
        "\"title\":\"Decision\",\"description\":\"always: also adds a rule\","
        "\"enum\":[\"allow\",\"always\",\"deny\"],"
        "\"enumNames\":[\"Allow once\",\"Allow always\",\"Deny\"]}},"
        "\"required\":[\"decision\"]}";
    static const char unknown[] = "Allow what waits for approval?";
    AUTO_FREE struct cay_pending *pending = calloc(1, sizeof *pending);
    char *content = NULL;
    AUTO_BUF text = {.max = MESSAGE_MAX};

    json_put_object(json);
    if (has_mode)
        json_set_text(json, "mode", "form");
    if (pending && cay_pending_find(id, pending, &content, NULL) == CAY_OK)
        put_message(pending, content, &text);
    cay_free(content);
    json_put_key(json, "message");
    json_put_bytes(json, text.data ? text.data : unknown,
                   text.data ? text.len : strlen(unknown));
    json_put_key(json, "requestedSchema");
    json_put_raw(json, schema);
    json_put_end(json);
}

void mcp_approval_reply(const char *id, const json_t *result, bool denies_cancel)
{
    const char *action = json_string_value(json_object_get(result, "action"));
    const char *decision = json_string_value(
        json_object_get(json_object_get(result, "content"), "decision"));
    enum cay_verdict verdict = CAY_VERDICT_DENY;

    if (!action || (strcmp(action, "accept") != 0 && strcmp(action, "decline") != 0)) {
        if (!denies_cancel)
            return; /* it waits for another reply */
    } else if (strcmp(action, "accept") == 0 && decision) {
        verdict = strcmp(decision, "allow") == 0    ? CAY_VERDICT_APPROVE
                  : strcmp(decision, "always") == 0 ? CAY_VERDICT_REMEMBER
                                                    : CAY_VERDICT_DENY;
    }
    (void)!cay_pending_decide(
        id, verdict, verdict == CAY_VERDICT_DENY ? "the client's user said no" : NULL,
        NULL);
}
