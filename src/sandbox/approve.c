/* SPDX-License-Identifier: Apache-2.0 */

/* What is approved is what runs: the request has everything that decides what the command
 * does, but for its standard input, and is built again when the command starts. */
#include "sandbox/approve.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/approval.h"
#include "sandbox/backend.h"

static const char op[] = "sandbox.approve";

enum { CUT = 512, HEX = 2 * SHA256_DIGEST_SIZE + 1 };

static void hash(const char *text, char ret_hex[HEX])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    sha256_update(&ctx, strlen(text), (const uint8_t *)text);
    sha256_digest(&ctx, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(ret_hex + 2 * i, 3, "%02x", digest[i]);
}

/* --- The request --- */

struct text {
    struct buf content, subject, summary;
};

static void text_done(struct text *text)
{
    buf_done(&text->content);
    buf_done(&text->subject);
    buf_done(&text->summary);
}

/* A value may be a secret. */
static void put_variable(struct buf *content, const char *variable)
{
    char hex[HEX];
    size_t len = strcspn(variable, "=");

    hash(variable + len, hex);
    buf_format(content, "variable, %zu bytes: %.*s (SHA-256 of the value %s)\n", len,
               (int)len, variable, hex);
}

/* The lengths make it unambiguous. */
static void put_content(struct buf *content, const struct cay_exec_options *exec)
{
    if (exec->cwd)
        buf_format(content, "directory, %zu bytes: %s\n", strlen(exec->cwd), exec->cwd);
    if (exec->user)
        buf_format(content, "user, %zu bytes: %s\n", strlen(exec->user), exec->user);
    for (const char *const *at = exec->env; at && *at; at++)
        put_variable(content, *at);
    for (size_t i = 0; exec->argv[i]; i++)
        buf_format(content, "argument %zu, %zu bytes: %s\n", i, strlen(exec->argv[i]),
                   exec->argv[i]);
}

/* A line that is too long ends in its hash. */
static void put_line(struct buf *to, const char *line, size_t room)
{
    char hex[HEX];

    if (strlen(line) < room) {
        buf_text(to, line);
        return;
    }
    hash(line, hex);
    buf_append(to, line, CUT);
    buf_format(to, "... (%zu bytes, SHA-256 %s)", strlen(line), hex);
}

static int make_request(cay_sandbox *sandbox, const struct approve_command *command,
                        struct text *text, struct cay_request *ret_request,
                        struct cay_error *err)
{
    buf_init(&text->content, CAY_PENDING_CONTENT_MAX);
    buf_init(&text->subject, CAY_PENDING_TEXT_MAX);
    buf_init(&text->summary, CAY_PENDING_TEXT_MAX);
    put_content(&text->content, &command->exec);
    put_line(&text->subject, command->line, CAY_PENDING_TEXT_MAX - 1);
    const char *scope =
        command->scope && *command->scope ? command->scope : cay_sandbox_id(sandbox);
    buf_format(&text->summary, "run in %.1024s: ", scope);
    put_line(&text->summary, command->line, CUT);
    if (text->content.failed)
        return cay_fail(err, CAY_E_LIMIT, 0, op, command->exec.argv[0],
                        "the command is too large to be shown for approval",
                        "the limit is 1 MiB of arguments");
    if (text->subject.failed || text->summary.failed)
        return cay_fail_memory(err, op);
    *ret_request = (struct cay_request){.size = sizeof *ret_request,
                                        .kind = "command",
                                        .scope = scope,
                                        .subject = text->subject.data,
                                        .summary = text->summary.data,
                                        .content = text->content.data,
                                        .content_len = text->content.len,
                                        .timeout_ms = command->timeout_ms};
    return CAY_OK;
}

static int fail_denied(const struct approve_command *command, const char *note,
                       struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_APPROVED, 0, op, command->line,
                    *note ? note : "the command was denied",
                    "cay approve list shows what waits, cay approve rules the rules");
}

static const char by_rule[] = "a rule of cay approve denies the command";

int approve_await(cay_sandbox *sandbox, const struct approve_command *command,
                  struct cay_error *err)
{
    __attribute__((cleanup(text_done))) struct text text = {.content = {0}};
    struct cay_request request;
    char id[CAY_PENDING_ID_MAX], note[CAY_NOTE_MAX] = "";
    enum cay_decision decision;

    TRY(make_request(sandbox, command, &text, &request, err));
    TRY(cay_pending_submit(&request, id, &decision, err));
    if (decision == CAY_DECISION_NO)
        return fail_denied(command, by_rule, err);
    if (decision == CAY_DECISION_NONE)
        TRY(cay_pending_wait(
            id, request.timeout_ms ? request.timeout_ms : CAY_PENDING_TIMEOUT_MS,
            &decision, note, err));
    if (decision == CAY_DECISION_NONE)
        cay_copy_text(note, sizeof note, "no reply in time");
    return decision == CAY_DECISION_YES ? CAY_OK : fail_denied(command, note, err);
}

/* --- Without waiting --- */

int cay_sandbox_request_command(cay_sandbox *sandbox,
                                const struct cay_exec_options *options,
                                char ret_id[CAY_PENDING_ID_MAX],
                                enum cay_decision *ret_decision, struct cay_error *err)
{
    AUTO_APPROVE command = {.is_needed = false};
    __attribute__((cleanup(text_done))) struct text text = {.content = {0}};
    struct cay_request request;

    *ret_id = '\0';
    TRY(approve_look(sandbox, options, &command, err));
    if (!command.is_needed) {
        *ret_decision = CAY_DECISION_YES;
        return CAY_OK;
    }
    TRY(make_request(sandbox, &command, &text, &request, err));
    return cay_pending_submit(&request, ret_id, ret_decision, err);
}

/* The reply is used up by this. */
static int use_reply(cay_sandbox *sandbox, const struct approve_command *command,
                     const char *id, bool *ret_waits, struct cay_error *err)
{
    __attribute__((cleanup(text_done))) struct text text = {.content = {0}};
    struct cay_request request;
    char own[CAY_PENDING_ID_MAX], note[CAY_NOTE_MAX] = "";
    enum cay_decision decision;

    TRY(make_request(sandbox, command, &text, &request, err));
    TRY(cay_pending_check(&request, own, &decision, err));
    if (strcmp(own, id) != 0)
        return cay_fail(err, CAY_E_CHANGED, 0, op, command->line,
                        "the request for approval is for another command",
                        "request approval for this one");
    if (decision == CAY_DECISION_NO)
        return fail_denied(command, by_rule, err);
    enum cay_decision reply = CAY_DECISION_NONE;
    TRY(cay_pending_wait(id, 0, &reply, note, err)); /* also uses up that of "remember" */
    if (decision == CAY_DECISION_NONE)
        decision = reply;
    *ret_waits = decision == CAY_DECISION_NONE;
    return decision == CAY_DECISION_NO ? fail_denied(command, note, err) : CAY_OK;
}

int cay_process_start_approved(cay_sandbox *sandbox,
                               const struct cay_exec_options *options, const char *id,
                               cay_process **ret_process, struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;
    AUTO_APPROVE command = {.is_needed = false};
    bool waits = false;

    *ret_process = NULL;
    if (!backend->processes)
        return backend_lacks(backend, "process.start", err);
    TRY(approve_look(sandbox, options, &command, err));
    if (command.is_needed)
        TRY(use_reply(sandbox, &command, id, &waits, err));
    if (waits)
        return CAY_OK;
    cay_process *process = sandbox_process_new(backend, err);
    if (!process)
        return CAY_E_NO_MEMORY;
    int code = sandbox_before_command(sandbox, err);
    if (!code)
        code = backend->processes->start(sandbox->cookie, options, &process->cookie, err);
    return sandbox_process_finish(process, code, ret_process);
}
