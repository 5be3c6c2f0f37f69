/* SPDX-License-Identifier: Apache-2.0 */

/* Approvals of the sandboxes of a tenant: its queue, and what of a sandbox waits in it.
 * Each tenant has a queue of its own, in a directory that cay approve can use as its
 * CAY_HOME. */
#include "cay/approval.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"
#include "sys/io.h"
#include "sys/state-home.h"

static const char op[] = "server.approval";

enum { EGRESS_LOOK_MS = 250 };

int keeper_use_queue(const struct serve_options *options, const char *tenant,
                     struct cay_error *err)
{
    char path[PATH_MAX + 2 * TENANT_MAX];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/" KEEPER_QUEUES "%s%s", options->home,
                 i ? "/tenant-" : "", i ? tenant : "");
        int error = -state_home_make(AT_FDCWD, path);
        if (error && error != EEXIST)
            return cay_fail_errno(err, error, op, "the queue of approvals");
    }
    cay_copy_text(path + strlen(path), sizeof path - strlen(path), "/approvals");
    return cay_pending_use(path, err);
}

/* --- The options of a sandbox --- */

void keeper_approvals_done(struct keeper_approvals *approvals)
{
    free(approvals->patterns);
    free(approvals->text);
}

int keeper_approvals_init(const char *text, struct keeper_approvals *ret_approvals,
                          struct cay_error *err)
{
    size_t count = 0;

    for (const char *at = text; *at; at++)
        count += *at == '\n';
    *ret_approvals = (struct keeper_approvals){
        .text = strdup(text), .patterns = calloc(count + 2, sizeof(char *))};
    if (!ret_approvals->text || !ret_approvals->patterns)
        return cay_fail_memory(err, op);
    char *at = ret_approvals->text, *line = strsep(&at, "\n");
    ret_approvals->timeout_ms = strtoull(line, NULL, 10);
    ret_approvals->scope = at ? strsep(&at, "\n") : NULL;
    for (count = 0; at && (line = strsep(&at, "\n"));)
        if (*line)
            ret_approvals->patterns[count++] = line;
    if (ret_approvals->scope && !*ret_approvals->scope)
        ret_approvals->scope = NULL;
    return CAY_OK;
}

int keeper_allow_own(cay_sandbox *sandbox, const struct cay_exec_options *exec,
                     struct cay_error *err)
{
    char id[CAY_PENDING_ID_MAX];
    enum cay_decision decision;

    TRY(cay_sandbox_request_command(sandbox, exec, id, &decision, err));
    int code = decision == CAY_DECISION_NONE
                   ? cay_pending_decide(id, CAY_VERDICT_APPROVE, NULL, err)
                   : CAY_OK;
    return code == CAY_E_EXISTS ? CAY_OK : code;
}

/* --- Connections --- */

static void egress_done(struct task *task)
{
    free(task);
}

/* An error is of one moment: a full queue, a paused sandbox.  The connections wait. */
static void pass_egress(struct keeper *keeper, struct task *task)
{
    size_t waiting;

    (void)!cay_sandbox_pass_egress(keeper->sandbox, &waiting, NULL);
    task->due_ms = keeper_now_ms() + EGRESS_LOOK_MS;
}

void keeper_watch_egress(struct keeper *keeper)
{
    const struct task *task = keeper->tasks;

    while (task && (task->done != egress_done || task->is_over))
        task = task->next;
    if (task || !keeper->asks_egress || keeper->is_stopped)
        return;
    struct task *own = calloc(1, sizeof *own);
    if (!own)
        return; /* the next request tries again */
    *own = (struct task){.channel = -1, .done = egress_done, .tick = pass_egress};
    keeper_add_task(keeper, own);
}

/* --- Requests of clients, to a keeper without a sandbox --- */

static int send_pending(int channel, const struct cay_pending *pending, int content,
                        struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_APPROVAL,
                          .count = 5,
                          .numbers = {[APPROVAL_CREATED_MS] = pending->created_ms,
                                      [APPROVAL_EXPIRES_MS] = pending->expires_ms,
                                      [APPROVAL_BYTES] = (int64_t)pending->content_len,
                                      [APPROVAL_IS_DECIDED] = pending->is_decided}};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};

    strings_add(&strings, pending->id);
    strings_add(&strings, pending->kind);
    strings_add(&strings, pending->scope);
    strings_add(&strings, pending->subject);
    strings_add(&strings, pending->summary);
    TRY(keeper_wait_writable(channel, err));
    return reply_send(channel, &reply, &strings, content) == 0 ? CAY_OK : CAY_E_CANCELLED;
}

static int list(int channel, struct cay_error *err)
{
    AUTO_FREE struct cay_pending *all = NULL;
    size_t count = 0;

    TRY(cay_pending_list(&all, &count, err));
    for (size_t i = 0; i < count; i++)
        TRY(send_pending(channel, &all[i], -1, err));
    return CAY_OK;
}

/* The content may be larger than a packet. */
static int show(int channel, const char *id, struct cay_error *err)
{
    AUTO_FREE struct cay_pending *pending = calloc(1, sizeof *pending);
    AUTO_FREE char *content = NULL;
    AUTO_FD fd = memfd_create("content", MFD_CLOEXEC);

    if (!pending)
        return cay_fail_memory(err, op);
    TRY(cay_pending_find(id, pending, &content, err));
    int error = fd < 0 ? errno : -io_write(fd, content, pending->content_len);
    return error ? cay_fail_errno(err, error, op, "the content")
                 : send_pending(channel, pending, fd, err);
}

static int list_rules(int channel, struct cay_error *err)
{
    AUTO_FREE struct cay_pending_rule *rules = NULL;
    size_t count = 0;

    TRY(cay_pending_list_rules(&rules, &count, err));
    for (size_t i = 0; i < count; i++) {
        struct reply reply = {
            .kind = REPLY_RULE, .count = 4, .numbers = {[RULE_ALLOWS] = rules[i].allows}};
        AUTO_BUF strings = {.max = CHANNEL_PACKET};
        strings_add(&strings, rules[i].id);
        strings_add(&strings, rules[i].kind);
        strings_add(&strings, rules[i].scope);
        strings_add(&strings, rules[i].subject);
        if (strings.failed) /* a line that a person wrote */
            continue;
        TRY(keeper_wait_writable(channel, err));
        if (reply_send(channel, &reply, &strings, -1) != 0)
            return CAY_E_CANCELLED;
    }
    return CAY_OK;
}

static int decide(const char *const *strings, struct cay_error *err)
{
    static const struct {
        const char *word;
        enum cay_verdict verdict;
    } verdicts[] = {{"allow", CAY_VERDICT_APPROVE},
                    {"deny", CAY_VERDICT_DENY},
                    {"remember", CAY_VERDICT_REMEMBER}};

    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        if (strcmp(strings[1], verdicts[i].word) == 0)
            return cay_pending_decide(strings[0], verdicts[i].verdict, strings[2], err);
    return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "invalid verdict",
                    "use allow, deny or remember");
}

static int run(const struct keeper_request *request, const char *const *strings,
               struct cay_error *err)
{
    switch (request->head.op) {
    case OP_APPROVALS:
        return list(request->channel, err);
    case OP_APPROVAL:
        return show(request->channel, strings[0], err);
    case OP_APPROVAL_DECIDE:
        return decide(strings, err);
    case OP_APPROVAL_RULES:
        return list_rules(request->channel, err);
    default:
        return cay_pending_remove_rule(strings[0], err);
    }
}

int keeper_op_approval(struct keeper *keeper, struct keeper_request *request,
                       struct cay_error *err)
{
    int code = keeper_use_queue(keeper->options, request->strings[0], err);

    if (!code)
        code = run(request, request->strings + 1, err);
    if (code == CAY_E_NOT_FOUND) /* without the commands of cay approve */
        cay_fail(err, code, 0, op, NULL,
                 request->head.op == OP_APPROVAL_RULE_REMOVE ? "there is no such rule"
                                                             : "there is no such request",
                 "it was used, or its time is over: list those that wait");
    if (code)
        (void)reply_send_error(request->channel, 0, err);
    else if (request->head.op != OP_APPROVAL)
        (void)reply_send_done(request->channel);
    _exit(0);
}
