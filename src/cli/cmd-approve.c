/* SPDX-License-Identifier: Apache-2.0 */
/* cay approve: the queue of requests that wait for the user. */
#include "cli/approve.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/signals.h"

static const char op[] = "cli.approve";

enum { LIST, SHOW, ALLOW, DENY, REMEMBER, RULES, REQUEST, WATCH, NOTIFY, COUNT };
enum { SHORT_ID = 12 };

static call_runner list, show, reply, print_rules, request_approval, watch, notify;

static const struct subcommand subcommands[] = {
    [LIST] = {"list", "", "List the requests that wait for approval", 0, 0, list},
    [SHOW] = {"show", "ID", "Show a request with what it would do", 1, 1, show},
    [ALLOW] = {"allow", "ID...", "Allow what a request shows, once", 1, UINT32_MAX,
               reply},
    [DENY] = {"deny", "ID...", "Deny a request", 1, UINT32_MAX, reply},
    [REMEMBER] = {"remember", "ID...",
                  "Allow a request, and add a rule that allows the same subject", 1,
                  UINT32_MAX, reply},
    [RULES] = {"rules", "", "Print the rules, and the file that they are in", 0, 0,
               print_rules},
    [REQUEST] = {"request", "KIND SUBJECT", "Request approval, and wait for the reply", 2,
                 2, request_approval},
    [WATCH] = {"watch", "SANDBOX",
               "Request approval of a sandbox's connections until it ends", 1, 1, watch},
    [NOTIFY] = {"notify", "URL", "Send the requests that wait to a webhook", 1, 1,
                notify},
};

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"note", 0, OPTION_TEXT, BIT(DENY), FIELD(note), "TEXT",
     "the reason, which the program reports"},
    {"interactive", 'i', OPTION_FLAG, BIT(REQUEST), FIELD(interactive), NULL,
     "show standard input with the request"},
    {"scope", 0, OPTION_TEXT, BIT(REQUEST), FIELD(scope), "TEXT",
     "where the subject is: a directory, a sandbox"},
    {"secret-file", 0, OPTION_TEXT, BIT(NOTIFY), FIELD(secret_file), "FILE",
     "the secret that signs messages and replies"},
    {"timeout", 0, OPTION_PARSED, BIT(NOTIFY), FIELD(timeout_ms), "TIME",
     "of one message (default 10s)", sandbox_parse_time, TIME_ALLOWED},
    {"timeout", 0, OPTION_PARSED, BIT(REQUEST), FIELD(timeout_ms), "TIME",
     "the answer is no after this time (default 10m)", sandbox_parse_time, TIME_ALLOWED},
    {"quiet", 'q', OPTION_FLAG, BIT(LIST), FIELD(quiet), NULL, "print only the IDs"},
    {"output", 'o', OPTION_CHOICE, BIT(LIST), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar approve_grammar = {
    .program = "cay approve",
    .usage = "COMMAND [ARGUMENT]...\nReply to programs that wait for approval.",
    .manual = "Manual: cay-approve(1).",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* --- list and show --- */

static void put_request(struct json *json, const void *item)
{
    const struct cay_pending *request = item;

    json_set_text(json, "id", request->id);
    json_set_text(json, "kind", request->kind);
    json_put_key(json, "scope");
    json_put_bytes(json, request->scope, strlen(request->scope));
    json_put_key(json, "subject");
    json_put_bytes(json, request->subject, strlen(request->subject));
    json_put_key(json, "summary");
    json_put_bytes(json, request->summary, strlen(request->summary));
    json_set_int(json, "created_ms", request->created_ms);
    json_set_int(json, "expires_ms", request->expires_ms);
    json_set_uint(json, "content_bytes", request->content_len);
    json_set_bool(json, "decided", request->is_decided);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_pending *request = item;
    char room[QUANTITY_ROOM];

    table_cell(table, "%.*s", SHORT_ID, request->id);
    table_cell(table, "%s", quantity_age(request->created_ms, room));
    table_cell(table, "%s", request->is_decided ? "replied" : "waiting");
    table_cell(table, "%s", request->kind);
    table_cell(table, "%s", request->summary);
}

static const char *id_of(const void *item)
{
    return ((const struct cay_pending *)item)->id;
}

static int list(struct call *call, struct cay_error *err)
{
    static const struct call_list requests = {"requests",
                                              "ID|AGE|STATE|KIND|REQUEST",
                                              sizeof(struct cay_pending),
                                              put_request,
                                              add_row,
                                              id_of};
    AUTO_FREE struct cay_pending *all = NULL;
    size_t count = 0;

    TRY(cay_pending_list(&all, &count, err));
    return call_list(call, &requests, all, count, err);
}

static void put_line(FILE *file, const char *key, const char *text)
{
    fprintf(file, "%-8s ", key);
    show_name(file, text);
    fputc('\n', file);
}

static int show(struct call *call, struct cay_error *err)
{
    AUTO_FREE struct cay_pending *request = calloc(1, sizeof *request);
    AUTO_FREE char *content = NULL;
    FILE *file = call->output.file;

    if (!request)
        return cay_fail_memory(err, op);
    TRY(cay_pending_find(call->line.arguments[0], request, &content, err));
    put_line(file, "id", request->id);
    put_line(file, "request", request->summary);
    put_line(file, "kind", request->kind);
    if (*request->scope)
        put_line(file, "scope", request->scope);
    put_line(file, "subject", request->subject);
    if (request->content_len)
        fputc('\n', file);
    approve_show_content(file, content, request->content_len);
    return output_finish(&call->output, err);
}

/* --- Replies --- */

static int reply_to(struct call *call, const char *word, struct json *json,
                    struct cay_error *err)
{
    static const enum cay_verdict verdicts[] = {[ALLOW] = CAY_VERDICT_APPROVE,
                                                [DENY] = CAY_VERDICT_DENY,
                                                [REMEMBER] = CAY_VERDICT_REMEMBER};
    AUTO_FREE struct cay_pending *request = calloc(1, sizeof *request);

    (void)json;
    if (!request)
        return cay_fail_memory(err, op);
    TRY(cay_pending_find(word, request, NULL, err));
    return cay_pending_decide(request->id, verdicts[call->line.subcommand - subcommands],
                              call->options.note, err);
}

static int reply(struct call *call, struct cay_error *err)
{
    return call_each(call, call->line.arguments, call->line.count, reply_to, NULL, err);
}

static int print_rules(struct call *call, struct cay_error *err)
{
    char path[4096];
    FILE *file = call->output.file;

    TRY(cay_pending_rules(path, err));
    fputs("# ", file);
    show_name(file, path);
    fputc('\n', file);
    FILE *rules = fopen(path, "re");
    if (!rules)
        return errno == ENOENT ? CAY_OK : cay_fail_errno(err, errno, op, "rules");
    AUTO_FREE char *line = NULL;
    size_t room = 0;
    for (ssize_t len; (len = getline(&line, &room, rules)) > 0;) {
        show_text(file, line, (size_t)(len - (line[len - 1] == '\n')), SIZE_MAX);
        fputc('\n', file);
    }
    (void)fclose(rules);
    return CAY_OK;
}

/* --- request --- */

int approve_wait(const struct cay_request *request, struct cay_error *err)
{
    char id[CAY_PENDING_ID_MAX], note[CAY_NOTE_MAX] = "";
    enum cay_decision decision;

    TRY(cay_pending_submit(request, id, &decision, err));
    if (decision == CAY_DECISION_NONE) {
        approve_waits(id, request->summary ? request->summary : request->subject);
        TRY(cay_pending_wait(
            id, request->timeout_ms ? request->timeout_ms : CAY_PENDING_TIMEOUT_MS,
            &decision, note, err));
    } else if (decision == CAY_DECISION_NO) {
        cay_copy_text(note, sizeof note, "a rule of cay approve denies it");
    }
    if (decision == CAY_DECISION_YES)
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_APPROVED, 0, op, request->subject,
                    *note ? note : "denied",
                    "cay approve list shows what waits, cay approve rules the rules");
}

static int read_input(struct buf *content, struct cay_error *err)
{
    ssize_t got = 1;

    while (got > 0) {
        if (content->len == CAY_PENDING_CONTENT_MAX)
            return cay_fail(err, CAY_E_LIMIT, 0, op, "-i",
                            "standard input is too large to be shown",
                            "the limit is less than 1 MiB");
        size_t left = CAY_PENDING_CONTENT_MAX - content->len;
        size_t step = left < (64 << 10) ? left : (64 << 10);
        if (!buf_reserve(content, step))
            return cay_fail_memory(err, op);
        do
            got = read(STDIN_FILENO, content->data + content->len, step);
        while (got < 0 && errno == EINTR);
        content->len += got > 0 ? (size_t)got : 0;
    }
    return got < 0 ? cay_fail_errno(err, errno, op, "-i") : CAY_OK;
}

static int request_approval(struct call *call, struct cay_error *err)
{
    AUTO_BUF content = {.max = CAY_PENDING_CONTENT_MAX + 1};

    if (call->options.interactive)
        TRY(read_input(&content, err));
    const struct cay_request request = {.size = sizeof request,
                                        .kind = call->line.arguments[0],
                                        .scope = call->options.scope,
                                        .subject = call->line.arguments[1],
                                        .content = content.data,
                                        .content_len = content.len,
                                        .timeout_ms = call->options.timeout_ms};
    return approve_wait(&request, err);
}

/* --- watch --- */

static int watch(struct call *call, struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    signals_catch();
    return egress_serve(sandbox, err);
}

/* --- notify --- */

static int notify(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;

    if (!options->secret_file)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--secret-file",
                        "messages need a secret that signs them",
                        "write a line of random characters to a file and name it with "
                        "--secret-file");
    return notify_serve(call->line.arguments[0], options->secret_file,
                        options->timeout_ms, err);
}
