/* SPDX-License-Identifier: Apache-2.0 */

/* A process that its caller drives.  Nothing happens between calls; what the caller polls
 * is an epoll set with libcurl's sockets, an eventfd for what is at hand already, and a
 * timer for what is due, and each call ends with show_news(), which sets the latter two.
 *
 * Output comes in pieces from the stream of a run (command.c), or of a command in the
 * background from the files that it is kept in (kept.c).  A wait gathers them in the
 * tails, and who reads gets those first. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/kept.h"
#include "sandbox/streams.h"

enum {
    INPUT_MAX = 256 << 10, /* taken at a time */
    FLAGS = CAY_EXEC_FAIL_ON_LIMIT | CAY_EXEC_TTY | CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT
};

struct process {
    struct e2b *e2b; /* its own: it may outlive the sandbox's handle */
    struct e2b_command command;
    struct tail tails[2];
    struct e2b_event piece; /* output that is read in parts, from piece_at on */
    size_t piece_at;
    struct output_files kept;
    int epoll, ready, alarm;
    bool is_ready, is_background, fails_on_limit;
};

/* --- Handles --- */

/* A foreground one ends with its handle; the input of one in the background gets there.
 */
static void let_go(struct process *process)
{
    struct e2b_command *command = &process->command;
    uint64_t until = clock_ms() + E2B_KILL_MS;

    if (!process->is_background && e2b_command_may_live(command))
        (void)e2b_command_kill(command, NULL);
    while (process->is_background && e2b_input_pending(&command->input) &&
           !command->is_over && !command->request.ended && clock_ms() < until)
        e2b_command_step(command, until);
}

static void process_free(void *cookie)
{
    struct process *process = cookie;

    if (!process)
        return;
    if (process->command.e2b) {
        let_go(process);
        e2b_command_done(&process->command);
    }
    const int fds[] = {process->epoll, process->ready, process->alarm};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    tail_done(&process->tails[0]);
    tail_done(&process->tails[1]);
    e2b_event_done(&process->piece);
    e2b_free(process->e2b);
    free(process);
}

static void auto_process(struct process **process)
{
    process_free(*process);
}

#define AUTO_PROCESS __attribute__((cleanup(auto_process))) struct process *

static bool watch(const struct process *process, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return fd >= 0 && epoll_ctl(process->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int new_process(const struct e2b *e2b, uint64_t limit, const char *op,
                       struct process **ret_process, struct cay_error *err)
{
    AUTO_PROCESS process = calloc(1, sizeof *process);

    if (!process)
        return cay_fail_memory(err, op);
    process->epoll = process->ready = process->alarm = -1;
    tail_init(&process->tails[0], (size_t)(limit ? limit : CAY_OUTPUT_DEFAULT));
    tail_init(&process->tails[1], process->tails[0].limit);
    int code = e2b_dup(e2b, op, &process->e2b, err);
    if (code)
        return code;
    process->epoll = epoll_create1(EPOLL_CLOEXEC);
    process->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    process->alarm = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (process->epoll < 0 || !watch(process, process->ready) ||
        !watch(process, process->alarm) || !watch(process, process->e2b->http.epoll))
        return cay_fail_errno(err, errno, op, "epoll");
    *ret_process = TAKE_PTR(process);
    return CAY_OK;
}

/* The caller is to come back when time is over, or for a look at kept output. */
static void set_alarm(const struct process *process)
{
    const struct e2b_command *command = &process->command;
    uint64_t when =
        command->is_over || command->is_timed_out ? UINT64_MAX : command->deadline_ms;
    struct itimerspec spec = {0};

    if (process->kept.is_there && process->kept.next_ms < when)
        when = process->kept.next_ms;
    if (e2b_script_watch_due(command) < when)
        when = e2b_script_watch_due(command);
    if (when != UINT64_MAX) {
        spec.it_value.tv_sec = (time_t)(when / 1000);
        spec.it_value.tv_nsec = (long)(when % 1000 * 1000000 + 1);
    }
    (void)timerfd_settime(process->alarm, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* The caller is to come back for what no descriptor of libcurl's shows. */
static void show_news(struct process *process)
{
    bool news = process->piece.data || process->tails[0].len || process->tails[1].len ||
                e2b_command_has_news(&process->command);
    uint64_t count = 1;

    if (news && !process->is_ready)
        (void)!write(process->ready, &count, sizeof count);
    else if (!news && process->is_ready)
        (void)!read(process->ready, &count, sizeof count);
    process->is_ready = news;
    set_alarm(process);
}

/* --- Start and attach --- */

/* For a while, so that what is asked usually has happened when the call returns. */
static void drive_input(struct process *process)
{
    struct e2b_command *command = &process->command;
    uint64_t until = clock_ms() + E2B_PATIENCE_MS;

    e2b_input_feed(command);
    while (e2b_input_pending(&command->input) && !command->request.ended &&
           clock_ms() < until)
        e2b_command_step(command, until);
}

static int check_start(const struct cay_exec_options *options, const char *op,
                       struct cay_error *err)
{
    int code = e2b_start_check(options, op, FLAGS, err);

    if (!code && options->on_output)
        code = cay_fail(err, CAY_E_INVALID, 0, op, "on_output",
                        "a process that is not waited for calls nobody",
                        "read its output with cay_process_read()");
    return code;
}

/* The daemon would not mind. */
static int check_tag(struct e2b *e2b, const char *tag, const char *op,
                     struct cay_error *err)
{
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0;

    int code = tag ? e2b_process_list(e2b, &infos, &count, err) : CAY_OK;
    for (size_t i = 0; !code && i < count; i++)
        if (strcmp(infos[i].tag, tag) == 0)
            return cay_fail(err, CAY_E_EXISTS, 0, op, tag,
                            "a command that runs has this tag", "choose another one");
    return code;
}

/* The caller's bytes are the caller's. */
static int own_input(struct process *process, struct cay_exec_options *options,
                     struct cay_error *err)
{
    struct e2b_input *input = &process->command.input;

    if (!options->input)
        return CAY_OK;
    input->own = malloc(options->input_len + 1);
    if (!input->own)
        return cay_fail_memory(err, "process.start");
    memcpy(input->own, options->input, options->input_len);
    options->input = input->own;
    return CAY_OK;
}

static int start(void *cookie, const struct cay_exec_options *options, void **ret_process,
                 struct cay_error *err)
{
    static const char op[] = "process.start";
    struct cay_exec_options known;
    AUTO_PROCESS process = NULL;

    int code = cay_take_struct(&known, sizeof known, options, op, err);
    if (!code)
        code = check_start(&known, op, err);
    if (!code)
        code = check_tag(cookie, known.tag, op, err);
    if (!code)
        code = new_process(cookie, known.output_limit, op, &process, err);
    if (code)
        return code;
    e2b_keep_alive(process->e2b, UINT64_MAX);
    e2b_command_init(&process->command, process->e2b, op);
    process->fails_on_limit = known.flags & CAY_EXEC_FAIL_ON_LIMIT;
    code = own_input(process, &known, err);
    if (!code)
        code =
            e2b_command_start(&process->command, &known,
                              known.flags & CAY_EXEC_BACKGROUND ? 0 : E2B_GRACE_MS, err);
    if (!code)
        code = e2b_command_wait_start(&process->command, clock_ms() + E2B_REPLY_MS, err);
    if (code) /* not in the background: it ends if it did start */
        return code;
    process->is_background = known.flags & CAY_EXEC_BACKGROUND;
    if (process->command.has_output_files)
        output_files_init(&process->kept, process->command.pid);
    drive_input(process);
    show_news(process);
    *ret_process = TAKE_PTR(process);
    return CAY_OK;
}

static int attach(void *cookie, const char *which, void **ret_process,
                  struct cay_error *err)
{
    static const char op[] = "process.attach";
    AUTO_PROCESS process = NULL;

    if (!*which || strlen(which) >= 64 ||
        strspn(which, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                      "-_.") != strlen(which))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, which,
                        "no background command has this number or tag",
                        "list the processes to see which there are");
    int code = new_process(cookie, 0, op, &process, err);
    if (code)
        return code;
    process->is_background = true;
    e2b_command_init(&process->command, process->e2b, op);
    process->command.input.is_open = true;
    code = e2b_command_attach(&process->command, which, err);
    if (!code)
        code = e2b_command_wait_start(&process->command, clock_ms() + E2B_REPLY_MS, err);
    if (code)
        return code;
    output_files_find(process->e2b, &process->kept, process->command.pid);
    process->command.has_output_files = process->kept.is_there;
    show_news(process);
    *ret_process = TAKE_PTR(process);
    return CAY_OK;
}

static int pid_of(const void *cookie)
{
    return ((const struct process *)cookie)->command.pid;
}

static int fd_of(const void *cookie)
{
    return ((const struct process *)cookie)->epoll;
}

/* --- Its output and end --- */

static void keep_time(struct process *process)
{
    struct e2b_command *command = &process->command;

    e2b_keep_alive(process->e2b, command->deadline_ms);
    if (!command->is_over && clock_ms() >= command->deadline_ms)
        command->is_timed_out = true;
    if (command->is_timed_out &&
        !command->is_killed) /* by the server: only its first process */
        (void)e2b_command_kill(command, NULL);
}

/* From what is at hand; false if that is nothing. */
static bool read_kept(struct process *process, int *ret_stream, void *data, size_t room,
                      size_t *ret_len, uint64_t *ret_dropped)
{
    struct e2b_event *piece = &process->piece;

    if (streams_read(process->tails, ret_stream, data, room, ret_len, ret_dropped))
        return true;
    if (!piece->data)
        return false;
    size_t left = piece->len - process->piece_at;
    *ret_stream = piece->stream;
    *ret_len = left < room ? left : room;
    memcpy(data, piece->data + process->piece_at, *ret_len);
    process->piece_at += *ret_len;
    *ret_dropped = process->kept.skipped[piece->stream - 1];
    process->kept.skipped[piece->stream - 1] = 0;
    if (process->piece_at == piece->len)
        e2b_event_done(piece);
    return true;
}

/* 1 if there is a piece now, 0 if not, -1 if there will not be one. */
static int next_piece(struct process *process)
{
    int next;

    process->piece_at = 0;
    while ((next = e2b_command_next(&process->command, &process->piece)) > 0 &&
           process->piece.len == 0)
        e2b_event_done(&process->piece);
    if (next > 0 || !process->kept.is_there)
        return next;
    return output_files_next(process->e2b, &process->kept, next < 0, &process->piece);
}

static int read_some(void *cookie, int *ret_stream, void *data, size_t room,
                     size_t *ret_len, uint64_t *ret_dropped, struct cay_error *err)
{
    struct process *process = cookie;
    struct e2b_command *command = &process->command;
    struct cay_exec_result result;
    uint64_t dropped = 0;
    int code = CAY_OK, next = 1;

    if (room == 0)
        return streams_fail_room(err);
    *ret_stream = 0;
    *ret_len = 0;
    keep_time(process);
    if (!read_kept(process, ret_stream, data, room, ret_len, &dropped)) {
        e2b_command_step(command, 0);
        next = next_piece(process);
        if (next > 0)
            (void)read_kept(process, ret_stream, data, room, ret_len, &dropped);
    }
    if (next < 0) {
        *ret_stream = -1;
        code = e2b_command_result(command, &result, err);
    }
    if (ret_dropped)
        *ret_dropped = dropped;
    show_news(process);
    return code;
}

/* All that is there now, into the tails.  1 when it is over, 0, or -ENOMEM. */
static int take_all(struct process *process)
{
    struct e2b_command *command = &process->command;

    for (;;) {
        int next = process->piece.data ? 1 : next_piece(process);
        if (next <= 0)
            return next < 0;
        struct e2b_event *piece = &process->piece;
        struct tail *tail = &process->tails[piece->stream - 1];
        tail->dropped += process->kept.skipped[piece->stream - 1];
        process->kept.skipped[piece->stream - 1] = 0;
        bool fine = tail_add(tail, piece->data + process->piece_at,
                             piece->len - process->piece_at);
        e2b_event_done(piece);
        if (!fine)
            return -ENOMEM;
        if (tail->dropped && process->fails_on_limit && !command->is_over_limit) {
            command->is_over_limit = true;
            (void)e2b_command_kill(command, NULL);
        }
    }
}

/* 1 when it is over, 0 if it still runs, or -ENOMEM. */
static int wait_until(struct process *process, uint64_t until_ms)
{
    struct e2b_command *command = &process->command;

    for (;;) {
        keep_time(process);
        int over = take_all(process);
        if (over || clock_ms() >= until_ms)
            return over;
        uint64_t next = e2b_keep_alive_due(process->e2b);
        if (!command->is_timed_out && command->deadline_ms < next)
            next = command->deadline_ms;
        if (process->kept.is_there && process->kept.next_ms < next)
            next = process->kept.next_ms;
        e2b_command_step(command, next < until_ms ? next : until_ms);
    }
}

static int wait_for(void *cookie, uint64_t timeout_ms, struct cay_exec_result *ret_result,
                    struct cay_error *err)
{
    static const char op[] = "process.wait";
    struct process *process = cookie;
    struct cay_exec_result result = {0};
    uint64_t now = clock_ms();

    int over = wait_until(process,
                          timeout_ms < UINT64_MAX - now ? now + timeout_ms : UINT64_MAX);
    show_news(process);
    if (over < 0)
        return cay_fail_memory(err, op);
    if (over == 0)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, NULL, "the command still runs",
                        "wait longer, or kill it");
    int code = e2b_command_result(&process->command, &result, err);
    if (!code)
        code = streams_take(process->tails, &result, op, err);
    if (code) {
        cay_exec_done(&result);
        return code;
    }
    output_files_remove(process->e2b, &process->kept);
    show_news(process);
    *ret_result = result;
    return CAY_OK;
}

/* --- Its input and terminal --- */

static int fail_unread(const struct e2b_input *input, struct cay_error *err)
{
    if (input->failure.code && err)
        *err = input->failure;
    if (input->failure.code)
        return input->failure.code;
    return cay_fail(err, CAY_E_IO, 0, "process.write", NULL,
                    "nothing reads the command's input any more",
                    "see whether it has ended");
}

static int write_some(void *cookie, const void *data, size_t len, size_t *ret_written,
                      struct cay_error *err)
{
    struct process *process = cookie;
    struct e2b_input *input = &process->command.input;
    size_t part = len < INPUT_MAX ? len : INPUT_MAX;

    *ret_written = 0;
    if (input->is_open && !input->ends && e2b_input_pending(input))
        drive_input(process);
    if (!input->is_open || input->ends)
        return streams_fail_closed(err);
    if (!e2b_input_pending(input) && !process->command.is_over && part) {
        char *own = realloc(input->own, part);
        if (!own)
            return cay_fail_memory(err, "process.write");
        memcpy(own, data, part);
        input->own = own;
        input->data = own;
        input->left = part;
        *ret_written = part;
        drive_input(process);
    }
    show_news(process);
    return input->is_open && !process->command.is_over ? CAY_OK : fail_unread(input, err);
}

static int close_input(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    struct e2b_command *command = &process->command;

    int code = command->input.is_open ? e2b_input_can_end(command, err) : CAY_OK;
    if (code)
        return code;
    command->input.ends = command->input.is_open;
    if (!command->input.ends_left)
        command->input.ends_left = 1;
    drive_input(process);
    show_news(process);
    return CAY_OK;
}

static int resize(void *cookie, uint16_t rows, uint16_t columns, struct cay_error *err)
{
    struct process *process = cookie;
    const struct e2b_command *command = &process->command;
    const struct e2b_call call = {.op = "process.resize",
                                  .subject = process->e2b->id,
                                  .method = "process.Process/Update",
                                  .repeatable = true,
                                  .fallback = CAY_E_INVALID};
    AUTO_BUF body = {0};

    if (!command->has_tty && !command->is_attached)
        return cay_fail(err, CAY_E_INVALID, 0, call.op, NULL,
                        "the command has no terminal", "start it with CAY_EXEC_TTY");
    buf_init(&body, 256);
    buf_format(&body,
               "{\"process\":{\"pid\":%d},\"pty\":{\"size\":{\"cols\":%u,\"rows\":%u}}}",
               command->pid, columns ? columns : E2B_COLUMNS, rows ? rows : E2B_ROWS);
    int code = e2b_call(process->e2b, &call, &body, NULL, err);
    show_news(process);
    return code;
}

/* --- Signals --- */

static int send_signal(void *cookie, int number, struct cay_error *err)
{
    struct process *process = cookie;

    if (process->command.is_over)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "process.signal", NULL,
                        "the command has ended", "fetch its result");
    int code = e2b_command_signal(&process->command, number, err);
    show_news(process);
    return code;
}

static int kill_tree(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    int code = e2b_command_kill(&process->command, err);

    show_news(process);
    return code;
}

const struct cay_process_backend e2b_processes = {
    .size = sizeof e2b_processes,
    .start = start,
    .attach = attach,
    .list = e2b_process_list,
    .free = process_free,
    .pid = pid_of,
    .fd = fd_of,
    .read = read_some,
    .write = write_some,
    .close_input = close_input,
    .resize = resize,
    .signal = send_signal,
    .kill = kill_tree,
    .wait = wait_for,
};
