/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/entry.h"
#include "e2b/envelope.h"

enum {
    RAW_MAX = E2B_ENVELOPE_MAX + (256 << 10),
    RAW_ENOUGH = 256 << 10, /* nobody reads: let the command wait */
    BODY_MAX = 16 << 20,
    PING_S = 50,             /* the server gives a sign of life that often */
    SILENCE_MS = 150 * 1000, /* it does not */
    HEALTH_MS = 5000,
    TRAILER_MS = 50
};

void e2b_run_init(struct e2b_run *run, struct e2b *e2b, const char *op)
{
    *run = (struct e2b_run){.e2b = e2b, .op = op, .deadline_ms = UINT64_MAX};
    buf_init(&run->body, BODY_MAX);
    buf_init(&run->raw, RAW_MAX);
    e2b_input_init(&run->input);
}

void e2b_run_done(struct e2b_run *run)
{
    /* The last bytes of a stream, so that its connection can be used again. */
    uint64_t until = e2b_now_ms() + TRAILER_MS;
    while (run->has_end && run->request.multi && e2b_now_ms() < until)
        e2b_loop_step(&run->e2b->loop, until);
    if (run->watch)
        e2b_run_done(run->watch);
    free(run->watch);
    e2b_input_done(&run->input);
    e2b_request_done(&run->request);
    e2b_event_done(&run->end);
    buf_done(&run->body);
    buf_done(&run->raw);
}

/* --- The stream's beginning --- */

static enum e2b_take take(void *cookie, const char *data, size_t len)
{
    struct e2b_run *run = cookie;
    struct e2b_envelope envelope;

    if (run->has_end)
        return E2B_TAKEN;
    if (run->raw.len - run->raw_at > RAW_ENOUGH &&
        e2b_envelope_read(run->raw.data + run->raw_at, run->raw.len - run->raw_at,
                          &envelope) != 0)
        return E2B_LATER;
    return buf_append(&run->raw, data, len) ? E2B_TAKEN : E2B_REFUSED;
}

static void set_headers(struct e2b_run *run, const char *user, uint64_t timeout_ms)
{
    struct e2b_request *request = &run->request;
    char number[32];

    e2b_inside(run->e2b, request, user);
    e2b_request_header(request, "Content-Type", "application/connect+json");
    e2b_request_header(request, "Connect-Protocol-Version", "1");
    snprintf(number, sizeof number, "%d", PING_S);
    e2b_request_header(request, "Keepalive-Ping-Interval", number);
    if (timeout_ms) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)timeout_ms);
        e2b_request_header(request, "Connect-Timeout-Ms", number);
    }
}

/* Until the server has taken it or refused it, or the time is over. */
static int open_stream(struct e2b_run *run, struct cay_error *err)
{
    struct e2b_loop *loop = &run->e2b->loop;
    struct e2b_request *request = &run->request;
    uint64_t until = e2b_now_ms() + E2B_ANSWER_MS;
    unsigned attempt = 0;

    if (until > run->deadline_ms)
        until = run->deadline_ms;
    if (run->opens_later)
        return e2b_http_begin(loop, request, err);
    do {
        int code = e2b_http_begin(loop, request, err);
        if (code)
            return code;
        while (!request->ended && !run->raw.len && e2b_now_ms() < until)
            e2b_loop_step(loop, until);
    } while (request->ended && !run->raw.len &&
             e2b_http_again(loop, request, attempt++, run->e2b->settings.retries, until));
    return CAY_OK;
}

static int send_stream(struct e2b_run *run, const char *method, const char *user,
                       uint64_t timeout_ms, struct cay_error *err)
{
    struct e2b_request *request = &run->request;
    unsigned char head[E2B_ENVELOPE_HEAD];

    e2b_request_init(request, run->op, "POST", &run->e2b->envd);
    buf_format(&request->path, "/process.Process/%s", method);
    e2b_envelope_head(run->body.len - E2B_ENVELOPE_HEAD, head);
    memcpy(run->body.data, head, sizeof head);
    request->body = run->body.data;
    request->body_len = run->body.len;
    request->take = take;
    request->cookie = run;
    set_headers(run, user, timeout_ms);
    run->begin_ms = e2b_now_ms();
    return open_stream(run, err);
}

static bool make_marker(struct e2b_run *run)
{
    uint64_t number[2];

    if (getrandom(number, sizeof number, 0) != sizeof number)
        return false;
    snprintf(run->marker, sizeof run->marker, "CAY_COMMAND=%016llx%016llx",
             (unsigned long long)number[0], (unsigned long long)number[1]);
    return true;
}

static void set_input(struct e2b_run *run, const struct cay_exec_options *options)
{
    struct e2b_input *input = &run->input;

    input->is_open = options->input || run->has_tty || options->flags & CAY_EXEC_INPUT;
    input->data = options->input;
    input->left = options->input ? options->input_len : 0;
    input->ends = input->is_open && !(options->flags & CAY_EXEC_INPUT);
    input->ends_left = 1;
}

int e2b_run_start(struct e2b_run *run, const struct cay_exec_options *options,
                  uint64_t grace_ms, struct cay_error *err)
{
    run->has_tty = options->flags & CAY_EXEC_TTY;
    run->is_kept = options->flags & CAY_EXEC_BACKGROUND && !run->has_tty;
    cay_copy_text(run->user, sizeof run->user, options->user ? options->user : "");
    run->cwd = options->cwd;
    set_input(run, options);
    if (options->timeout_ms && options->timeout_ms < INT64_MAX)
        run->deadline_ms = e2b_now_ms() + options->timeout_ms;
    int code = run->input.ends ? e2b_input_can_end(run, err) : CAY_OK;
    if (code)
        return code;
    if (!run->is_helper && !make_marker(run))
        return cay_fail_errno(err, errno, run->op, "getrandom");
    buf_append(&run->body, "\0\0\0\0\0", E2B_ENVELOPE_HEAD);
    code = e2b_start_write(run, options, &run->body, err);
    if (code)
        return code;
    return send_stream(
        run, "Start", e2b_names_user(run->e2b, options->user),
        run->deadline_ms == UINT64_MAX ? 0 : options->timeout_ms + grace_ms, err);
}

int e2b_run_attach(struct e2b_run *run, const char *which, struct cay_error *err)
{
    size_t digits = strspn(which, "0123456789");
    bool is_number = digits > 0 && digits < 10 && !which[digits];

    run->is_attached = true;
    buf_append(&run->body, "\0\0\0\0\0", E2B_ENVELOPE_HEAD);
    /* A tag is checked: it has no characters that JSON would mind. */
    buf_format(&run->body,
               is_number ? "{\"process\":{\"pid\":%s}}"
                         : "{\"process\":{\"tag\":\"%s\"}}",
               which);
    if (run->body.failed)
        return cay_fail_memory(err, run->op);
    return send_stream(run, "Connect", NULL, 0, err);
}

/* --- What comes --- */

static void end_with(struct e2b_run *run)
{
    run->is_over = true;
    run->end_ms = e2b_now_ms();
}

/* How one that was killed, or paused, looks from here. */
static bool is_absent(struct e2b_run *run)
{
    E2B_REQUEST request;

    e2b_request_init(&request, run->op, "GET", &run->e2b->envd);
    buf_text(&request.path, "/health");
    request.repeatable = true;
    e2b_inside(run->e2b, &request, NULL);
    return e2b_http_ask(&run->e2b->loop, &request, 1, e2b_now_ms() + HEALTH_MS, NULL) ==
               CAY_OK &&
           request.status == 502;
}

static void fail_cut(struct e2b_run *run, const char *what)
{
    int code = CAY_OK;
    bool absent = is_absent(run);

    if (absent && e2b_api_is_paused(run->e2b, run->op, &code))
        cay_fail(&run->failure, CAY_E_BUSY, 0, run->op, run->e2b->id,
                 "the sandbox was paused while the command ran",
                 "it goes on when the sandbox is resumed; attach to it then");
    else if (absent && code == CAY_E_NOT_FOUND)
        run->is_gone = true;
    else
        cay_fail(&run->failure, CAY_E_PROTOCOL, 0, run->op, run->e2b->id, what,
                 "the connection may be bad; what the command did until then is done");
    end_with(run);
}

static int errno_of(const struct e2b_refusal *refusal)
{
    static const struct {
        const char *words;
        int number;
    } known[] = {{"permission denied", EACCES},
                 {"not a directory", ENOTDIR},
                 {"exec format error", ENOEXEC},
                 {"argument list too long", E2BIG},
                 {"no such file or directory", ENOENT},
                 {"not found", ENOENT},
                 {"does not exist", ENOENT},
                 {"resource temporarily", EAGAIN}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasestr(refusal->message, known[i].words))
            return known[i].number;
    return strcmp(refusal->code, "not_found") == 0           ? ENOENT
           : strcmp(refusal->code, "permission_denied") == 0 ? EACCES
                                                             : EIO;
}

/* What is missing may be the directory it was to start in: the server's words do not say
 * which it is. */
static bool fail_cwd(struct e2b_run *run)
{
    static const char op[] = "exec.cwd";
    const char *subject = run->cwd && *run->cwd ? run->cwd : run->e2b->settings.workdir;
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;

    if (run->is_helper ||
        e2b_path(run->e2b, op, run->cwd ? run->cwd : "", &whole, NULL) != CAY_OK)
        return false;
    int code = e2b_entry_stat(run->e2b, op, *run->user ? run->user : NULL, whole, subject,
                              &entry, NULL);
    if (code == CAY_OK && entry.stat.type != CAY_TYPE_DIRECTORY)
        code = entry.stat.type ? CAY_E_NOT_A_DIRECTORY : CAY_E_NOT_FOUND;
    if (code != CAY_E_NOT_FOUND && code != CAY_E_NOT_A_DIRECTORY)
        return false;
    int error = code == CAY_E_NOT_FOUND ? ENOENT : ENOTDIR;
    cay_fail(&run->failure, code, error, op, subject, cay_errno_words(error),
             "the working directory must be there: make it first, or leave cwd out");
    return true;
}

/* It did not start: whose fault is it? */
static void fail_start(struct e2b_run *run, const struct e2b_refusal *refusal)
{
    static const char *const codes[] = {"internal", "invalid_argument", "not_found",
                                        "permission_denied", "unknown"};
    const char *id = run->e2b->id;

    run->is_refused = true;
    for (size_t i = 0; !run->is_attached && i < sizeof codes / sizeof *codes; i++)
        if (strcmp(refusal->code, codes[i]) == 0) {
            char words[300];
            int error = errno_of(refusal);
            if ((error == ENOENT || error == ENOTDIR) && fail_cwd(run))
                return;
            e2b_reply_words(run->e2b, refusal->message, words, sizeof words);
            cay_fail(&run->failure, CAY_E_EXEC_FAILED, error, run->op, id,
                     words[0] ? words : "the program could not be started",
                     "check the program's name and the directory it starts in");
            return;
        }
    if (*run->user && strcmp(refusal->code, "unauthenticated") == 0)
        cay_fail(&run->failure, CAY_E_NOT_FOUND, 0, "exec.user", id,
                 "the sandbox does not know this user", "root is known everywhere");
    else if (strcmp(refusal->code, "unavailable") == 0)
        (void)e2b_reply_absent(run->e2b, run->op, &run->failure);
    else
        (void)e2b_reply_refusal(run->e2b, run->op, id, refusal->code, refusal->message,
                                CAY_E_UNAVAILABLE, &run->failure);
}

static void take_trailer(struct e2b_run *run, const struct e2b_envelope *envelope)
{
    struct e2b_refusal refusal;
    const char *wrong = e2b_refusal_read(envelope->data, envelope->len, true, &refusal);

    if (run->has_end)
        return;
    if (wrong) {
        fail_cut(run, wrong);
    } else if (!refusal.code[0]) {
        fail_cut(run, "the command's stream ended, but not the command");
    } else if (!run->pid) {
        fail_start(run, &refusal);
        end_with(run);
    } else if (strcmp(refusal.code, "deadline_exceeded") == 0 &&
               (run->deadline_ms != UINT64_MAX || run->is_attached)) {
        run->is_timed_out = true;
        end_with(run);
    } else {
        fail_cut(run, "the command's stream ended with an error of the server");
    }
}

/* NULL, or what is wrong with it. */
static const char *take_message(struct e2b_run *run, const struct e2b_envelope *envelope,
                                struct e2b_event *ret_event)
{
    const char *wrong = e2b_event_read(envelope->data, envelope->len, ret_event);

    if (wrong)
        return wrong;
    switch (ret_event->kind) {
    case E2B_EVENT_START:
        if (run->pid)
            return "the command has started twice";
        run->pid = ret_event->pid;
        break;
    case E2B_EVENT_OUTPUT:
        if (!run->pid) {
            e2b_event_done(ret_event);
            return "there is output of a command that has not started";
        }
        run->has_tty = run->has_tty || ret_event->is_terminal;
        break;
    case E2B_EVENT_END:
        if (!run->pid)
            return "a command has ended that has not started";
        run->has_end = true;
        run->end = *ret_event;
        end_with(run);
        break;
    case E2B_EVENT_NOTHING:
        break;
    }
    return NULL;
}

/* The server does not talk about a stream any more. */
static void take_close(struct e2b_run *run)
{
    const struct e2b_request *request = &run->request;
    bool is_answer = request->result == CURLE_OK;

    if (is_answer && (request->status < 200 || request->status >= 300)) {
        struct e2b_refusal refusal;
        const char *wrong =
            e2b_refusal_read(request->reply.data ? request->reply.data : "",
                             request->reply.len, false, &refusal);
        if (!wrong && strcmp(refusal.code, "unknown") != 0 && request->status != 502)
            fail_start(run, &refusal);
        else
            (void)e2b_reply_check(run->e2b, request, run->e2b->id, CAY_E_UNAVAILABLE,
                                  &run->failure);
        run->is_refused = true;
        end_with(run);
    } else if (!run->pid && !is_answer && !run->raw.len) {
        (void)e2b_http_check(request, &run->failure);
        end_with(run);
    } else {
        fail_cut(run, "the command's stream broke off");
    }
}

static void consume(struct e2b_run *run, size_t len)
{
    run->raw_at += len;
    if (run->raw_at < run->raw.len && run->raw_at < RAW_ENOUGH)
        return;
    run->raw.len -= run->raw_at;
    memmove(run->raw.data, run->raw.data + run->raw_at, run->raw.len);
    run->raw_at = 0;
}

/* One message, whatever it is about: 1, 0 if there is none now, -1 if it is over. */
static int take_one(struct e2b_run *run, struct e2b_event *ret_event)
{
    size_t left = run->raw.len - run->raw_at;
    struct e2b_envelope envelope;
    const char *wrong = NULL;

    if (run->is_over)
        return -1;
    ptrdiff_t used =
        left ? e2b_envelope_read(run->raw.data + run->raw_at, left, &envelope) : 0;
    if (used == 0 && !run->request.ended) {
        e2b_http_unpause(&run->request);
        return 0;
    }
    if (used == 0)
        take_close(run);
    else if (used < 0)
        wrong = "a message has a length or flags that none can have";
    else if (envelope.flags & E2B_ENVELOPE_END)
        take_trailer(run, &envelope);
    else
        wrong = take_message(run, &envelope, ret_event);
    if (used > 0)
        consume(run, (size_t)used);
    if (wrong) {
        e2b_http_abort(&run->request, CURLE_WEIRD_SERVER_REPLY);
        (void)e2b_reply_malformed(run->op, run->e2b->id, wrong, &run->failure);
        end_with(run);
    }
    return run->is_over ? -1 : 1;
}

int e2b_run_next(struct e2b_run *run, struct e2b_event *ret_event)
{
    int took;

    do {
        *ret_event = (struct e2b_event){0};
        took = take_one(run, ret_event);
    } while (took > 0 && ret_event->kind != E2B_EVENT_OUTPUT);
    return took;
}

void e2b_run_step(struct e2b_run *run, uint64_t until_ms)
{
    struct e2b_request *request = &run->request;
    uint64_t silent = request->moved_ms + SILENCE_MS;
    bool waits = request->multi && !request->is_paused;

    if (waits && silent < until_ms)
        until_ms = silent;
    if (e2b_script_watch_due(run) < until_ms)
        until_ms = e2b_script_watch_due(run);
    e2b_loop_step(&run->e2b->loop, until_ms);
    /* Only now is it known: nobody may have looked for a long time. */
    if (waits && request->multi && e2b_now_ms() >= request->moved_ms + SILENCE_MS)
        e2b_http_abort(request, CURLE_OPERATION_TIMEDOUT);
    e2b_input_feed(run);
    e2b_script_watch(run);
}

/* --- Its beginning and end --- */

int e2b_run_wait_start(struct e2b_run *run, uint64_t until_ms, struct cay_error *err)
{
    struct e2b_event event = {0};

    /* Nothing but a start comes first, so nothing is lost here. */
    while (!run->pid && !run->is_over) {
        if (take_one(run, &event) != 0)
            continue;
        if (e2b_now_ms() >= until_ms)
            return cay_fail(err, CAY_E_TIMEOUT, 0, run->op, run->e2b->id,
                            "the sandbox does not say whether the command has started",
                            "it may run: list the processes before you try again");
        e2b_run_step(run, until_ms);
    }
    e2b_input_feed(run);
    if (run->failure.code && err)
        *err = run->failure;
    return run->failure.code;
}

bool e2b_run_may_live(const struct e2b_run *run)
{
    return !run->has_end && !run->is_gone && !run->is_refused &&
           (run->pid || run->request.given);
}

bool e2b_run_has_news(const struct e2b_run *run)
{
    struct e2b_envelope envelope;
    size_t left = run->raw.len - run->raw_at;

    return run->is_over || run->request.ended ||
           (left && e2b_envelope_read(run->raw.data + run->raw_at, left, &envelope) != 0);
}

static void fill_in(const struct e2b_run *run, struct cay_exec_result *result)
{
    bool signalled = run->has_end ? run->end.is_signalled : true;

    result->signal = !signalled ? 0 : run->has_end ? run->end.signal : SIGKILL;
    result->exit_code = signalled ? 128 + result->signal : run->end.exit_code;
    result->cause = run->is_timed_out    ? CAY_CAUSE_TIMEOUT
                    : run->is_over_limit ? CAY_CAUSE_OUTPUT_LIMIT
                    : !run->has_end      ? CAY_CAUSE_GONE
                    : signalled          ? CAY_CAUSE_SIGNALLED
                                         : CAY_CAUSE_EXITED;
    if (run->is_timed_out)
        result->exit_code = 124;
}

int e2b_run_result(const struct e2b_run *run, struct cay_exec_result *ret_result,
                   struct cay_error *err)
{
    const struct cay_error *failure = &run->failure;
    bool is_ours = run->is_timed_out || run->is_over_limit; /* its end was our doing */

    if (failure->code && failure->code != CAY_E_EXEC_FAILED && !is_ours) {
        if (err)
            *err = *failure;
        return failure->code;
    }
    *ret_result = (struct cay_exec_result){
        .wall_us = (run->end_ms - run->begin_ms) * 1000,
    };
    if (failure->code == CAY_E_EXEC_FAILED) {
        ret_result->cause = CAY_CAUSE_NOT_STARTED;
        ret_result->exec_errno = failure->sys_errno;
        ret_result->exit_code = failure->sys_errno == ENOENT ? 127 : 126;
    } else {
        fill_in(run, ret_result);
    }
    return CAY_OK;
}
