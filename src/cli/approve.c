/* SPDX-License-Identifier: Apache-2.0 */
/* Asking on the terminal: the user may reply there, or by cay approve. */
#include "cli/approve.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/output.h"
#include "cli/signals.h"

static const char op[] = "cli.approve";

enum { LOOK_MS = 200, SHORT_ID = 12 };

void approve_waits(const char *id, const char *summary)
{
    fputs("cay: waits for approval: ", stderr);
    show_name(stderr, summary);
    fprintf(stderr, " (cay approve show %.*s, cay approve allow %.*s)\n", SHORT_ID, id,
            SHORT_ID, id);
}

/* Drops what was typed before the question appeared: it was not meant as its answer. */
static void prompt(void)
{
    (void)tcflush(STDIN_FILENO, TCIFLUSH);
    fputs("cay: allow it? [y]es, [n]o, [s]how, or [r]emember: ", stderr);
    (void)fflush(stderr);
}

void approve_show_content(FILE *file, const char *content, size_t len)
{
    for (size_t at = 0; at < len;) {
        const char *end = memchr(content + at, '\n', len - at);
        size_t line = end ? (size_t)(end - content) - at : len - at;
        show_text(file, content + at, line, SIZE_MAX);
        fputc('\n', file);
        at += line + 1;
    }
}

static void show(const char *id)
{
    AUTO_FREE struct cay_pending *request = calloc(1, sizeof *request);
    AUTO_FREE char *content = NULL;

    if (request && cay_pending_find(id, request, &content, NULL) == CAY_OK)
        approve_show_content(stderr, content, request->content_len);
    prompt();
}

/* What the user typed; a reply that came from elsewhere meanwhile stays. */
static void take_answer(const char *id)
{
    char line[64];
    ssize_t got = read(STDIN_FILENO, line, sizeof line);
    struct cay_error err = {0};
    enum cay_verdict verdict;

    if (got <= 0) {
        verdict = CAY_VERDICT_DENY;
    } else if (line[0] == 's') {
        show(id);
        return;
    } else if (line[0] == 'y' || line[0] == 'n' || line[0] == 'r') {
        verdict = line[0] == 'y'   ? CAY_VERDICT_APPROVE
                  : line[0] == 'r' ? CAY_VERDICT_REMEMBER
                                   : CAY_VERDICT_DENY;
    } else {
        prompt();
        return;
    }
    int code = cay_pending_decide(id, verdict, "denied on the terminal", &err);
    if (code && code != CAY_E_EXISTS && code != CAY_E_NOT_FOUND)
        fprintf(stderr, "cay: %s\n", err.message);
}

/* CAY_E_CANCELLED: a signal ends cay. */
static int wait_a_moment(const char *id, bool asks, struct cay_error *err)
{
    const struct timespec step = {.tv_nsec = LOOK_MS * 1000000L};
    struct pollfd input = {.fd = asks ? STDIN_FILENO : -1, .events = POLLIN};

    if (ppoll(&input, 1, &step, signals_mask()) > 0)
        take_answer(id);
    int signal = signals_take();
    return signal ? cay_fail(err, CAY_E_CANCELLED, 0, op, id,
                             "interrupted while it waited for approval",
                             "the request stays: cay approve list lists it")
                  : CAY_OK;
}

int approve_start(cay_sandbox *sandbox, const struct cay_exec_options *options,
                  cay_process **ret_process, struct cay_error *err)
{
    bool asks = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
    AUTO_FREE struct cay_pending *request = calloc(1, sizeof *request);
    char id[CAY_PENDING_ID_MAX];
    enum cay_decision decision;

    if (!request)
        return cay_fail_memory(err, op);
    TRY(cay_sandbox_request_command(sandbox, options, id, &decision, err));
    if (decision == CAY_DECISION_NONE &&
        cay_pending_find(id, request, NULL, NULL) == CAY_OK) {
        approve_waits(id, request->summary);
        if (asks)
            prompt();
    }
    for (;;) {
        TRY(cay_process_start_approved(sandbox, options, id, ret_process, err));
        if (*ret_process)
            return CAY_OK;
        TRY(wait_a_moment(id, asks, err));
    }
}
