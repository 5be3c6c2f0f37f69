/* SPDX-License-Identifier: Apache-2.0 */
#include "native/process/process.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "sandbox/streams.h"
#include "sys/sigpipe.h"

enum { ROWS = 24, COLUMNS = 80, CATCH_UP = 2 * OUTPUT_KEPT / MESSAGE_MAX + 8 };

static int pid_of(const void *cookie)
{
    return ((const struct process *)cookie)->run.begin.pid;
}

static int fd_of(const void *cookie)
{
    return ((const struct process *)cookie)->epoll;
}

/* --- Its output and end --- */

/* Answers come in order, so what was kept and is under way is here before this one. */
static int skip(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    struct run *run = &process->run;

    if (!run->is_background)
        return cay_fail(err, CAY_E_INVALID, 0, "process.skip", NULL,
                        "of a foreground command nothing is kept",
                        "start it with CAY_EXEC_BACKGROUND");
    int code =
        run_ask(run, "process.skip", MESSAGE_SKIP, NULL, 0, MESSAGE_DONE, NULL, 0, err);
    for (int i = 0; i < 2; i++) {
        process->tails[i].len = process->tails[i].start = 0;
        process->tails[i].dropped = 0;
    }
    if (!code && run->has_output) {
        run->has_output = false;
        run_ask_for_more(run);
    }
    process_show_news(process);
    return code;
}

static int take_in(struct process *process, int stream, size_t len, uint64_t dropped)
{
    struct tail *tail = &process->tails[stream - 1];

    if (dropped) { /* what is kept has no gaps */
        tail->dropped += tail->len + dropped;
        tail->len = tail->start = 0;
    }
    if (!tail_add(tail, process->piece, len))
        return -ENOMEM;
    if (tail->dropped && process->fails_on_limit && !process->over_limit) {
        process->over_limit = true;
        run_kill(&process->run);
    }
    return 0;
}

/* What is there now, or much of it; of one that has ended all.  1 when there will not be
 * any more, 0, or a negative errno. */
static int take_some(struct process *process)
{
    for (int i = 0; i < RUN_PIECES || process->run.ended; i++) {
        int stream;
        size_t len;
        uint64_t dropped;
        int error = run_take(&process->run, &stream, process->piece, PROCESS_PIECE, &len,
                             &dropped);
        if (error || stream <= 0)
            return error ? error : stream < 0;
        error = take_in(process, stream, len, dropped);
        if (error)
            return error;
    }
    return 0;
}

/* A background command's output is on its way from init.  An answer to something else
 * comes after all that init had to tell, so a few rounds fetch everything that was kept;
 * who needs more than that still runs. */
static int catch_up(struct process *process)
{
    uint64_t end = clock_ms() + (uint64_t)process->run.answer_ms;
    int over = 0;

    for (int i = 0; i < CATCH_UP && process->run.is_background && !over; i++) {
        if (clock_ms() >= end)
            break;
        (void)run_ask(&process->run, "process.wait", MESSAGE_PING, NULL, 0, MESSAGE_PONG,
                      NULL, 0, NULL);
        if (!process->run.has_output && !process->run.ended)
            break;
        over = take_some(process);
    }
    return over;
}

static int read_some(void *cookie, int *ret_stream, void *data, size_t room,
                     size_t *ret_len, uint64_t *ret_dropped, struct cay_error *err)
{
    struct process *process = cookie;
    uint64_t dropped = 0;
    int error = 0;

    if (room == 0)
        return streams_fail_room(err);
    *ret_stream = 0;
    if (process->is_new && catch_up(process) >= 0) /* what was kept is there now */
        process->is_new = false;
    if (!streams_read(process->tails, ret_stream, data, room, ret_len, &dropped))
        error = run_take(&process->run, ret_stream, data, room, ret_len, &dropped);
    if (ret_dropped)
        *ret_dropped = dropped;
    process_show_news(process);
    return error ? cay_fail_errno(err, -error, "process.read", NULL) : CAY_OK;
}

/* 1 when it is over, 0 if it still runs, or a negative errno. */
static int wait_until(struct process *process, uint64_t timeout_ms)
{
    const struct run *run = &process->run;
    uint64_t begin = clock_ms();

    for (;;) {
        int over = take_some(process);
        if (over)
            return over;
        uint64_t gone = clock_ms() - begin;
        if (gone >= timeout_ms)
            return catch_up(process);
        uint64_t left = timeout_ms - gone;
        struct pollfd fds[] = {
            {.fd = run->socket, .events = POLLIN},
            {.fd = run->streams[0], .events = POLLIN},
            {.fd = run->streams[1], .events = POLLIN},
        };
        if (poll(fds, 3, left > INT_MAX ? -1 : (int)left) < 0 && errno != EINTR)
            return -errno;
    }
}

static int wait_for(void *cookie, uint64_t timeout_ms, struct cay_exec_result *ret_result,
                    struct cay_error *err)
{
    static const char op[] = "process.wait";
    struct process *process = cookie;
    struct run *run = &process->run;
    struct cay_exec_result result = {0};

    int over = wait_until(process, timeout_ms);
    process_show_news(process);
    if (over < 0)
        return cay_fail_errno(err, -over, op, NULL);
    if (over == 0)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, NULL, "the command still runs",
                        "wait longer, or kill it");
    int code = run_result(run, &process->events, process->over_limit, &result, err);
    if (!code)
        code = streams_take(process->tails, &result, op, err);
    if (code) {
        cay_exec_done(&result);
        return code;
    }
    if (run->is_background && !process->fetched)
        (void)packet_send(run->socket, MESSAGE_FORGET, NULL, 0, NULL, 0);
    process->fetched = true;
    process_show_news(process);
    *ret_result = result;
    return CAY_OK;
}

/* --- Its input and terminal --- */

static int write_here(const struct run *run, const void *data, size_t len,
                      size_t *ret_written, struct cay_error *err)
{
    sigset_t before;

    if (run->input < 0)
        return streams_fail_closed(err);
    sigpipe_block(&before);
    ssize_t put = write(run->input, data, len);
    int error = put < 0 ? errno : 0;
    sigpipe_restore(&before);
    if (error && error != EAGAIN && error != EINTR)
        return cay_fail(err, CAY_E_IO, error, "process.write", NULL,
                        "nothing reads the command's input any more",
                        "see whether it has ended");
    *ret_written = put > 0 ? (size_t)put : 0;
    return CAY_OK;
}

static int write_some(void *cookie, const void *data, size_t len, size_t *ret_written,
                      struct cay_error *err)
{
    struct process *process = cookie;
    struct run *run = &process->run;
    size_t done = 0;
    int code = CAY_OK;

    if (!run->is_background)
        return write_here(run, data, len, ret_written, err);
    while (!code && done < len) {
        uint32_t put = 0;
        size_t part = len - done < MESSAGE_MAX ? len - done : MESSAGE_MAX;
        code = run_ask(run, "process.write", MESSAGE_WRITE, (const char *)data + done,
                       part, MESSAGE_WRITTEN, &put, sizeof put, err);
        if (!code && put > part)
            return wire_error(NULL, 0, err);
        done += put;
        if (put < part)
            break;
    }
    process_show_news(process);
    if (code && !done)
        return code;
    *ret_written = done;
    return CAY_OK;
}

static int close_input(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    int code = CAY_OK;

    if (process->run.is_background)
        code = run_ask(&process->run, "process.close-input", MESSAGE_CLOSE_INPUT, NULL, 0,
                       MESSAGE_DONE, NULL, 0, err);
    else
        run_set_input(&process->run, NULL, 0);
    process_show_news(process);
    return code;
}

static int resize(void *cookie, uint16_t rows, uint16_t columns, struct cay_error *err)
{
    static const char op[] = "process.resize";
    struct process *process = cookie;
    struct run *run = &process->run;
    const struct winsize size = {.ws_row = rows ? rows : ROWS,
                                 .ws_col = columns ? columns : COLUMNS};
    const struct resize_request request = {rows, columns};

    if (run->is_background) {
        int code = run_ask(run, op, MESSAGE_RESIZE, &request, sizeof request,
                           MESSAGE_DONE, NULL, 0, err);
        process_show_news(process);
        return code;
    }
    if (!run->has_tty || ioctl(run->streams[0], TIOCSWINSZ, &size) != 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "the command has no terminal",
                        "start it with CAY_EXEC_TTY");
    return CAY_OK;
}

/* --- Signals --- */

static int send_signal(void *cookie, int number, struct cay_error *err)
{
    struct process *process = cookie;
    const int32_t value = number;
    int code = run_ask(&process->run, "process.signal", MESSAGE_SIGNAL, &value,
                       sizeof value, MESSAGE_DONE, NULL, 0, err);

    process_show_news(process);
    return code;
}

static int kill_tree(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    struct cay_error error;
    const uint32_t answer = 1;

    process->run.killed = true;
    int code = run_ask(&process->run, "process.kill", MESSAGE_KILL, &answer,
                       sizeof answer, MESSAGE_DONE, NULL, 0, &error);
    process_show_news(process);
    if (!code || process->run.gone) /* with the sandbox everything in it is gone */
        return CAY_OK;
    if (err)
        *err = error;
    return code;
}

const struct cay_process_backend native_processes = {
    .size = sizeof native_processes,
    .start = process_start,
    .attach = process_attach,
    .list = process_list,
    .free = process_free,
    .pid = pid_of,
    .fd = fd_of,
    .read = read_some,
    .skip = skip,
    .write = write_some,
    .close_input = close_input,
    .resize = resize,
    .signal = send_signal,
    .kill = kill_tree,
    .wait = wait_for,
};
