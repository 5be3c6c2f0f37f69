/* SPDX-License-Identifier: Apache-2.0 */

/* Approvals by the client's user.  A command or a write that needs one waits in the queue
 * of cay/approval.h, in the worker; the server looks for its request there and sends it
 * to the client, as a form.  The queue stays: the reply may also come from cay approve.
 */
#include <fnmatch.h>
#include <nettle/sha2.h>
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

static const char op[] = "mcp.approval";

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

/* --- Writes --- */

/* The whole path, or what follows one of its slashes. */
static bool matches_path(const char *pattern, const char *path)
{
    bool is_it = fnmatch(pattern, path, 0) != FNM_NOMATCH;

    for (const char *at = strchr(path, '/'); at && !is_it; at = strchr(at + 1, '/'))
        is_it = fnmatch(pattern, at + 1, 0) != FNM_NOMATCH;
    return is_it;
}

int mcp_write_begin(const struct mcp_call *call, cay_files *files, const char *path,
                    struct mcp_write *ret_write, struct cay_error *err)
{
    const char *const *patterns = call->session->options->approve_writes;
    struct cay_location location;
    bool is_wanted = false;

    *ret_write = (struct mcp_write){.path = path};
    if (!patterns)
        return CAY_OK;
    TRY(cay_files_pin(files, path, &ret_write->pin, err));
    TRY(cay_files_locate(files, path, CAY_ACCESS_WRITE, &location, err));
    for (; *patterns && !is_wanted; patterns++)
        is_wanted =
            matches_path(*patterns, location.path) || matches_path(*patterns, path);
    if (is_wanted)
        ret_write->place = strdup(location.path);
    cay_location_done(&location);
    return is_wanted && !ret_write->place ? cay_fail_memory(err, op) : CAY_OK;
}

void mcp_write_done(struct mcp_write *write)
{
    free(write->place);
    write->place = NULL;
}

/* The lengths make it unambiguous. */
static bool put_edits(struct buf *text, const json_t *edits)
{
    const json_t *edit;
    size_t i;

    json_array_foreach(edits, i, edit)
    {
        const json_t *old_text = json_object_get(edit, "old_text");
        const json_t *new_text = json_object_get(edit, "new_text");
        buf_format(text, "--- %s, %zu bytes:\n",
                   json_is_true(json_object_get(edit, "all")) ? "each of" : "the only",
                   json_string_length(old_text));
        (void)buf_append(text, json_string_value(old_text), json_string_length(old_text));
        buf_format(text, "\n--- becomes, %zu bytes:\n", json_string_length(new_text));
        (void)buf_append(text, json_string_value(new_text), json_string_length(new_text));
        (void)buf_text(text, "\n");
    }
    return !text->failed;
}

/* `len`: of what is written. */
static int put_summary(const json_t *arguments, size_t len, const char *path,
                       char ret_text[CAY_PENDING_TEXT_MAX])
{
    if (json_object_get(arguments, "edits"))
        return snprintf(ret_text, CAY_PENDING_TEXT_MAX, "edit %s", path);
    bool appends = json_is_true(json_object_get(arguments, "append"));
    return snprintf(ret_text, CAY_PENDING_TEXT_MAX, "%s %zu bytes to %s",
                    appends ? "append" : "write", len, path);
}

static int fail_large(const struct mcp_write *write, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_APPROVED, 0, op, write->path,
                    "the change is too large to be shown for approval",
                    "write at most 1 MiB at a time");
}

/* That of commands, too. */
static const char *scope_of(const struct mcp_call *call)
{
    const struct cay_sandbox_options *options = &call->session->options->sandbox;

    if (options->approve_scope)
        return options->approve_scope;
    bool is_named = options->name && call->box == &call->session->boxes[0];
    return is_named ? options->name : call->box->id;
}

int mcp_write_await(const struct mcp_call *call, const struct mcp_write *write,
                    const void *content, size_t len, struct cay_error *err)
{
    const struct cay_sandbox_options *options = &call->session->options->sandbox;
    char summary[CAY_PENDING_TEXT_MAX], note[CAY_NOTE_MAX] = "";
    enum cay_verdict verdict = CAY_VERDICT_DENY;

    if (len > CAY_PENDING_CONTENT_MAX ||
        put_summary(call->arguments, len, write->path, summary) >= (int)sizeof summary ||
        strlen(write->place) >= CAY_PENDING_TEXT_MAX)
        return fail_large(write, err);
    const struct cay_request request = {.size = sizeof request,
                                        .kind = "write",
                                        .scope = scope_of(call),
                                        .subject = write->place,
                                        .summary = summary,
                                        .content = content,
                                        .content_len = len,
                                        .timeout_ms = options->approve_timeout_ms};
    TRY(cay_pending_request(&request, &verdict, note, err));
    if (verdict == CAY_VERDICT_APPROVE || verdict == CAY_VERDICT_REMEMBER)
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_APPROVED, 0, op, write->path,
                    *note ? note : "it was denied",
                    "cay approve list shows what waits, cay approve rules the rules");
}

/* With a hash of the file, since what edits mean depends on it. */
int mcp_write_await_edits(const struct mcp_call *call, cay_files *files,
                          const struct mcp_write *write, struct cay_error *err)
{
    const struct cay_read_options how = {
        .size = sizeof how, .max = UINT64_MAX, .pin = &write->pin};
    uint8_t digest[SHA256_DIGEST_SIZE];
    AUTO_BUF text = {.max = CAY_PENDING_CONTENT_MAX + 1};
    struct sha256_ctx ctx;
    struct cay_page page = {0};

    TRY(cay_files_read_bytes(files, write->path, &how, &page, err));
    if (page.truncated) {
        cay_page_done(&page);
        return fail_large(write, err);
    }
    sha256_init(&ctx);
    sha256_update(&ctx, page.len, (const uint8_t *)(page.text ? page.text : ""));
    sha256_digest(&ctx, sizeof digest, digest);
    (void)buf_format(&text, "a file of %zu bytes, SHA-256 ", page.len);
    cay_page_done(&page);
    for (size_t i = 0; i < sizeof digest; i++)
        (void)buf_format(&text, "%02x", digest[i]);
    bool fits = buf_text(&text, "\n") &&
                put_edits(&text, json_object_get(call->arguments, "edits"));
    return mcp_write_await(call, write, text.data,
                           fits ? text.len : CAY_PENDING_CONTENT_MAX + 1, err);
}

static bool is_same(const char *content, size_t len, const json_t *arguments)
{
    const json_t *given = json_object_get(arguments, "content");
    const char *encoding = json_string_value(json_object_get(arguments, "encoding"));
    bool is_base64 = encoding && strcmp(encoding, "base64") == 0;
    AUTO_FREE char *base64 = is_base64 ? mcp_base64(content, len) : NULL;

    if (is_base64)
        return base64 && strcmp(base64, json_string_value(given)) == 0;
    return json_string_length(given) == len &&
           memcmp(json_string_value(given), content, len) == 0;
}

static bool has_edits(const char *content, size_t len, const json_t *edits)
{
    AUTO_BUF text = {.max = CAY_PENDING_CONTENT_MAX};

    return put_edits(&text, edits) && text.len && text.len < len &&
           memcmp(content + len - text.len, text.data, text.len) == 0;
}

static bool is_write_for(const json_t *arguments, const struct cay_pending *pending,
                         const char *content)
{
    const char *path = json_string_value(json_object_get(arguments, "path"));
    const json_t *edits = json_object_get(arguments, "edits");
    char summary[CAY_PENDING_TEXT_MAX];

    if (!path || (!edits && !json_object_get(arguments, "content")))
        return false;
    (void)put_summary(arguments, pending->content_len, path, summary);
    return strcmp(summary, pending->summary) == 0 &&
           (edits ? has_edits(content, pending->content_len, edits)
                  : is_same(content, pending->content_len, arguments));
}

/* --- Requests of calls --- */

/* Whether a call with these arguments may wait for this request: not one whose command
 * has only a part of the text. */
static bool is_for(const struct mcp_session *session, const json_t *arguments,
                   const struct cay_pending *pending)
{
    const char *command = json_string_value(json_object_get(arguments, "command"));
    AUTO_FREE struct cay_pending *found = NULL;
    char *content = NULL;

    if (pending->is_decided ||
        strcmp(pending->kind, command ? "command" : "write") != 0 ||
        !is_scope(session, pending->scope))
        return false;
    found = calloc(1, sizeof *found);
    bool is_it = found &&
                 cay_pending_find(pending->id, found, &content, NULL) == CAY_OK &&
                 content &&
                 (command ? ends_with(content, found->content_len, command)
                          : is_write_for(arguments, found, content));
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
    bool is_write = strcmp(pending->kind, "write") == 0;

    (void)buf_text(text, is_egress  ? "Allow this connection of the sandbox?\n\n"
                         : is_write ? "Allow this change of a file in the sandbox?\n\n"
                                    : "Allow this command in the sandbox?\n\n");
    put_shown(text, pending->subject, strlen(pending->subject));
    if (is_write) { /* as the client spelled it, and whether it is appended */
        (void)buf_text(text, "\n\n");
        put_shown(text, pending->summary, strlen(pending->summary));
        (void)buf_text(text, ":\n");
    } else if (is_all || is_egress) {
        return;
    } else {
        (void)buf_text(text, "\n\nThis belongs to it:\n");
    }
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
