/* SPDX-License-Identifier: Apache-2.0 */
#include "native/process/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"

enum {
    TERMINAL_LEFT = 256 << 10 /* more than the buffers of a terminal hold */
};

void command_init(struct command *command, int socket, const char *id, int reply_ms,
                  struct packet *packet)
{
    *command = (struct command){.socket = socket,
                                .owner = getpid(),
                                .id = id,
                                .reply_ms = reply_ms,
                                .packet = packet,
                                .input = -1,
                                .streams = {-1, -1},
                                .hung_up = -1,
                                .watch = -1};
}

static void shut(int *fd)
{
    auto_close(fd);
    *fd = -1;
}

/* Both descriptors of a terminal belong together: close both. */
static void shut_stream(struct command *command, int index)
{
    if (command->has_tty)
        shut(&command->input);
    if (!command->has_tty || command->ended) {
        shut(&command->streams[index]);
        return;
    }
    /* The program has closed its side, but may still run; closing ours would end it by
     * SIGHUP. */
    if (command->watch >= 0)
        (void)epoll_ctl(command->watch, EPOLL_CTL_DEL, command->streams[index], NULL);
    shut(&command->hung_up);
    command->hung_up = command->streams[index];
    command->streams[index] = -1;
}

void command_close(struct command *command)
{
    shut(&command->input);
    shut(&command->streams[0]);
    shut(&command->streams[1]);
    shut(&command->hung_up);
}

/* --- Messages of init --- */

/* Output written before the end is in the pipe.  Background children that keep it open
 * are not waited for, and their later output is not read without end. */
static void note_end(struct command *command)
{
    command->ended = true;
    for (int i = 0; i < 2; i++) {
        int count = 0;
        if (command->streams[i] < 0)
            continue;
        if (command->has_tty)
            count = TERMINAL_LEFT;
        else if (ioctl(command->streams[i], FIONREAD, &count) != 0 || count < 0)
            count = 0;
        command->left[i] = (uint64_t)count;
        if (count == 0)
            shut_stream(command, i);
    }
}

static void note_loss(struct command *command)
{
    command->gone = true;
    if (!command->ended)
        note_end(command);
}

/* Accepts only the master of a terminal inside, whatever init has sent. */
static bool take_terminal(struct command *command, int fd)
{
    struct stat st;
    unsigned number;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode) ||
        ioctl(fd, TIOCGPTN, &number) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        return false;
    command->input = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (command->input < 0)
        return false;
    command->streams[0] = fd;
    return true;
}

static bool note_start(struct command *command, const struct message *head,
                       const void *payload, int fds[MESSAGE_FDS_MAX])
{
    bool wants_terminal = command->has_tty && !command->is_background;

    if (command->started || head->len != sizeof command->begin ||
        head->fd_count != (wants_terminal ? 1 : 0) ||
        (wants_terminal && !take_terminal(command, fds[0])))
        return false;
    if (wants_terminal)
        fds[0] = -1;
    memcpy(&command->begin, payload, sizeof command->begin);
    command->started = true;
    return true;
}

static bool note_output(struct command *command, const struct message *head)
{
    if (!command->is_background || head->len < sizeof command->output)
        return false;
    memcpy(&command->output, command->packet->payload, sizeof command->output);
    command->has_output = true;
    command->output_at = sizeof command->output;
    return command->output.stream == 1 || command->output.stream == 2;
}

/* 1: a reply; 0: an event; -1: invalid. */
static int note(struct command *command, const struct message *head, const void *payload,
                int fds[MESSAGE_FDS_MAX])
{
    switch (head->kind) {
    case MESSAGE_STARTED:
        return note_start(command, head, payload, fds) ? 0 : -1;
    case MESSAGE_OUTPUT:
        return payload == command->packet->payload && note_output(command, head) ? 0 : -1;
    case MESSAGE_ENDED:
        if (command->ended || head->len != sizeof command->end)
            return -1;
        memcpy(&command->end, payload, sizeof command->end);
        note_end(command);
        return 0;
    case MESSAGE_FAILED:
        if (command->started)
            return 1;
        (void)wire_error(payload, head->len, &command->failure);
        if (command->failure.code == CAY_E_BUSY) /* init does not know the sandbox's id */
            cay_copy_text(command->failure.subject, sizeof command->failure.subject,
                          command->id);
        note_end(command);
        return 0;
    default:
        return 1;
    }
}

/* Handles one message, if there is one.  1 if it is a reply, which is then in *ret_reply;
 * 0 if it was an event, or nothing. */
static int hear(struct command *command, struct reply *ret_reply)
{
    struct reply answer;
    struct message *head = &answer.head;
    int *fds = answer.fds;
    const void *payload = answer.payload;
    int got;

    command->unheard = 0;
    /* Init sends output only after the last packet was read. */
    if (command->is_background && !command->has_output) {
        head = &command->packet->head;
        fds = command->packet->fds;
        payload = command->packet->payload;
        got = packet_poll(command->socket, command->packet);
    } else {
        got = packet_poll_small(command->socket, head, fds, answer.payload,
                                sizeof answer.payload);
    }
    if (got == -EAGAIN)
        return 0;
    int what = got == 1 ? note(command, head, payload, fds) : -1;
    if (got == 1)
        wire_close_fds(fds);
    if (what == 1 && command->late > 0) {
        command->late--;
        return 0;
    }
    if (what == 1 && ret_reply && head->len <= sizeof ret_reply->payload) {
        ret_reply->head = *head;
        memcpy(ret_reply->payload, payload, head->len);
        return 1;
    }
    if (what != 0)
        note_loss(command);
    return 0;
}

int command_request(struct command *command, const char *op, enum message_kind kind,
                    const void *payload, size_t payload_len, enum message_kind want,
                    void *ret_reply, size_t len, struct cay_error *err)
{
    struct reply answer;
    int error = command->gone
                    ? -EPIPE
                    : packet_send(command->socket, kind, payload, payload_len, NULL, 0);

    if (error) {
        note_loss(command);
        return wire_fail_gone(op, command->id, -error, err);
    }
    for (;;) {
        int code = wire_wait(command->socket, command->reply_ms, op, command->id, err);
        if (code) {
            command->late++;
            return code;
        }
        if (hear(command, &answer) == 1)
            break;
        if (command->gone)
            return wire_fail_gone(op, command->id, 0, err);
    }
    if (answer.head.kind == MESSAGE_FAILED)
        return wire_error(answer.payload, answer.head.len, err);
    if (answer.head.kind != want || answer.head.len != len) {
        note_loss(command);
        return wire_error(NULL, 0, err);
    }
    if (len)
        memcpy(ret_reply, answer.payload, len);
    return CAY_OK;
}

int command_wait_start(struct command *command, const char *op, struct cay_error *err)
{
    while (!command->started && !command->ended) {
        int code = wire_wait(command->socket, command->reply_ms, op, command->id, err);
        if (code)
            return code;
        (void)hear(command, NULL);
    }
    if (command->started)
        return CAY_OK;
    if (command->gone)
        return wire_fail_gone(op, command->id, 0, err);
    if (err)
        *err = command->failure;
    return command->failure.code;
}

/* --- Output --- */

/* Reads one piece of a pipe or terminal: its stream, or 0 if there is none now. */
static int take_piece(struct command *command, int index, void *data, size_t room,
                      size_t *ret_len)
{
    int fd = command->streams[index];

    if (fd < 0 || (command->idle & 1u << index && !command->ended))
        return 0;
    if (command->ended && room > command->left[index])
        room = (size_t)command->left[index];
    ssize_t len = room ? io_read_some(fd, data, room) : 0;
    if (len > 0) {
        *ret_len = (size_t)len;
        command->left[index] -= command->ended ? (uint64_t)len : 0;
        command->turn = (unsigned)index + 1;
        return index + 1;
    }
    bool nothing_now = len < 0 && (errno == EAGAIN || errno == EINTR);
    if (!nothing_now && len < 0 && errno != EIO) /* a terminal ends with EIO */
        return -errno;
    if (!nothing_now || command->ended)
        shut_stream(command, index);
    return 0;
}

static int take_foreground(struct command *command, int *ret_stream, void *data,
                           size_t room, size_t *ret_len)
{
    /* Check for the end of the command even if its children keep the pipes full. */
    if (!command->ended && ++command->unheard > COMMAND_PIECES)
        (void)hear(command, NULL);
    for (int round = 0; round < 2; round++) {
        bool ended = command->ended;
        for (unsigned i = 0; i < 2; i++) {
            int stream =
                take_piece(command, (int)((command->turn + i) % 2), data, room, ret_len);
            if (stream != 0) {
                *ret_stream = stream;
                return stream < 0 ? stream : 0;
            }
        }
        if (ended) {
            *ret_stream = -1;
            return 0;
        }
        if (!(command->idle & COMMAND_SOCKET))
            (void)hear(command, NULL);
        if (!command->ended)
            return 0;
    }
    *ret_stream = -1;
    return 0;
}

void command_request_output(struct command *command)
{
    if (!command->ended &&
        packet_send(command->socket, MESSAGE_READ, NULL, 0, NULL, 0) != 0)
        note_loss(command);
}

static int take_background(struct command *command, int *ret_stream, void *data,
                           size_t room, size_t *ret_len, uint64_t *ret_dropped)
{
    if (!command->has_output && !command->ended)
        (void)hear(command, NULL);
    if (!command->has_output) {
        *ret_stream = command->ended ? -1 : 0;
        return 0;
    }
    size_t left = command->packet->head.len - command->output_at;
    size_t len = left < room ? left : room;
    memcpy(data, command->packet->payload + command->output_at, len);
    *ret_stream = (int)command->output.stream;
    *ret_len = len;
    *ret_dropped = command->output.dropped;
    command->output.dropped = 0;
    command->output_at += len;
    if (len == left) {
        command->has_output = false;
        command_request_output(command);
    }
    return 0;
}

int command_take(struct command *command, int *ret_stream, void *data, size_t room,
                 size_t *ret_len, uint64_t *ret_dropped)
{
    *ret_stream = 0;
    *ret_len = 0;
    *ret_dropped = 0;
    if (command->is_background)
        return take_background(command, ret_stream, data, room, ret_len, ret_dropped);
    return take_foreground(command, ret_stream, data, room, ret_len);
}

/* --- Input --- */

void command_set_input(struct command *command, const void *data, size_t len)
{
    const char *text = data;

    command->data = text;
    command->data_len = len;
    /* In the middle of a line, the first ^D only ends the line. */
    command->ends_left = !command->has_tty ? 0 : len && text[len - 1] != '\n' ? 2 : 1;
    command_feed(command);
}

void command_feed(struct command *command)
{
    while (command->input >= 0) {
        bool last = command->data_len == 0;
        if (last && command->ends_left == 0) {
            shut(&command->input);
            return;
        }
        ssize_t put = last ? write(command->input, "\x04", 1)
                           : write(command->input, command->data, command->data_len);
        if (put < 0) {
            if (errno != EAGAIN && errno != EINTR)
                shut(&command->input);
            return;
        }
        if (last) {
            command->ends_left--;
        } else {
            command->data += put;
            command->data_len -= (size_t)put;
        }
    }
}

/* --- Result --- */

void command_kill(struct command *command)
{
    const uint32_t answer = 0;

    if (!command->killed && !command->ended)
        (void)packet_send(command->socket, MESSAGE_KILL, &answer, sizeof answer, NULL, 0);
    command->killed = true;
}

static uint32_t read_count(int fd, const char *name, uint32_t otherwise)
{
    char text[512] = "";

    if (fd < 0 || pread(fd, text, sizeof text - 1, 0) <= 0)
        return otherwise;
    const char *count = strstr(text, name);
    return count ? (uint32_t)strtoull(count + strlen(name), NULL, 10) : otherwise;
}

uint64_t command_mark(const struct limit_events *events, uint64_t earlier)
{
    uint32_t kills = read_count(events->memory, "oom_kill ", (uint32_t)earlier);
    uint32_t refused = read_count(events->pids, "max ", (uint32_t)(earlier >> 32));

    return kills | (uint64_t)refused << 32;
}

uint32_t command_memory_kills(uint64_t mark, uint64_t earlier)
{
    return (uint32_t)mark - (uint32_t)earlier;
}

bool command_is_oom(int status, uint32_t cause, bool killed, uint32_t memory_kills)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
           cause == CAY_CAUSE_SIGNALLED && !killed && memory_kills > 0;
}

static void fill_in(const struct command *command, const struct limit_events *events,
                    bool over_limit, struct cay_exec_result *result)
{
    const struct exec_end *end = &command->end;
    uint64_t mark = command_mark(events, end->mark);
    bool signalled = WIFSIGNALED(end->status);

    result->memory_kills = command_memory_kills(mark, end->mark);
    result->refused_forks = (uint32_t)(mark >> 32) - (uint32_t)(end->mark >> 32);

    result->signal = signalled ? WTERMSIG(end->status) : 0;
    result->exit_code = signalled ? 128 + result->signal : WEXITSTATUS(end->status);
    bool memory = command_is_oom(end->status, end->cause, end->killed,
                                 (uint32_t)result->memory_kills);
    result->cause = over_limit                        ? CAY_CAUSE_OUTPUT_LIMIT
                    : memory                          ? CAY_CAUSE_MEMORY
                    : end->cause == CAY_CAUSE_TIMEOUT ? CAY_CAUSE_TIMEOUT
                    : signalled                       ? CAY_CAUSE_SIGNALLED
                                                      : CAY_CAUSE_EXITED;
    if (result->cause == CAY_CAUSE_TIMEOUT)
        result->exit_code = 124;
    result->user_us = end->user_us;
    result->system_us = end->system_us;
    result->wall_us = end->wall_us;
    result->peak_memory = end->peak_memory;
}

int command_result(const struct command *command, const struct limit_events *events,
                   bool over_limit, struct cay_exec_result *ret_result,
                   struct cay_error *err)
{
    const struct cay_error *failure = &command->failure;

    *ret_result = (struct cay_exec_result){0};
    if (failure->code && failure->code != CAY_E_EXEC_FAILED) {
        if (err)
            *err = *failure;
        return failure->code;
    }
    if (failure->code) {
        ret_result->cause = CAY_CAUSE_NOT_STARTED;
        ret_result->exec_errno = failure->sys_errno;
        ret_result->exit_code = failure->sys_errno == ENOENT ? 127 : 126;
    } else if (!command->end.cause) { /* its end was never reported */
        ret_result->cause = CAY_CAUSE_GONE;
        ret_result->exit_code = 128 + SIGKILL;
    } else {
        fill_in(command, events, over_limit, ret_result);
    }
    return CAY_OK;
}

/* --- stdin, stdout and stderr --- */

/* Pipes of this process, or a terminal of the sandbox: no terminal, log file or socket of
 * the caller ever enters the sandbox. */

static const char op[] = "sandbox.exec";

enum { PIPE_MOST = 1 << 20 };

static void give(struct wire_exec *exec, int fd)
{
    exec->fds[exec->fd_count++] = fd;
}

/* A pipe whose one end is ours and non-blocking.  The command's user must be able to open
 * its end again, as /dev/stderr. */
static int open_pipe(int our_end, int *ret_ours, int *ret_theirs, struct cay_error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    (void)fcntl(ends[our_end], F_SETFL, O_NONBLOCK);
    (void)fchmod(ends[0], 0666);
    *ret_ours = ends[our_end];
    *ret_theirs = ends[!our_end];
    return CAY_OK;
}

/* Fills a pipe that stays open with all of the input, before it is read. */
static int fill_pipe(int fd, const struct cay_exec_options *options,
                     struct cay_error *err)
{
    if (options->input_len > 65536 && options->input_len <= PIPE_MOST)
        (void)fcntl(fd, F_SETPIPE_SZ, PIPE_MOST);
    if (!options->input_len ||
        write(fd, options->input, options->input_len) == (ssize_t)options->input_len)
        return CAY_OK;
    return cay_fail(err, CAY_E_LIMIT, 0, op, "input",
                    "too much initial input for a stdin that stays open",
                    "pass at most 64 KiB at the start, and write the rest afterwards");
}

static int open_input(struct command *command, bool waits, struct wire_exec *exec,
                      struct cay_error *err)
{
    const struct cay_exec_options *options = exec->options;
    bool stays_open = options->flags & CAY_EXEC_INPUT;
    int theirs = -1;

    if (!stays_open && (!options->input || options->input_len == 0))
        return CAY_OK;
    if (waits || stays_open) {
        int code = open_pipe(1, &command->input, &theirs, err);
        if (code)
            return code;
    } else { /* input that needs no feeding: a sealed file */
        theirs = io_memfd("cay-input", 0, options->input, options->input_len);
        if (theirs < 0)
            return cay_fail_errno(err, -theirs, op, "input");
    }
    exec->flags |= EXEC_INPUT;
    give(exec, theirs);
    return stays_open ? fill_pipe(command->input, options, err) : CAY_OK;
}

int command_open_stdio(struct command *command, bool waits, struct wire_exec *exec,
                       struct cay_error *err)
{
    bool keep = command->is_background &&
                (command->has_tty || exec->options->flags & CAY_EXEC_INPUT);

    if (command->is_background)
        exec->flags |=
            EXEC_BACKGROUND |
            (exec->options->flags & CAY_EXEC_PIPED ? (unsigned)EXEC_PIPED : 0u);
    if (keep)
        exec->flags |= EXEC_KEEP_INPUT;
    if (command->has_tty) {
        exec->flags |= EXEC_TTY;
        return CAY_OK;
    }
    int code = open_input(command, waits, exec, err);
    for (int i = 0; !code && i < 2 && !command->is_background; i++) {
        int theirs = -1;
        code = open_pipe(0, &command->streams[i], &theirs, err);
        if (!code)
            give(exec, theirs);
    }
    if (!code && keep)
        give(exec, TAKE_FD(command->input)); /* init keeps it */
    return code;
}
