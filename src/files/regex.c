/* SPDX-License-Identifier: Apache-2.0 */
#include "files/regex.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/clock.h"
#include "base/error.h"
#include "files/walk.h"

enum {
    PATTERN_MAX = 64 << 10,
    STEPS_MAX = 2000000, /* of one match: some tens of milliseconds */
    HEAP_KIB_MAX = 16 << 10,
    STACK_START = 32 << 10,
    STACK_MAX = 1 << 20,
    WORKER_MEMORY = 64 << 20,
    WORKER_SECONDS = 3600,
    POLL_MS = 1000
};

static int fail_syntax(const char *op, const char *text, int number, size_t offset,
                       struct cay_error *err)
{
    char reason[256], message[384];

    pcre2_get_error_message(number, (PCRE2_UCHAR *)reason, sizeof reason);
    snprintf(message, sizeof message, "invalid regular expression at byte %zu: %s",
             offset, reason);
    return cay_fail(err, CAY_E_INVALID, 0, op, text, message,
                    "correct it, or search for a fixed text");
}

static pcre2_code *compile(const char *text, unsigned flags, int *ret_number,
                           size_t *ret_offset)
{
    uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);

    *ret_number = PCRE2_ERROR_NOMEMORY;
    if (!context)
        return NULL;
    options |= flags & REGEX_FIXED ? PCRE2_LITERAL : PCRE2_NEVER_BACKSLASH_C;
    options |= flags & REGEX_IGNORE_CASE ? PCRE2_CASELESS : 0;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(context, PATTERN_MAX);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, strlen(text), options, ret_number,
                                     ret_offset, context);
    pcre2_compile_context_free(context);
    return code;
}

int regex_compile(const char *op, const char *text, unsigned flags,
                  struct regex *ret_regex, struct cay_error *err)
{
    size_t offset = 0;
    int number;

    *ret_regex = (struct regex){.code = compile(text, flags, &number, &offset)};
    if (!ret_regex->code)
        return number == PCRE2_ERROR_NOMEMORY
                   ? cay_fail_memory(err, op)
                   : fail_syntax(op, text, number, offset, err);
    ret_regex->data = pcre2_match_data_create(1, NULL);
    ret_regex->context = pcre2_match_context_create(NULL);
    if (!ret_regex->data || !ret_regex->context)
        return cay_fail_memory(err, op);
    pcre2_set_match_limit(ret_regex->context, STEPS_MAX);
    pcre2_set_heap_limit(ret_regex->context, HEAP_KIB_MAX);
    /* Without JIT, where no memory may be executable, matching is slower. */
    if (pcre2_jit_compile(ret_regex->code, PCRE2_JIT_COMPLETE) == 0) {
        ret_regex->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, NULL);
        if (ret_regex->stack)
            pcre2_jit_stack_assign(ret_regex->context, NULL, ret_regex->stack);
    }
    return CAY_OK;
}

void regex_done(struct regex *regex)
{
    pcre2_jit_stack_free(regex->stack);
    pcre2_match_context_free(regex->context);
    pcre2_match_data_free(regex->data);
    pcre2_code_free(regex->code);
    *regex = (struct regex){0};
}

static int fail_match(int code, const char *op, struct cay_error *err)
{
    if (code == CAY_E_NO_MEMORY)
        return cay_fail_memory(err, op);
    return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                    "the regular expression takes too many steps on a line",
                    "use a simpler one: avoid nested repeats such as (a+)+");
}

int regex_match(const struct regex *regex, const char *op, const struct regex_text *text,
                struct regex_span *ret_span, struct cay_error *err)
{
    int found =
        pcre2_match(regex->code, (PCRE2_SPTR)text->bytes, text->len, text->start,
                    text->goes_on ? PCRE2_NOTEOL : 0, regex->data, regex->context);

    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0)
        return fail_match(found == PCRE2_ERROR_NOMEMORY ? CAY_E_NO_MEMORY : CAY_E_LIMIT,
                          op, err);
    const size_t *spans = pcre2_get_ovector_pointer(regex->data);
    /* "\K" in a lookahead can put the start after the end, in a lookbehind before what is
     * searched. */
    ret_span->end = spans[1] > text->start ? spans[1] : text->start;
    ret_span->start = spans[0] < ret_span->end ? spans[0] : ret_span->end;
    if (ret_span->start < text->start)
        ret_span->start = text->start;
    return 1;
}

/* --- Matching in a worker process ------------------------------------------------------
 */

struct reply {
    int found; /* as by regex_match() */
    struct regex_span span;
};

/* In the worker. */
static void serve(void *cookie)
{
    const struct regex *regex = cookie;
    struct regex_text text;

    while (read(WORKER_CHANNEL, &text, sizeof text) == sizeof text) {
        struct reply reply = {0};
        reply.found = regex_match(regex, "", &text, &reply.span, NULL);
        if (write(WORKER_CHANNEL, &reply, sizeof reply) != sizeof reply)
            return;
    }
}

static bool is_running(struct regex_worker *self, const struct regex *regex,
                       const char *op)
{
    struct regex copy = *regex;
    const struct worker_job job = {.run = serve,
                                   .cookie = &copy,
                                   .input = -1,
                                   .memory = WORKER_MEMORY,
                                   .cpu_seconds = WORKER_SECONDS};

    if (self->worker.pid < 0 && !self->is_refused)
        self->is_refused = worker_start(op, &job, &self->worker, NULL) != CAY_OK;
    return !self->is_refused;
}

static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = clock_ns();
    uint64_t left = deadline_ns > now ? (deadline_ns - now) / 1000000 + 1 : 0;

    return deadline_ns && left < POLL_MS ? (int)left : POLL_MS;
}

/* Until a reply comes, or the worker dies. */
static int wait_for(const struct worker *worker, const char *op, uint64_t deadline_ns,
                    struct cay_error *err)
{
    struct pollfd channel = {.fd = worker->channel, .events = POLLIN};

    for (;;) {
        TRY(walk_check_deadline(op, deadline_ns, err));
        if (poll(&channel, 1, left_ms(deadline_ns)) > 0)
            return CAY_OK;
    }
}

static bool is_possible(const struct reply *reply, const struct regex_text *text)
{
    return reply->found <= 0 ||
           (reply->found == 1 && reply->span.start >= text->start &&
            reply->span.start <= reply->span.end && reply->span.end <= text->len);
}

int regex_worker_match(struct regex_worker *self, const struct regex *regex,
                       const char *op, const struct regex_text *text,
                       uint64_t deadline_ns, struct regex_span *ret_span,
                       struct cay_error *err)
{
    struct reply reply;
    ssize_t len;

    if (!is_running(self, regex, op))
        return regex_match(regex, op, text, ret_span, err);
    bool is_sent =
        send(self->worker.channel, text, sizeof *text, MSG_NOSIGNAL) == sizeof *text;
    TRY(is_sent ? wait_for(&self->worker, op, deadline_ns, err) : CAY_OK);
    do
        len = read(self->worker.channel, &reply, sizeof reply);
    while (len < 0 && errno == EINTR);
    if (len != sizeof reply || !is_possible(&reply, text))
        return fail_match(CAY_E_LIMIT, op, err);
    *ret_span = reply.span;
    return reply.found < 0 ? fail_match(reply.found, op, err) : reply.found;
}

void regex_worker_done(struct regex_worker *self)
{
    worker_end(&self->worker);
}
