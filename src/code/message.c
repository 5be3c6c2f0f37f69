/* SPDX-License-Identifier: Apache-2.0 */

/* The service has the rights of the user inside, so every event is checked: its kind, its
 * length, and that texts end within their field. */
#include "code/message.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/signal.h"

enum { EVENTS_ROOM = sizeof(struct code_event) + CODE_PIECE };

/* --- Requests --- */

static void add(struct buf *buf, const char *text)
{
    const char *plain = text ? text : "";

    buf_append(buf, plain, strlen(plain) + 1);
}

static int finish(struct buf *message, struct code_request *head, const char *op,
                  struct cay_error *err)
{
    bool is_kept = head->op == CODE_CREATE || head->op == CODE_ADOPT;
    size_t most = is_kept ? CODE_CREATE_MAX : CODE_BODY_MAX;

    if (message->failed || head->words > CODE_STRINGS_MAX ||
        message->len - sizeof *head > most)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "the code or the environment is too long",
                        "the limit is %zu MiB and %d variables; write large data to a "
                        "file",
                        most >> 20, CODE_STRINGS_MAX);
    head->len = (uint32_t)(message->len - sizeof *head);
    memcpy(message->data, head, sizeof *head);
    return CAY_OK;
}

int code_pack_query(const struct code_query *query, const char *op, struct buf *message,
                    struct cay_error *err)
{
    struct code_request head = {.op = query->op,
                                .is_default = query->is_default,
                                .timeout_ms = query->timeout_ms};

    buf_append(message, &head, sizeof head);
    add(message, query->id);
    add(message, query->language);
    add(message, query->cwd);
    for (const char *const *word = query->words; word && *word; word++, head.words++)
        add(message, *word);
    buf_append(message, query->body, query->body_len);
    return finish(message, &head, op, err);
}

int code_pack_driver(const struct code_query *query, const char *op, struct buf *message,
                     struct cay_error *err)
{
    struct code_request head = {.op = CODE_DRIVER};

    if (!query->driver)
        return code_fail_protocol(op, err);
    head.timeout_ms = query->driver->interrupt_ms;
    buf_append(message, &head, sizeof head);
    add(message, NULL);
    add(message, query->language);
    TRY(code_language_pack(query->driver, message, &head.words, err));
    return finish(message, &head, op, err);
}

int code_make_body(const char *code, size_t len, const char *const *env,
                   const char *dialect, char **ret_body, struct cay_error *err)
{
    static const char op[] = "code.execute";
    json_t *line = json_object(), *variables = json_object();
    json_t *text = json_stringn(code, len);
    int failed = text ? 0 : -1;

    if (!text && line && variables) {
        json_decref(line);
        json_decref(variables);
        return cay_fail(err, CAY_E_INVALID, 0, op, "code", "the code is not UTF-8",
                        "encode it as UTF-8");
    }
    failed |= json_object_set_new(line, "code", text);
    for (const char *const *one = env; one && *one && !failed; one++) {
        const char *value = strchr(*one, '=');
        AUTO_FREE char *name = value ? strndup(*one, (size_t)(value - *one)) : NULL;
        failed |= !name || !*name ||
                  json_object_set_new(variables, name, json_string(value + 1));
    }
    failed |= json_object_set_new(line, "env", variables);
    if (dialect)
        failed |= json_object_set_new(line, "language", json_string(dialect));
    AUTO_FREE char *whole = failed ? NULL : json_dumps(line, JSON_COMPACT);
    json_decref(line);
    *ret_body = whole ? strndup(whole + 1, strlen(whole) - 2) : NULL;
    return *ret_body ? CAY_OK
                     : cay_fail(err, CAY_E_INVALID, 0, op, "env",
                                "invalid environment variable",
                                "a variable is NAME=value, in UTF-8");
}

/* --- Events --- */

bool code_reader_init(struct code_reader *reader)
{
    *reader = (struct code_reader){.bytes = malloc(EVENTS_ROOM)};
    return reader->bytes != NULL;
}

void code_reader_done(struct code_reader *reader)
{
    free(reader->bytes);
    *reader = (struct code_reader){0};
}

char *code_reader_room(struct code_reader *reader, size_t *ret_room)
{
    memmove(reader->bytes, reader->bytes + reader->from, reader->to - reader->from);
    reader->to -= reader->from;
    reader->from = 0;
    *ret_room = EVENTS_ROOM - reader->to;
    return reader->bytes + reader->to;
}

int code_reader_next(struct code_reader *reader, struct code_event *ret_event,
                     const char **ret_payload)
{
    size_t len = reader->to - reader->from;

    if (len < sizeof *ret_event)
        return 0;
    memcpy(ret_event, reader->bytes + reader->from, sizeof *ret_event);
    if (ret_event->len > CODE_PIECE)
        return -EPROTO;
    if (len - sizeof *ret_event < ret_event->len)
        return 0;
    *ret_payload = reader->bytes + reader->from + sizeof *ret_event;
    reader->from += sizeof *ret_event + ret_event->len;
    return 1;
}

bool code_take_name(char to[CAY_CONTEXT_MAX], const char from[CODE_NAME_MAX])
{
    size_t len = strnlen(from, CODE_NAME_MAX);

    for (size_t i = 0; i < len; i++)
        if (from[i] <= ' ' || from[i] > '~')
            return false;
    if (len == CODE_NAME_MAX)
        return false;
    memcpy(to, from, len + 1);
    return true;
}

bool code_take_context(const struct code_event *event, const char *payload,
                       struct code_context *ret_context)
{
    char name[CAY_CONTEXT_MAX];

    if (event->kind != CODE_EVENT_CONTEXT || event->len != sizeof *ret_context)
        return false;
    memcpy(ret_context, payload, sizeof *ret_context);
    return memchr(ret_context->cwd, 0, sizeof ret_context->cwd) &&
           code_take_name(name, ret_context->id) &&
           code_take_name(name, ret_context->language);
}

/* --- The end of a request --- */

int code_fail_gone(const char *op, struct cay_error *err)
{
    return cay_fail(err, CAY_E_KILLED, 0, op, NULL,
                    "the process that serves code contexts in the sandbox has ended",
                    "try again: it is started again, with new contexts; check the memory "
                    "limit of the sandbox if it ends again");
}

int code_fail_protocol(const char *op, struct cay_error *err)
{
    return cay_fail(err, CAY_E_PROTOCOL, 0, op, NULL,
                    "the process that serves code contexts in the sandbox sent an "
                    "invalid message",
                    "a program inside may have changed it: kill the sandbox");
}

bool code_is_killed(const struct code_end *end)
{
    return end->reason == CODE_LOST && end->loss == CODE_LOSS_DIED &&
           WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGKILL;
}

void code_describe_loss(uint32_t loss, int status, bool is_memory, char *text,
                        size_t room)
{
    static const char lost[] = "its variables are lost";

    if (is_memory)
        snprintf(text, room,
                 "the kernel killed the interpreter: the sandbox is out of memory; %s",
                 lost);
    else if (loss == CODE_LOSS_KILLED)
        snprintf(text, room,
                 "the interpreter did not react to the interrupt and was killed; %s",
                 lost);
    else if (loss == CODE_LOSS_RESTARTED)
        snprintf(text, room, "the context was restarted; %s", lost);
    else if (loss == CODE_LOSS_CLOSED)
        snprintf(text, room,
                 "the interpreter closed its connection to the service and was killed; "
                 "%s",
                 lost);
    else if (loss == CODE_LOSS_SERVICE)
        snprintf(text, room,
                 "the process that serves code contexts in the sandbox has ended; %s",
                 "all variables are lost");
    else if (loss == CODE_LOSS_FORK)
        snprintf(text, room,
                 "the memory of the interpreter did not come along with the fork; %s",
                 lost);
    else if (loss == CODE_LOSS_SILENT)
        snprintf(text, room, "the interpreter did not start in time and was killed");
    else if (WIFSIGNALED(status))
        snprintf(text, room, "the interpreter was killed by signal %d (SIG%s); %s",
                 WTERMSIG(status), signal_name(WTERMSIG(status)), lost);
    else
        snprintf(text, room, "the interpreter exited with status %d; %s",
                 WEXITSTATUS(status), lost);
}

static int fail_start(const struct code_query *query, const char *op,
                      const struct code_end *end, struct cay_error *err)
{
    const char *program = query->driver ? query->driver->argv[0] : query->id;
    char text[256];

    if (end->reason == CODE_NO_EXEC)
        return cay_fail(err, CAY_E_EXEC_FAILED, end->error, op, program,
                        "the sandbox cannot execute the interpreter",
                        "the templates host and base have the programs of this machine: "
                        "install it here or inside, or use another template");
    code_describe_loss(end->loss, end->status, false, text, sizeof text);
    return cay_fail(err, CAY_E_EXEC_FAILED, 0, op, program,
                    "the interpreter ended before it was ready",
                    "%s; run it in the sandbox to see why", text);
}

static int fail_directory(const struct code_query *query, const char *op, int error,
                          struct cay_error *err)
{
    int code = error == ENOENT    ? CAY_E_NOT_FOUND
               : error == ENOTDIR ? CAY_E_NOT_A_DIRECTORY
               : error == EACCES  ? CAY_E_DENIED
                                  : CAY_E_INVALID;

    return cay_fail(err, code, error, op, query->cwd ? query->cwd : "",
                    cay_errno_words(error),
                    "the directory of a context must exist, and its user must be "
                    "allowed to enter it");
}

int code_fail_end(const struct code_query *query, const char *op,
                  const struct code_end *end, struct cay_error *err)
{
    const char *id = query->id;

    switch (end->reason) {
    case CODE_UNKNOWN:
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no such context",
                        "list the contexts; each belongs to the user who created it");
    case CODE_REMOVED:
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "the context was removed",
                        "create a new one");
    case CODE_EXPIRED:
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, id,
                        "the context was not ready in time", "use a longer timeout");
    case CODE_TOO_MANY:
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "this user has too many contexts in the sandbox",
                        "the limit is %d; remove some", CODE_CONTEXTS_MAX);
    case CODE_FULL:
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "too many executions are waiting in the sandbox",
                        "the limit is %d executions and %d MiB of code; wait for some",
                        CODE_REQUESTS_MAX, CODE_PENDING_MAX >> 20);
    case CODE_NO_CWD:
        return fail_directory(query, op, end->error, err);
    case CODE_NO_EXEC:
    case CODE_NO_START:
        return fail_start(query, op, end, err);
    case CODE_BUSY:
        return cay_fail(err, CAY_E_EXISTS, 0, op, id,
                        "the sandbox has such a context already",
                        "restore contexts in a fork before any code runs there");
    case CODE_NO_FORK:
        return cay_fail(err, CAY_E_LIMIT, end->error, op, NULL,
                        "no process can be started for the context",
                        "end some processes, or create a sandbox with higher limits");
    default:
        return cay_fail(err, CAY_E_PROTOCOL, 0, op, id,
                        "the sandbox sent an invalid message", "kill the sandbox");
    }
}
