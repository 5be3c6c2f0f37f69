/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/command.h"

#include <errno.h>
#include <nettle/base64.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/api.h"
#include "e2b/envd.h"
#include "e2b/reply.h"

enum {
    RAW_MAX = E2B_ENVELOPE_MAX + (256 << 10),
    RAW_ENOUGH = 256 << 10, /* unread bytes that pause the stream */
    BODY_MAX = 16 << 20,
    PIECE = 256 << 10,       /* of input */
    KEEPALIVE_S = 50,        /* interval of the keepalives that envd sends */
    SILENCE_MS = 150 * 1000, /* without one the stream is dead */
    HEALTH_MS = 5000,
    TRAILER_MS = 50
};

void e2b_command_init(struct e2b_command *command, struct e2b *e2b, const char *op)
{
    *command = (struct e2b_command){.e2b = e2b, .op = op, .deadline_ms = UINT64_MAX};
    buf_init(&command->body, BODY_MAX);
    buf_init(&command->raw, RAW_MAX);
    buf_init(&command->input.body, BASE64_ENCODE_RAW_LENGTH(PIECE) + 256);
}

void e2b_command_done(struct e2b_command *command)
{
    /* Read the end of the stream, so that the connection can be used again. */
    uint64_t until = clock_ms() + TRAILER_MS;
    while (command->has_end && command->request.multi && clock_ms() < until)
        e2b_http_step(&command->e2b->http, until);
    if (command->watch)
        e2b_command_done(command->watch);
    free(command->watch);
    e2b_request_done(&command->input.request);
    buf_done(&command->input.body);
    free(command->input.own);
    e2b_request_done(&command->request);
    e2b_event_done(&command->end);
    buf_done(&command->body);
    buf_done(&command->raw);
}

/* --- Start and attach --- */

/* As e2b_envelope_read(), of the bytes that are not parsed yet. */
static ptrdiff_t next_envelope(const struct e2b_command *command,
                               struct e2b_envelope *ret_envelope)
{
    size_t left = command->raw.len - command->raw_at;

    return left ? e2b_envelope_read(command->raw.data + command->raw_at, left,
                                    ret_envelope)
                : 0;
}

static enum e2b_verdict receive(void *cookie, const char *data, size_t len)
{
    struct e2b_command *command = cookie;
    struct e2b_envelope envelope;

    if (command->has_end)
        return E2B_ACCEPT;
    if (command->raw.len - command->raw_at > RAW_ENOUGH &&
        next_envelope(command, &envelope) != 0)
        return E2B_PAUSE;
    return buf_append(&command->raw, data, len) ? E2B_ACCEPT : E2B_ABORT;
}

/* Waits for the first bytes of a reply, or for the deadline. */
static int open_stream(struct e2b_command *command, struct cay_error *err)
{
    struct e2b_http *http = &command->e2b->http;
    struct e2b_request *request = &command->request;
    uint64_t until = clock_ms() + E2B_REPLY_MS;
    unsigned attempt = 0;

    if (until > command->deadline_ms)
        until = command->deadline_ms;
    if (command->no_wait)
        return e2b_http_begin(http, request, err);
    do {
        int code = e2b_http_begin(http, request, err);
        if (code)
            return code;
        while (!request->ended && !command->raw.len && clock_ms() < until)
            e2b_http_step(http, until);
    } while (
        request->ended && !command->raw.len &&
        e2b_http_again(http, request, attempt++, command->e2b->settings.retries, until));
    return CAY_OK;
}

static int send_stream(struct e2b_command *command, const char *method, const char *user,
                       uint64_t timeout_ms, struct cay_error *err)
{
    struct e2b_request *request = &command->request;
    unsigned char head[E2B_ENVELOPE_HEAD];
    char number[32];

    e2b_request_init(request, command->op, "POST", &command->e2b->envd);
    buf_format(&request->path, "/process.Process/%s", method);
    e2b_envelope_head(command->body.len - E2B_ENVELOPE_HEAD, head);
    memcpy(command->body.data, head, sizeof head);
    request->body = command->body.data;
    request->body_len = command->body.len;
    request->on_body = receive;
    request->cookie = command;
    e2b_envd_headers(command->e2b, request, user);
    e2b_request_header(request, "Content-Type", "application/connect+json");
    e2b_request_header(request, "Connect-Protocol-Version", "1");
    snprintf(number, sizeof number, "%d", KEEPALIVE_S);
    e2b_request_header(request, "Keepalive-Ping-Interval", number);
    if (timeout_ms) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)timeout_ms);
        e2b_request_header(request, "Connect-Timeout-Ms", number);
    }
    command->begin_ms = clock_ms();
    return open_stream(command, err);
}

int e2b_command_start(struct e2b_command *command, const struct cay_exec_options *options,
                      uint64_t grace_ms, struct cay_error *err)
{
    struct e2b_input *input = &command->input;
    uint64_t number[2];

    command->has_tty = options->flags & CAY_EXEC_TTY;
    command->has_output_files = options->flags & CAY_EXEC_BACKGROUND && !command->has_tty;
    cay_copy_text(command->user, sizeof command->user,
                  options->user ? options->user : "");
    command->cwd = options->cwd;
    input->is_open =
        options->input || command->has_tty || options->flags & CAY_EXEC_INPUT;
    input->data = options->input;
    input->left = options->input ? options->input_len : 0;
    input->ends = input->is_open && !(options->flags & CAY_EXEC_INPUT);
    input->ends_left = 1;
    if (options->timeout_ms && options->timeout_ms < INT64_MAX)
        command->deadline_ms = clock_ms() + options->timeout_ms;
    int code = input->ends ? e2b_input_can_end(command, err) : CAY_OK;
    if (code)
        return code;
    if (getrandom(number, sizeof number, 0) != sizeof number)
        return cay_fail_errno(err, errno, command->op, "getrandom");
    if (!command->is_helper)
        snprintf(command->marker, sizeof command->marker, "CAY_COMMAND=%016llx%016llx",
                 (unsigned long long)number[0], (unsigned long long)number[1]);
    buf_append(&command->body, "\0\0\0\0\0", E2B_ENVELOPE_HEAD);
    code = e2b_start_write(command, options, &command->body, err);
    if (code)
        return code;
    return send_stream(
        command, "Start", e2b_envd_user(command->e2b, options->user),
        command->deadline_ms == UINT64_MAX ? 0 : options->timeout_ms + grace_ms, err);
}

int e2b_command_attach(struct e2b_command *command, const char *which,
                       struct cay_error *err)
{
    size_t digits = strspn(which, "0123456789");
    bool is_number = digits > 0 && digits < 10 && !which[digits];

    command->is_attached = true;
    buf_append(&command->body, "\0\0\0\0\0", E2B_ENVELOPE_HEAD);
    /* The caller checked the tag: it needs no escapes in JSON. */
    buf_format(&command->body,
               is_number ? "{\"process\":{\"pid\":%s}}"
                         : "{\"process\":{\"tag\":\"%s\"}}",
               which);
    if (command->body.failed)
        return cay_fail_memory(err, command->op);
    return send_stream(command, "Connect", NULL, 0, err);
}

/* --- The stream --- */

static void set_over(struct e2b_command *command)
{
    command->is_over = true;
    command->end_ms = clock_ms();
}

/* True if the proxy reports that no such sandbox is running: killed or paused. */
static bool is_absent(struct e2b_command *command)
{
    E2B_REQUEST request;

    e2b_request_init(&request, command->op, "GET", &command->e2b->envd);
    buf_text(&request.path, "/health");
    request.repeatable = true;
    e2b_envd_headers(command->e2b, &request, NULL);
    return e2b_http_send(&command->e2b->http, &request, 1, clock_ms() + HEALTH_MS,
                         NULL) == CAY_OK &&
           request.status == 502;
}

static void fail_cut(struct e2b_command *command, const char *what)
{
    int code = CAY_OK;
    bool absent = is_absent(command);

    if (absent && e2b_api_is_paused(command->e2b, command->op, &code))
        cay_fail(&command->failure, CAY_E_BUSY, 0, command->op, command->e2b->id,
                 "the sandbox was paused while the command was running",
                 "resume the sandbox and attach to the command");
    else if (absent && code == CAY_E_NOT_FOUND)
        command->is_gone = true;
    else
        cay_fail(&command->failure, CAY_E_PROTOCOL, 0, command->op, command->e2b->id,
                 what, "check the connection; the command may have run in part");
    set_over(command);
}

static int errno_of(const struct e2b_refusal *refusal)
{
    const char *code = refusal->code, *message = refusal->message;
    int number = e2b_reply_errno(message);

    if (number)
        return number;
    if (strcasestr(message, "not found") || strcasestr(message, "does not exist") ||
        strcmp(code, "not_found") == 0)
        return ENOENT;
    return strcmp(code, "permission_denied") == 0 ? EACCES : EIO;
}

/* envd's message does not tell a missing program from a missing working directory. */
static bool fail_cwd(struct e2b_command *command)
{
    static const char op[] = "exec.cwd";
    const char *subject =
        command->cwd && *command->cwd ? command->cwd : command->e2b->settings.workdir;
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;

    if (command->is_helper || e2b_path(command->e2b, op, command->cwd ? command->cwd : "",
                                       &whole, NULL) != CAY_OK)
        return false;
    int code = e2b_envd_stat(command->e2b, op, *command->user ? command->user : NULL,
                             whole, subject, &entry, NULL);
    if (code == CAY_OK && entry.stat.type != CAY_TYPE_DIRECTORY)
        code = entry.stat.type ? CAY_E_NOT_A_DIRECTORY : CAY_E_NOT_FOUND;
    if (code != CAY_E_NOT_FOUND && code != CAY_E_NOT_A_DIRECTORY)
        return false;
    int error = code == CAY_E_NOT_FOUND ? ENOENT : ENOTDIR;
    cay_fail(&command->failure, code, error, op, subject, cay_errno_words(error),
             "create the working directory first, or leave cwd out");
    return true;
}

static void fail_start(struct e2b_command *command, const struct e2b_refusal *refusal)
{
    static const char *const codes[] = {"internal", "invalid_argument", "not_found",
                                        "permission_denied", "unknown"};
    const char *id = command->e2b->id;

    command->is_refused = true;
    for (size_t i = 0; !command->is_attached && i < sizeof codes / sizeof *codes; i++)
        if (strcmp(refusal->code, codes[i]) == 0) {
            char text[300];
            int error = errno_of(refusal);
            if ((error == ENOENT || error == ENOTDIR) && fail_cwd(command))
                return;
            e2b_reply_text(command->e2b, refusal->message, text, sizeof text);
            cay_fail(&command->failure, CAY_E_EXEC_FAILED, error, command->op, id,
                     text[0] ? text : "the program cannot be started",
                     "check the name of the program and the working directory");
            return;
        }
    if (*command->user && strcmp(refusal->code, "unauthenticated") == 0)
        cay_fail(&command->failure, CAY_E_NOT_FOUND, 0, "exec.user", id,
                 "no such user in the sandbox", "every sandbox has the user root");
    else if (strcmp(refusal->code, "unavailable") == 0)
        (void)e2b_envd_fail_absent(command->e2b, command->op, &command->failure);
    else
        (void)e2b_reply_refusal(command->e2b, command->op, id, refusal->code,
                                refusal->message, CAY_E_UNAVAILABLE, &command->failure);
}

static void take_trailer(struct e2b_command *command, const struct e2b_envelope *envelope)
{
    struct e2b_refusal refusal;
    const char *wrong = e2b_refusal_read(envelope->data, envelope->len, true, &refusal);

    if (command->has_end)
        return;
    if (wrong) {
        fail_cut(command, wrong);
    } else if (!refusal.code[0]) {
        fail_cut(command, "the stream ended before the command");
    } else if (!command->pid) {
        fail_start(command, &refusal);
        set_over(command);
    } else if (strcmp(refusal.code, "deadline_exceeded") == 0 &&
               (command->deadline_ms != UINT64_MAX || command->is_attached)) {
        command->is_timed_out = true;
        set_over(command);
    } else {
        fail_cut(command, "the stream ended with an error of the server");
    }
}

/* NULL, or what is wrong with the message. */
static const char *take_message(struct e2b_command *command,
                                const struct e2b_envelope *envelope,
                                struct e2b_event *ret_event)
{
    const char *wrong = e2b_event_read(envelope->data, envelope->len, ret_event);

    if (wrong)
        return wrong;
    switch (ret_event->kind) {
    case E2B_EVENT_START:
        if (command->pid)
            return "a command started twice";
        command->pid = ret_event->pid;
        break;
    case E2B_EVENT_OUTPUT:
        if (!command->pid) {
            e2b_event_done(ret_event);
            return "output of a command that has not started";
        }
        command->has_tty = command->has_tty || ret_event->is_terminal;
        break;
    case E2B_EVENT_END:
        if (!command->pid)
            return "end of a command that has not started";
        command->has_end = true;
        command->end = *ret_event;
        set_over(command);
        break;
    case E2B_EVENT_NOTHING:
        break;
    }
    return NULL;
}

/* The stream closed without a last envelope. */
static void take_close(struct e2b_command *command)
{
    const struct e2b_request *request = &command->request;
    bool is_reply = request->result == CURLE_OK;

    if (is_reply && !e2b_request_succeeded(request)) {
        struct e2b_refusal refusal;
        const char *wrong =
            e2b_refusal_read(request->reply.data ? request->reply.data : "",
                             request->reply.len, false, &refusal);
        if (!wrong && strcmp(refusal.code, "unknown") != 0 && request->status != 502)
            fail_start(command, &refusal);
        else
            (void)e2b_envd_check(command->e2b, request, command->e2b->id,
                                 CAY_E_UNAVAILABLE, &command->failure);
        command->is_refused = true;
        set_over(command);
    } else if (!command->pid && !is_reply && !command->raw.len) {
        (void)e2b_http_check(request, &command->failure);
        set_over(command);
    } else {
        fail_cut(command, "the stream of the command broke off");
    }
}

/* Handles one message: 1, 0 if there is none now, -1 if the command is over. */
static int take_one(struct e2b_command *command, struct e2b_event *ret_event)
{
    struct e2b_envelope envelope;
    const char *wrong = NULL;

    if (command->is_over)
        return -1;
    ptrdiff_t used = next_envelope(command, &envelope);
    if (used == 0 && !command->request.ended) {
        e2b_http_unpause(&command->request);
        return 0;
    }
    if (used == 0)
        take_close(command);
    else if (used < 0)
        wrong = "invalid length or flags of a message";
    else if (envelope.flags & E2B_ENVELOPE_END)
        take_trailer(command, &envelope);
    else
        wrong = take_message(command, &envelope, ret_event);
    command->raw_at += used > 0 ? (size_t)used : 0;
    if (command->raw_at &&
        (command->raw_at == command->raw.len || command->raw_at >= RAW_ENOUGH)) {
        command->raw.len -= command->raw_at;
        memmove(command->raw.data, command->raw.data + command->raw_at, command->raw.len);
        command->raw_at = 0;
    }
    if (wrong) {
        e2b_http_abort(&command->request, CURLE_WEIRD_SERVER_REPLY);
        (void)e2b_reply_malformed(command->op, command->e2b->id, wrong,
                                  &command->failure);
        set_over(command);
    }
    return command->is_over ? -1 : 1;
}

int e2b_command_next(struct e2b_command *command, struct e2b_event *ret_event)
{
    int took;

    do {
        *ret_event = (struct e2b_event){0};
        took = take_one(command, ret_event);
    } while (took > 0 && ret_event->kind != E2B_EVENT_OUTPUT);
    return took;
}

void e2b_command_step(struct e2b_command *command, uint64_t until_ms)
{
    struct e2b_request *request = &command->request;
    uint64_t silent = request->active_ms + SILENCE_MS;
    bool waits = request->multi && !request->is_paused;

    if (waits && silent < until_ms)
        until_ms = silent;
    e2b_http_step(&command->e2b->http, until_ms);
    /* Check after the step: the caller may not have called for a long time. */
    if (waits && request->multi && clock_ms() >= request->active_ms + SILENCE_MS)
        e2b_http_abort(request, CURLE_OPERATION_TIMEDOUT);
    e2b_input_feed(command);
}

int e2b_command_wait_start(struct e2b_command *command, uint64_t until_ms,
                           struct cay_error *err)
{
    struct e2b_event event = {0};

    /* The first event is the start, so no output is lost here. */
    while (!command->pid && !command->is_over) {
        if (take_one(command, &event) != 0)
            continue;
        if (clock_ms() >= until_ms)
            return cay_fail(err, CAY_E_TIMEOUT, 0, command->op, command->e2b->id,
                            "no reply whether the command has started",
                            "it may be running: list the processes before you try again");
        e2b_command_step(command, until_ms);
    }
    e2b_input_feed(command);
    if (command->failure.code && err)
        *err = command->failure;
    return command->failure.code;
}

bool e2b_command_may_live(const struct e2b_command *command)
{
    return !command->has_end && !command->is_gone && !command->is_refused &&
           (command->pid || command->request.sent);
}

bool e2b_command_has_news(const struct e2b_command *command)
{
    struct e2b_envelope envelope;

    return command->is_over || command->request.ended ||
           next_envelope(command, &envelope) != 0;
}

int e2b_command_result(const struct e2b_command *command,
                       struct cay_exec_result *ret_result, struct cay_error *err)
{
    const struct cay_error *failure = &command->failure;
    bool is_ours = command->is_timed_out || command->is_over_limit;
    bool is_signalled = command->has_end ? command->end.is_signalled : true;

    if (failure->code && failure->code != CAY_E_EXEC_FAILED && !is_ours) {
        if (err)
            *err = *failure;
        return failure->code;
    }
    *ret_result = (struct cay_exec_result){
        .wall_us = (command->end_ms - command->begin_ms) * 1000,
    };
    if (failure->code == CAY_E_EXEC_FAILED) {
        ret_result->cause = CAY_CAUSE_NOT_STARTED;
        ret_result->exec_errno = failure->sys_errno;
        ret_result->exit_code = failure->sys_errno == ENOENT ? 127 : 126;
        return CAY_OK;
    }
    ret_result->signal = !is_signalled      ? 0
                         : command->has_end ? command->end.signal
                                            : SIGKILL;
    ret_result->exit_code = command->is_timed_out ? 124
                            : is_signalled        ? 128 + ret_result->signal
                                                  : command->end.exit_code;
    ret_result->cause = command->is_timed_out    ? CAY_CAUSE_TIMEOUT
                        : command->is_over_limit ? CAY_CAUSE_OUTPUT_LIMIT
                        : !command->has_end      ? CAY_CAUSE_GONE
                        : is_signalled           ? CAY_CAUSE_SIGNALLED
                                                 : CAY_CAUSE_EXITED;
    return CAY_OK;
}

/* --- Input --- */

/* The next piece is sent after the reply to the last one, to keep their order.  envd
 * replies when the command has read the piece or the pipe has room for it. */

bool e2b_input_pending(const struct e2b_input *input)
{
    return input->is_busy || (input->is_open && (input->left || input->ends));
}

static void stop_input(struct e2b_input *input)
{
    input->is_open = input->ends = false;
    input->left = 0;
}

static void send_input(struct e2b_command *command, const char *method)
{
    struct e2b_input *input = &command->input;
    struct e2b_request *request = &input->request;

    e2b_request_done(request);
    e2b_request_init(request, "process.write", "POST", &command->e2b->envd);
    buf_format(&request->path, "/process.Process/%s", method);
    request->body = input->body.data;
    request->body_len = input->body.len;
    e2b_envd_headers(command->e2b, request, NULL);
    e2b_request_header(request, "Content-Type", "application/json");
    e2b_request_header(request, "Connect-Protocol-Version", "1");
    request->is_out_of_memory |= input->body.failed;
    input->is_busy = true;
    if (e2b_http_begin(&command->e2b->http, request, &input->failure))
        stop_input(input);
}

static void send_bytes(struct e2b_command *command, const char *data, size_t len)
{
    struct buf *body = &command->input.body;

    body->len = 0;
    buf_format(body, "{\"process\":{\"pid\":%d},\"input\":{\"%s\":\"", command->pid,
               command->has_tty ? "pty" : "stdin");
    if (buf_reserve(body, BASE64_ENCODE_RAW_LENGTH(len))) {
        base64_encode_raw(body->data + body->len, len, (const uint8_t *)data);
        body->len += BASE64_ENCODE_RAW_LENGTH(len);
    }
    buf_text(body, "\"}}");
    send_input(command, "SendInput");
}

int e2b_input_can_end(const struct e2b_command *command, struct cay_error *err)
{
    if (command->has_tty || command->e2b->version >= E2B_HAS_CLOSE_STDIN)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, command->op, command->e2b->id,
                    "this version of envd cannot close the input of a command",
                    "rebuild the template of the sandbox");
}

/* A refusal means that the command no longer reads its input, which is no failure. */
static void receive_input_reply(struct e2b_command *command)
{
    struct e2b_input *input = &command->input;
    const struct e2b_request *request = &input->request;

    input->is_busy = false;
    if (e2b_http_check(request, &input->failure)) {
        stop_input(input);
    } else if (request->status == 429 || request->status >= 502) {
        (void)e2b_envd_check(command->e2b, request, command->e2b->id, CAY_E_IO,
                             &input->failure);
        stop_input(input);
    } else if (!e2b_request_succeeded(request)) {
        /* An attached command may have a terminal: send the piece again as "pty". */
        if (command->is_attached && !command->has_tty && input->sent) {
            input->data -= input->sent;
            input->left += input->sent;
            command->has_tty = true;
        } else {
            stop_input(input);
        }
    }
    input->sent = 0;
}

void e2b_input_feed(struct e2b_command *command)
{
    struct e2b_input *input = &command->input;

    if (input->is_busy && input->request.ended)
        receive_input_reply(command);
    if (!input->is_open || input->is_busy || !command->pid || command->is_over)
        return;
    if (input->left) {
        size_t len = input->left < PIECE ? input->left : PIECE;
        /* After an unfinished line the first ^D only submits the line. */
        input->ends_left = input->data[len - 1] == '\n' ? 1 : 2;
        send_bytes(command, input->data, len);
        input->data += len;
        input->left -= len;
        input->sent = len;
    } else if (input->ends && command->has_tty) {
        input->is_open = input->ends = input->ends_left > 1;
        input->ends_left = 1;
        send_bytes(command, "\x04", 1);
    } else if (input->ends) {
        input->is_open = input->ends = false;
        input->body.len = 0;
        buf_format(&input->body, "{\"process\":{\"pid\":%d}}", command->pid);
        send_input(command, "CloseStdin");
    }
}
