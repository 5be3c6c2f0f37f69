/* SPDX-License-Identifier: Apache-2.0 */
#include "files/regex-aside.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "files/walk.h"

enum { MEMORY = 64 << 20, CPU_SECONDS = 3600, LOOK_MS = 1000 };

struct answer {
    int found; /* as by regex_match() */
    struct regex_span span;
};

/* In the process of its own. */
static void serve(void *cookie)
{
    const struct regex *regex = cookie;
    struct regex_text text;

    while (read(WORKER_CHANNEL, &text, sizeof text) == sizeof text) {
        struct answer answer = {0};
        answer.found = regex_match(regex, "", &text, &answer.span, NULL);
        if (write(WORKER_CHANNEL, &answer, sizeof answer) != sizeof answer)
            return;
    }
}

static bool is_running(struct regex_aside *aside, const struct regex *regex,
                       const char *op)
{
    struct regex copy = *regex;
    const struct worker_job job = {.run = serve,
                                   .cookie = &copy,
                                   .input = -1,
                                   .memory = MEMORY,
                                   .cpu_seconds = CPU_SECONDS};

    if (aside->worker.pid < 0 && !aside->is_refused)
        aside->is_refused = worker_start(op, &job, &aside->worker, NULL) != CAY_OK;
    return !aside->is_refused;
}

static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = clock_ns();
    uint64_t left = deadline_ns > now ? (deadline_ns - now) / 1000000 + 1 : 0;

    return deadline_ns && left < LOOK_MS ? (int)left : LOOK_MS;
}

/* Until there is an answer, or nobody left to give one. */
static int wait_for(const struct worker *worker, const char *op, uint64_t deadline_ns,
                    struct cay_error *err)
{
    struct pollfd channel = {.fd = worker->channel, .events = POLLIN};

    for (;;) {
        int code = walk_check_deadline(op, deadline_ns, err);
        if (code || poll(&channel, 1, left_ms(deadline_ns)) > 0)
            return code;
    }
}

static bool is_possible(const struct answer *answer, const struct regex_text *text)
{
    return answer->found <= 0 ||
           (answer->found == 1 && answer->span.start >= text->start &&
            answer->span.start <= answer->span.end && answer->span.end <= text->len);
}

int regex_aside_match(struct regex_aside *aside, const struct regex *regex,
                      const char *op, const struct regex_text *text, uint64_t deadline_ns,
                      struct regex_span *ret_span, struct cay_error *err)
{
    struct answer answer;
    ssize_t len;

    if (!is_running(aside, regex, op))
        return regex_match(regex, op, text, ret_span, err);
    bool is_sent =
        send(aside->worker.channel, text, sizeof *text, MSG_NOSIGNAL) == sizeof *text;
    int code = is_sent ? wait_for(&aside->worker, op, deadline_ns, err) : CAY_OK;
    if (code)
        return code;
    do
        len = read(aside->worker.channel, &answer, sizeof answer);
    while (len < 0 && errno == EINTR);
    if (len != sizeof answer || !is_possible(&answer, text))
        return regex_fail(CAY_E_LIMIT, op, err);
    *ret_span = answer.span;
    return answer.found < 0 ? regex_fail(answer.found, op, err) : answer.found;
}

void regex_aside_done(struct regex_aside *aside)
{
    worker_end(&aside->worker);
}
