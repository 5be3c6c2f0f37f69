/* SPDX-License-Identifier: Apache-2.0 */

/* How a handle on a process comes to be. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/process/process.h"
#include "sys/rights.h"

static const char start_op[] = "process.start";

enum {
    FLAGS = CAY_EXEC_FAIL_ON_LIMIT | CAY_EXEC_TTY | CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT |
            CAY_EXEC_PIPED | CAY_EXEC_LAST
};

/* --- Handles --- */

void process_free(void *cookie)
{
    struct process *process = cookie;

    if (!process)
        return;
    run_close(&process->run);
    if (process->run.socket >= 0)
        rights_let_go(process->run.socket, process->run.owner);
    const int fds[] = {process->events.memory, process->events.pids, process->epoll,
                       process->ready};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    tail_done(&process->tails[0]);
    tail_done(&process->tails[1]);
    free(process->piece);
    free(process);
}

/* With the connection that the handle has; that makes another if need be. */
static int new_process(struct native *native, uint64_t limit, const char *op,
                       struct process **ret_process, struct cay_error *err)
{
    AUTO_PROCESS process = malloc(sizeof *process);

    if (!process)
        return cay_fail_memory(err, op);
    memset(process, 0, offsetof(struct process, packet));
    memcpy(process->id, native->record.id, sizeof process->id);
    run_init(&process->run, -1, process->id, native->answer_ms, &process->packet);
    process->events.memory = process->events.pids = process->epoll = process->ready = -1;
    tail_init(&process->tails[0], (size_t)(limit ? limit : CAY_OUTPUT_DEFAULT));
    tail_init(&process->tails[1], process->tails[0].limit);
    process->piece = malloc(PROCESS_PIECE);
    if (!process->piece)
        return cay_fail_memory(err, op);
    int code = native_get_ready(native, err);
    if (code)
        return code;
    process->events.memory = TAKE_FD(native->events.memory);
    process->events.pids = TAKE_FD(native->events.pids);
    process->run.socket = TAKE_FD(native->socket);
    *ret_process = TAKE_PTR(process);
    return CAY_OK;
}

static bool watch(const struct process *process, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return fd < 0 || epoll_ctl(process->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int watch_all(struct process *process, const char *op, struct cay_error *err)
{
    process->epoll = epoll_create1(EPOLL_CLOEXEC);
    process->run.watch = process->epoll;
    process->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (process->epoll < 0 || process->ready < 0 || !watch(process, process->ready) ||
        !watch(process, process->run.socket) ||
        !watch(process, process->run.streams[0]) ||
        !watch(process, process->run.streams[1]))
        return cay_fail_errno(err, errno, op, "epoll");
    return CAY_OK;
}

void process_show_news(struct process *process)
{
    bool news = process->run.ended || process->run.has_output || process->tails[0].len ||
                process->tails[1].len;
    uint64_t count = 1;

    if (news && !process->is_ready)
        (void)!write(process->ready, &count, sizeof count);
    else if (!news && process->is_ready)
        (void)!read(process->ready, &count, sizeof count);
    process->is_ready = news;
}

/* --- Start and attach --- */

/* A terminal has no end to write to before it is there. */
static int type_input(struct run *run, const struct cay_exec_options *options,
                      struct cay_error *err)
{
    size_t len = options->input ? options->input_len : 0;
    bool stays_open = options->flags & CAY_EXEC_INPUT, all = true;
    uint32_t put = 0;
    int code = CAY_OK;

    if (!run->is_background) {
        if (!stays_open)
            run_set_input(run, options->input, len);
        else if (len)
            all = write(run->input, options->input, len) == (ssize_t)len;
        all = all && run->data_len == 0;
    } else {
        if (len)
            code = run_ask(run, start_op, MESSAGE_WRITE, options->input,
                           len < MESSAGE_MAX ? len : MESSAGE_MAX, MESSAGE_WRITTEN, &put,
                           sizeof put, err);
        all = put == len;
        if (!code && all && !stays_open)
            code = run_ask(run, start_op, MESSAGE_CLOSE_INPUT, NULL, 0, MESSAGE_DONE,
                           NULL, 0, err);
    }
    if (code || all)
        return code;
    return cay_fail(err, CAY_E_LIMIT, 0, start_op, "input",
                    "that is more than a terminal takes at once",
                    "start with CAY_EXEC_INPUT and write it in pieces");
}

static int send_request(struct process *process, const struct cay_exec_options *options,
                        struct cay_error *err)
{
    struct run *run = &process->run;
    struct wire_exec exec = {.options = options,
                             .mark = run_mark(&process->events, 0),
                             .fds = {-1, -1, -1, -1}};
    int code = run_open_stdio(run, false, &exec, err);

    if (!code)
        code = wire_exec(run->socket, run->id, &exec, err);
    wire_close_fds(exec.fds);
    return code;
}

int process_check_start(const struct cay_exec_options *given,
                        struct cay_exec_options *ret_options, struct cay_error *err)
{
    int code = cay_take_struct(ret_options, sizeof *ret_options, given, start_op, err);
    const struct cay_exec_options *options = ret_options;

    if (!code)
        code = native_check_exec(options, start_op, FLAGS, err);
    if (code)
        return code;
    bool is_background = options->flags & CAY_EXEC_BACKGROUND;
    if (options->on_output)
        return cay_fail(err, CAY_E_INVALID, 0, start_op, "on_output",
                        "a process that is not waited for calls nobody",
                        "read its output with cay_process_read()");
    if (options->flags & CAY_EXEC_PIPED && !is_background)
        return cay_fail(err, CAY_E_INVALID, 0, start_op, "flags",
                        "a foreground command has pipes as it is",
                        "CAY_EXEC_PIPED goes with CAY_EXEC_BACKGROUND");
    if (options->flags & CAY_EXEC_LAST && is_background)
        return cay_fail(err, CAY_E_INVALID, 0, start_op, "flags",
                        "nobody would learn of its end, which is that of the sandbox",
                        "CAY_EXEC_LAST goes without CAY_EXEC_BACKGROUND");
    return CAY_OK;
}

int process_begin(struct native *native, const struct cay_exec_options *options,
                  struct process **ret_process, struct cay_error *err)
{
    AUTO_PROCESS process = NULL;
    int code = new_process(native, options->output_limit, start_op, &process, err);

    if (code)
        return code;
    process->run.is_background = options->flags & CAY_EXEC_BACKGROUND;
    process->run.has_tty = options->flags & CAY_EXEC_TTY;
    process->fails_on_limit = options->flags & CAY_EXEC_FAIL_ON_LIMIT;
    code = send_request(process, options, err);
    if (!code)
        *ret_process = TAKE_PTR(process);
    return code;
}

/* Until it has executed. */
int process_see_start(struct process *process, const struct cay_exec_options *options,
                      struct cay_error *err)
{
    struct run *run = &process->run;

    int code = run_wait_start(run, start_op, err);
    if (!code && run->has_tty)
        code = type_input(run, options, err);
    if (!code)
        code = watch_all(process, start_op, err);
    if (code)
        return code;
    if (run->is_background)
        run_ask_for_more(run);
    process_show_news(process);
    return CAY_OK;
}

int process_start(void *cookie, const struct cay_exec_options *options,
                  void **ret_process, struct cay_error *err)
{
    struct cay_exec_options known;
    AUTO_PROCESS process = NULL;

    int code = process_check_start(options, &known, err);
    if (!code)
        code = process_begin(cookie, &known, &process, err);
    if (!code)
        code = process_see_start(process, &known, err);
    if (!code)
        *ret_process = TAKE_PTR(process);
    return code;
}

int process_attach(void *cookie, const char *which, void **ret_process,
                   struct cay_error *err)
{
    static const char op[] = "process.attach";
    AUTO_PROCESS process = NULL;
    size_t len = strlen(which);

    if (len == 0 || len >= TAG_MAX)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, which,
                        "no background command has this number or tag",
                        "list the processes to see which there are");
    int code = new_process(cookie, 0, op, &process, err);
    if (code)
        return code;
    struct run *run = &process->run;
    run->is_background = true;
    int error = packet_send(run->socket, MESSAGE_ATTACH, which, len, NULL, 0);
    code = error ? wire_fail_send(run->socket, op, run->id, -error, err)
                 : run_wait_start(run, op, err);
    if (!code)
        code = watch_all(process, op, err);
    if (code)
        return code;
    run->has_tty = run->begin.flags & EXEC_TTY;
    run_ask_for_more(run);
    process->is_new = true;
    process_show_news(process);
    *ret_process = TAKE_PTR(process);
    return CAY_OK;
}
