/* SPDX-License-Identifier: Apache-2.0 */

/* One command, from the request to its result.  Data never passes through init: pipes
 * connect this process and the command directly, and init only reports its end.  The
 * command ends with its first process; data in the pipes is still read then, but
 * background children that keep them open are not waited for. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/process/command.h"
#include "sandbox/streams.h"
#include "sys/rights.h"
#include "sys/sigpipe.h"

static const char op[] = "sandbox.exec";

enum { PIECE = 64 << 10, FLAGS = CAY_EXEC_FAIL_ON_LIMIT | CAY_EXEC_TTY | CAY_EXEC_LAST };

/* Where output goes. */
struct sink {
    const struct cay_exec_options *options;
    struct tail tails[2];
    bool over_limit;
    uint64_t give_up_ms; /* when init should have reported the end; 0: never */
    char *piece;
};

int native_check_exec(const struct cay_exec_options *options, const char *name,
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

static int take_in(struct command *command, struct sink *sink, int stream, size_t len)
{
    const struct cay_exec_options *options = sink->options;

    if (options->on_output) {
        if (options->on_output(options->cookie, stream, sink->piece, len) != 0)
            command_kill(command);
        return 0;
    }
    struct tail *tail = &sink->tails[stream - 1];
    if (!tail_add(tail, sink->piece, len))
        return -ENOMEM;
    if (tail->dropped && options->flags & CAY_EXEC_FAIL_ON_LIMIT) {
        sink->over_limit = true;
        command_kill(command);
    }
    return 0;
}

/* Reads what is available, up to a bound.  1 at the end of all output, 0, or a negative
 * errno. */
static int take_some(struct command *command, struct sink *sink)
{
    for (int i = 0; i < COMMAND_PIECES; i++) {
        int stream;
        size_t len;
        uint64_t dropped;
        int error = command_take(command, &stream, sink->piece, PIECE, &len, &dropped);
        if (error || stream <= 0)
            return error ? error : stream < 0;
        error = take_in(command, sink, stream, len);
        if (error)
            return error;
    }
    return 0;
}

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
static int pump(struct command *command, struct sink *sink)
{
    for (;;) {
        int over = command->ended ? 0 : wait_for_news(command, sink->give_up_ms);
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
    struct wire_exec exec = {.options = options,
                             .flags = command->has_tty ? 0 : EXEC_QUIET,
                             .mark = command_mark(&native->events, 0),
                             .fds = {-1, -1, -1, -1}};
    int code = command_open_stdio(command, true, &exec, err);

    if (!code)
        code = wire_exec(command->socket, command->id, &exec, err);
    wire_close_fds(exec.fds);
    if (!code && command->has_tty)
        (void)command_wait_start(command, op,
                                 NULL); /* command_result() reports its failure */
    if (code)
        return code;
    command_set_input(command, options->input, options->input ? options->input_len : 0);
    int error = pump(command, sink);
    if (error == -ETIMEDOUT)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, command->id,
                        "PID 1 of the sandbox did not end the command in time",
                        "the machine may be overloaded: try again, or kill the sandbox");
    if (error)
        return cay_fail_errno(err, -error, op, options->argv[0]);
    code = command_result(command, &native->events, sink->over_limit, result, err);
    return code ? code : streams_take(sink->tails, result, op, err);
}

static void open_once(const char *path, int *fd)
{
    if (*fd < 0 && *path)
        *fd = open(path, O_RDONLY | O_CLOEXEC);
}

int native_prepare_exec(struct native *native, struct cay_error *err)
{
    int code = native_connect(native, err);

    if (!code) {
        open_once(native->record.cgroup.memory_events, &native->events.memory);
        open_once(native->record.cgroup.pids_events, &native->events.pids);
    }
    return code;
}

int native_exec(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err)
{
    struct native *native = cookie;
    struct cay_exec_options known;
    struct cay_exec_result result = {0};
    struct command command;
    sigset_t before;

    int code = cay_take_struct(&known, sizeof known, options, op, err);
    if (!code)
        code = native_check_exec(&known, op, FLAGS, err);
    if (!code && !native->piece && !(native->piece = malloc(PIECE)))
        code = cay_fail_memory(err, op);
    if (!code)
        code = native_prepare_exec(native, err);
    if (code)
        return code;
    uint64_t limit = known.output_limit ? known.output_limit : CAY_OUTPUT_DEFAULT;
    /* Taken from the handle, because the callback may use the handle for other
     * commands. */
    int socket = TAKE_FD(native->socket);
    char *piece = TAKE_PTR(native->piece);
    struct sink sink = {.options = &known, .piece = piece};
    if (known.timeout_ms && known.timeout_ms < INT_MAX)
        sink.give_up_ms = clock_ms() + known.timeout_ms + (uint64_t)native->reply_ms;
    tail_init(&sink.tails[0], (size_t)limit);
    tail_init(&sink.tails[1], (size_t)limit);
    command_init(&command, socket, native->record.id, native->reply_ms, NULL);
    command.has_tty = known.flags & CAY_EXEC_TTY;
    bool writes = known.input || command.has_tty;
    if (writes)
        sigpipe_block(&before);
    code = run_command(native, &command, &sink, &result, err);
    command_close(&command);
    if (writes)
        sigpipe_restore(&before);
    tail_done(&sink.tails[0]);
    tail_done(&sink.tails[1]);
    if (command.gone || code ||
        native->socket >= 0) /* its state is unknown, or the handle has another one */
        rights_hang_up(socket);
    else
        native->socket = socket;
    free(native->piece);
    native->piece = piece;
    if (code)
        cay_exec_done(&result);
    else
        *ret_result = result;
    return code;
}
