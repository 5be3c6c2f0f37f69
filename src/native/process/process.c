/* SPDX-License-Identifier: Apache-2.0 */
#include "native/process/process.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/process/command.h"
#include "sandbox/streams.h"
#include "sys/rights.h"
#include "sys/sigpipe.h"

enum { ROWS = 24, COLUMNS = 80, CATCH_UP = 2 * OUTPUT_KEPT / MESSAGE_MAX + 8 };

static int pid_of(const void *cookie)
{
    return ((const struct process *)cookie)->command.begin.pid;
}

static int fd_of(const void *cookie)
{
    return ((const struct process *)cookie)->epoll;
}

/* --- Output and result --- */

/* Makes the epoll readable for data that no socket or pipe shows. */
static void signal_ready(struct process *process)
{
    bool news = process->command.ended || process->command.has_output ||
                process->sink.tails[0].len || process->sink.tails[1].len;
    uint64_t count = 1;

    if (news && !process->is_ready)
        (void)!write(process->ready, &count, sizeof count);
    else if (!news && process->is_ready)
        (void)!read(process->ready, &count, sizeof count);
    process->is_ready = news;
}

/* A request whose reply is only DONE. */
static int request(struct process *process, const char *op, enum message_kind kind,
                   const void *payload, size_t len, struct cay_error *err)
{
    int code = command_request(&process->command, op, kind, payload, len, MESSAGE_DONE,
                               NULL, 0, err);

    signal_ready(process);
    return code;
}

/* Replies arrive in order, so kept output that is on its way arrives before this one. */
static int skip(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    struct command *command = &process->command;

    if (!command->is_background)
        return cay_fail(err, CAY_E_INVALID, 0, "process.skip", NULL,
                        "the output of a foreground command is not kept",
                        "start it with CAY_EXEC_BACKGROUND");
    int code = request(process, "process.skip", MESSAGE_SKIP, NULL, 0, err);
    for (int i = 0; i < 2; i++) {
        process->sink.tails[i].len = process->sink.tails[i].start = 0;
        process->sink.tails[i].dropped = 0;
    }
    if (!code && command->has_output) {
        command->has_output = false;
        command_request_output(command);
    }
    signal_ready(process);
    return code;
}

static int take_in(struct command *command, struct sink *sink, int stream, size_t len,
                   uint64_t dropped)
{
    const struct cay_exec_options *options = sink->options;
    struct tail *tail = &sink->tails[stream - 1];

    if (options && options->on_output) {
        if (options->on_output(options->cookie, stream, sink->piece, len) != 0)
            command_kill(command);
        return 0;
    }
    if (dropped) { /* kept output has no gaps */
        tail->dropped += tail->len + dropped;
        tail->len = tail->start = 0;
    }
    if (!tail_add(tail, sink->piece, len))
        return -ENOMEM;
    if (tail->dropped && sink->fails_on_limit && !sink->over_limit) {
        sink->over_limit = true;
        command_kill(command);
    }
    return 0;
}

/* The buffer is allocated for the first output that is not read by the caller. */
static bool has_buffer(const struct command *command, struct sink *sink)
{
    bool may_read = command->is_background || command->streams[0] >= 0 ||
                    command->streams[1] >= 0 || command->hung_up >= 0;

    if (!sink->piece && may_read)
        sink->piece = malloc(PROCESS_PIECE);
    return sink->piece || !may_read;
}

/* Reads what is available, up to a bound; all of it after the end.  1 at the end of all
 * output, 0, or a negative errno. */
static int take_some(struct command *command, struct sink *sink)
{
    for (int i = 0; i < COMMAND_PIECES || command->ended; i++) {
        int stream;
        size_t len;
        uint64_t dropped;
        if (!has_buffer(command, sink))
            return -ENOMEM;
        int error =
            command_take(command, &stream, sink->piece, PROCESS_PIECE, &len, &dropped);
        if (error || stream <= 0)
            return error ? error : stream < 0;
        error = take_in(command, sink, stream, len, dropped);
        if (error)
            return error;
    }
    return 0;
}

static void sink_init(struct sink *sink, uint64_t limit)
{
    tail_init(&sink->tails[0], (size_t)(limit ? limit : CAY_OUTPUT_DEFAULT));
    tail_init(&sink->tails[1], sink->tails[0].limit);
}

static void sink_done(struct sink *sink)
{
    tail_done(&sink->tails[0]);
    tail_done(&sink->tails[1]);
    free(sink->piece);
}

/* Output of a background command is on its way from init.  A reply to another request
 * comes after all pending output, so a few rounds fetch everything that was kept; a
 * command with more than that is still running. */
static int catch_up(struct process *process)
{
    uint64_t end = clock_ms() + (uint64_t)process->command.reply_ms;
    int over = 0;

    for (int i = 0; i < CATCH_UP && process->command.is_background && !over; i++) {
        if (clock_ms() >= end)
            break;
        (void)command_request(&process->command, "process.wait", MESSAGE_PING, NULL, 0,
                              MESSAGE_PONG, NULL, 0, NULL);
        if (!process->command.has_output && !process->command.ended)
            break;
        over = take_some(&process->command, &process->sink);
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
    if (process->is_new && catch_up(process) >= 0) /* kept output has arrived now */
        process->is_new = false;
    if (!streams_read(process->sink.tails, ret_stream, data, room, ret_len, &dropped))
        error =
            command_take(&process->command, ret_stream, data, room, ret_len, &dropped);
    if (ret_dropped)
        *ret_dropped = dropped;
    signal_ready(process);
    return error ? cay_fail_errno(err, -error, "process.read", NULL) : CAY_OK;
}

/* 1 when it has ended, 0 if it is still running, or a negative errno. */
static int wait_until(struct process *process, uint64_t timeout_ms)
{
    const struct command *command = &process->command;
    uint64_t begin = clock_ms();

    for (;;) {
        int over = take_some(&process->command, &process->sink);
        if (over)
            return over;
        uint64_t gone = clock_ms() - begin;
        if (gone >= timeout_ms)
            return catch_up(process);
        uint64_t left = timeout_ms - gone;
        struct pollfd fds[] = {
            {.fd = command->socket, .events = POLLIN},
            {.fd = command->streams[0], .events = POLLIN},
            {.fd = command->streams[1], .events = POLLIN},
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
    struct command *command = &process->command;
    struct cay_exec_result result = {0};

    int over = wait_until(process, timeout_ms);
    signal_ready(process);
    if (over < 0)
        return cay_fail_errno(err, -over, op, NULL);
    if (over == 0)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, NULL, "the command is still running",
                        "wait longer, or kill it");
    int code =
        command_result(command, &process->events, process->sink.over_limit, &result, err);
    if (!code)
        code = streams_take(process->sink.tails, &result, op, err);
    if (code) {
        cay_exec_done(&result);
        return code;
    }
    if (command->is_background && !process->fetched)
        (void)packet_send(command->socket, MESSAGE_FORGET, NULL, 0, NULL, 0);
    process->fetched = true;
    signal_ready(process);
    *ret_result = result;
    return CAY_OK;
}

/* --- Input and terminal --- */

static int write_here(const struct command *command, const void *data, size_t len,
                      size_t *ret_written, struct cay_error *err)
{
    sigset_t before;

    if (command->input < 0)
        return streams_fail_closed(err);
    sigpipe_block(&before);
    ssize_t put = write(command->input, data, len);
    int error = put < 0 ? errno : 0;
    sigpipe_restore(&before);
    if (error && error != EAGAIN && error != EINTR)
        return cay_fail(err, CAY_E_IO, error, "process.write", NULL,
                        "the command's stdin is closed",
                        "check whether the command has ended");
    *ret_written = put > 0 ? (size_t)put : 0;
    return CAY_OK;
}

static int write_some(void *cookie, const void *data, size_t len, size_t *ret_written,
                      struct cay_error *err)
{
    struct process *process = cookie;
    struct command *command = &process->command;
    size_t done = 0;
    int code = CAY_OK;

    if (!command->is_background)
        return write_here(command, data, len, ret_written, err);
    while (!code && done < len) {
        uint32_t put = 0;
        size_t part = len - done < MESSAGE_MAX ? len - done : MESSAGE_MAX;
        code = command_request(command, "process.write", MESSAGE_WRITE,
                               (const char *)data + done, part, MESSAGE_WRITTEN, &put,
                               sizeof put, err);
        if (!code && put > part)
            return wire_error(NULL, 0, err);
        done += put;
        if (put < part)
            break;
    }
    signal_ready(process);
    if (code && !done)
        return code;
    *ret_written = done;
    return CAY_OK;
}

static int close_input(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;

    if (process->command.is_background)
        return request(process, "process.close-input", MESSAGE_CLOSE_INPUT, NULL, 0, err);
    command_set_input(&process->command, NULL, 0);
    signal_ready(process);
    return CAY_OK;
}

static int resize(void *cookie, uint16_t rows, uint16_t columns, struct cay_error *err)
{
    static const char op[] = "process.resize";
    struct process *process = cookie;
    struct command *command = &process->command;
    const struct winsize size = {.ws_row = rows ? rows : ROWS,
                                 .ws_col = columns ? columns : COLUMNS};
    const struct resize_request wanted = {rows, columns};

    if (command->is_background)
        return request(process, op, MESSAGE_RESIZE, &wanted, sizeof wanted, err);
    if (!command->has_tty || ioctl(command->streams[0], TIOCSWINSZ, &size) != 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "the command has no terminal",
                        "start it with CAY_EXEC_TTY");
    return CAY_OK;
}

/* --- Signals --- */

static int send_signal(void *cookie, int number, struct cay_error *err)
{
    const int32_t value = number;

    return request(cookie, "process.signal", MESSAGE_SIGNAL, &value, sizeof value, err);
}

static int kill_tree(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    struct cay_error error;
    const uint32_t answer = 1;

    process->command.killed = true;
    int code =
        request(process, "process.kill", MESSAGE_KILL, &answer, sizeof answer, &error);
    if (!code || process->command.gone) /* all processes end with the sandbox */
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

static const char start_op[] = "process.start";

enum {
    WAITED_FLAGS = CAY_EXEC_FAIL_ON_LIMIT | CAY_EXEC_TTY | CAY_EXEC_LAST,
    FLAGS = CAY_EXEC_FAIL_ON_LIMIT | CAY_EXEC_TTY | CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT |
            CAY_EXEC_PIPED | CAY_EXEC_LAST
};

/* --- Handles --- */

void process_free(void *cookie)
{
    struct process *process = cookie;

    if (!process)
        return;
    command_close(&process->command);
    if (process->command.socket >= 0)
        rights_let_go(process->command.socket, process->command.owner);
    const int fds[] = {process->events.memory, process->events.pids, process->epoll,
                       process->ready};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        auto_close(&fds[i]);
    sink_done(&process->sink);
    free(process);
}

/* Uses the idle connection of the handle, which opens another one when needed. */
static int new_process(struct native *native, uint64_t limit, const char *op,
                       struct process **ret_process, struct cay_error *err)
{
    AUTO_PROCESS process = malloc(sizeof *process);

    if (!process)
        return cay_fail_memory(err, op);
    memset(process, 0, offsetof(struct process, packet));
    memcpy(process->id, native->record.id, sizeof process->id);
    command_init(&process->command, -1, process->id, native->reply_ms, &process->packet);
    process->events.memory = process->events.pids = process->epoll = process->ready = -1;
    sink_init(&process->sink, limit);
    int code = native_prepare_exec(native, err);
    if (code)
        return code;
    process->events.memory = TAKE_FD(native->events.memory);
    process->events.pids = TAKE_FD(native->events.pids);
    process->command.socket = TAKE_FD(native->socket);
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
    process->command.watch = process->epoll;
    process->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (process->epoll < 0 || process->ready < 0 || !watch(process, process->ready) ||
        !watch(process, process->command.socket) ||
        !watch(process, process->command.streams[0]) ||
        !watch(process, process->command.streams[1]))
        return cay_fail_errno(err, errno, op, "epoll");
    return CAY_OK;
}

/* --- Start and attach --- */

/* A terminal exists only after the start. */
static int type_input(struct command *command, const struct cay_exec_options *options,
                      struct cay_error *err)
{
    size_t len = options->input ? options->input_len : 0;
    bool stays_open = options->flags & CAY_EXEC_INPUT, all = true;
    uint32_t put = 0;
    int code = CAY_OK;

    if (!command->is_background) {
        if (!stays_open)
            command_set_input(command, options->input, len);
        else if (len)
            all = write(command->input, options->input, len) == (ssize_t)len;
        all = all && command->data_len == 0;
    } else {
        if (len)
            code = command_request(command, start_op, MESSAGE_WRITE, options->input,
                                   len < MESSAGE_MAX ? len : MESSAGE_MAX, MESSAGE_WRITTEN,
                                   &put, sizeof put, err);
        all = put == len;
        if (!code && all && !stays_open)
            code = command_request(command, start_op, MESSAGE_CLOSE_INPUT, NULL, 0,
                                   MESSAGE_DONE, NULL, 0, err);
    }
    if (code || all)
        return code;
    return cay_fail(err, CAY_E_LIMIT, 0, start_op, "input",
                    "the initial input is too long for a terminal",
                    "start it with CAY_EXEC_INPUT and write the input in pieces");
}

/* `is_waited_for`: by native_exec(), which feeds the input itself. */
static int send_exec(struct command *command, const struct cay_exec_options *options,
                     const struct limit_events *events, bool is_waited_for,
                     struct cay_error *err)
{
    struct wire_exec exec = {.options = options,
                             .flags = is_waited_for && !command->has_tty ? EXEC_QUIET : 0,
                             .mark = command_mark(events, 0),
                             .fds = {-1, -1, -1, -1}};
    int code = command_open_stdio(command, is_waited_for, &exec, err);

    if (!code)
        code = wire_exec(command->socket, command->id, &exec, err);
    wire_close_fds(exec.fds);
    return code;
}

static int check_exec(const struct cay_exec_options *options, const char *name,
                      unsigned flags, struct cay_error *err)
{
    if (!options->argv || !options->argv[0])
        return cay_fail(err, CAY_E_INVALID, 0, name, "argv", "no command given",
                        "pass at least the name of a program");
    if (options->flags & ~flags)
        return cay_fail(err, CAY_E_INVALID, 0, name, "flags",
                        "unknown flag, or a flag that this call does not support",
                        "supported flags of enum cay_exec_flag: 0x%x", flags);
    return CAY_OK;
}

int process_check_start(const struct cay_exec_options *given,
                        struct cay_exec_options *ret_options, struct cay_error *err)
{
    int code = cay_take_struct(ret_options, sizeof *ret_options, given, start_op, err);
    const struct cay_exec_options *options = ret_options;

    if (!code)
        code = check_exec(options, start_op, FLAGS, err);
    if (code)
        return code;
    bool is_background = options->flags & CAY_EXEC_BACKGROUND;
    if (options->on_output)
        return cay_fail(err, CAY_E_INVALID, 0, start_op, "on_output",
                        "on_output is not supported for a process that is not waited for",
                        "read its output with cay_process_read()");
    if (options->flags & CAY_EXEC_PIPED && !is_background)
        return cay_fail(err, CAY_E_INVALID, 0, start_op, "flags",
                        "CAY_EXEC_PIPED is for background commands only",
                        "add CAY_EXEC_BACKGROUND, or leave CAY_EXEC_PIPED out");
    if (options->flags & CAY_EXEC_LAST && is_background)
        return cay_fail(err, CAY_E_INVALID, 0, start_op, "flags",
                        "CAY_EXEC_LAST is not supported for background commands",
                        "leave CAY_EXEC_LAST or CAY_EXEC_BACKGROUND out");
    return CAY_OK;
}

int process_send_start(struct native *native, const struct cay_exec_options *options,
                       struct process **ret_process, struct cay_error *err)
{
    AUTO_PROCESS process = NULL;
    int code = new_process(native, options->output_limit, start_op, &process, err);

    if (code)
        return code;
    process->command.is_background = options->flags & CAY_EXEC_BACKGROUND;
    process->command.has_tty = options->flags & CAY_EXEC_TTY;
    process->sink.fails_on_limit = options->flags & CAY_EXEC_FAIL_ON_LIMIT;
    code = send_exec(&process->command, options, &process->events, false, err);
    if (!code)
        *ret_process = TAKE_PTR(process);
    return code;
}

/* Waits until execve. */
int process_finish_start(struct process *process, const struct cay_exec_options *options,
                         struct cay_error *err)
{
    struct command *command = &process->command;

    int code = command_wait_start(command, start_op, err);
    if (!code && command->has_tty)
        code = type_input(command, options, err);
    if (!code)
        code = watch_all(process, start_op, err);
    if (code)
        return code;
    if (command->is_background)
        command_request_output(command);
    signal_ready(process);
    return CAY_OK;
}

int process_start(void *cookie, const struct cay_exec_options *options,
                  void **ret_process, struct cay_error *err)
{
    struct cay_exec_options known;
    AUTO_PROCESS process = NULL;

    int code = process_check_start(options, &known, err);
    if (!code)
        code = process_send_start(cookie, &known, &process, err);
    if (!code)
        code = process_finish_start(process, &known, err);
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
                        "no background command has this pid or tag",
                        "list the processes to see their pids and tags");
    int code = new_process(cookie, 0, op, &process, err);
    if (code)
        return code;
    struct command *command = &process->command;
    command->is_background = true;
    int error = packet_send(command->socket, MESSAGE_ATTACH, which, len, NULL, 0);
    code = error ? wire_fail_send(command->socket, op, command->id, -error, err)
                 : command_wait_start(command, op, err);
    if (!code)
        code = watch_all(process, op, err);
    if (code)
        return code;
    command->has_tty = command->begin.flags & EXEC_TTY;
    command_request_output(command);
    process->is_new = true;
    signal_ready(process);
    *ret_process = TAKE_PTR(process);
    return CAY_OK;
}

/* --- One command, from the request to its result ---
 *
 * Data never passes through init: pipes connect this process and the command directly,
 * and init only reports its end.  The command ends with its first process; data in the
 * pipes is still read then, but background children that keep them open are not waited
 * for. */

static const char exec_op[] = "sandbox.exec";

/* Waits for an event, and records which streams have none. */
static int wait_for_news(struct command *command, uint64_t give_up_ms)
{
    bool feeding = command->data_len || command->ends_left;
    struct pollfd fds[4] = {
        {.fd = command->streams[0], .events = POLLIN},
        {.fd = command->streams[1], .events = POLLIN},
        {.fd = command->socket, .events = POLLIN},
        {.fd = feeding ? command->input : -1, .events = POLLOUT},
    };

    uint64_t now = give_up_ms ? clock_ms() : 0;
    if (give_up_ms && now >= give_up_ms)
        return -ETIMEDOUT;
    uint64_t left = give_up_ms - now;
    if (poll(fds, 4, give_up_ms && left < INT_MAX ? (int)left : -1) < 0)
        return errno == EINTR ? 0 : -errno;
    /* POLLHUP alone does not mean that there is no data: it may have been written after
     * the kernel checked. */
    command->idle = 0;
    for (int i = 0; i < 3; i++)
        if (!fds[i].revents)
            command->idle |= 1u << i;
    if (fds[3].revents)
        command_feed(command);
    return 0;
}

/* Until the command has ended and its output is read. */
static int pump(struct command *command, struct sink *sink, uint64_t give_up_ms)
{
    for (;;) {
        int over = command->ended ? 0 : wait_for_news(command, give_up_ms);
        if (!over)
            over = take_some(command, sink);
        if (over)
            return over < 0 ? over : 0;
    }
}

static int run_command(struct native *native, struct command *command, struct sink *sink,
                       struct cay_exec_result *result, struct cay_error *err)
{
    const struct cay_exec_options *options = sink->options;
    uint64_t give_up_ms = 0; /* when init should have reported the end; 0: never */

    if (options->timeout_ms && options->timeout_ms < INT_MAX)
        give_up_ms = clock_ms() + options->timeout_ms + (uint64_t)native->reply_ms;
    int code = send_exec(command, options, &native->events, true, err);
    if (code)
        return code;
    if (command->has_tty) /* command_result() reports its failure */
        (void)command_wait_start(command, exec_op, NULL);
    command_set_input(command, options->input, options->input ? options->input_len : 0);
    int error = pump(command, sink, give_up_ms);
    if (error == -ETIMEDOUT)
        return cay_fail(err, CAY_E_TIMEOUT, 0, exec_op, command->id,
                        "PID 1 of the sandbox did not end the command in time",
                        "the machine may be overloaded: try again, or kill the sandbox");
    if (error)
        return cay_fail_errno(err, -error, exec_op, options->argv[0]);
    code = command_result(command, &native->events, sink->over_limit, result, err);
    return code ? code : streams_take(sink->tails, result, exec_op, err);
}

int native_exec(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err)
{
    struct native *native = cookie;
    struct cay_exec_options known;
    struct cay_exec_result result = {0};
    struct command command;
    sigset_t before;

    int code = cay_take_struct(&known, sizeof known, options, exec_op, err);
    if (!code)
        code = check_exec(&known, exec_op, WAITED_FLAGS, err);
    if (!code && !native->piece && !(native->piece = malloc(PROCESS_PIECE)))
        code = cay_fail_memory(err, exec_op);
    if (!code)
        code = native_prepare_exec(native, err);
    if (code)
        return code;
    /* Taken from the handle, because the callback may use the handle for other
     * commands. */
    int socket = TAKE_FD(native->socket);
    char *piece = TAKE_PTR(native->piece);
    struct sink sink = {.options = &known,
                        .piece = piece,
                        .fails_on_limit = known.flags & CAY_EXEC_FAIL_ON_LIMIT};
    sink_init(&sink, known.output_limit);
    command_init(&command, socket, native->record.id, native->reply_ms, NULL);
    command.has_tty = known.flags & CAY_EXEC_TTY;
    bool writes = known.input || command.has_tty;
    if (writes)
        sigpipe_block(&before);
    code = run_command(native, &command, &sink, &result, err);
    command_close(&command);
    if (writes)
        sigpipe_restore(&before);
    if (command.gone || code ||
        native->socket >= 0) /* its state is unknown, or the handle has another one */
        rights_hang_up(socket);
    else
        native->socket = socket;
    free(native->piece);
    native->piece = TAKE_PTR(sink.piece);
    sink_done(&sink);
    if (code)
        cay_exec_done(&result);
    else
        *ret_result = result;
    return code;
}
