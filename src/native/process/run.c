/* SPDX-License-Identifier: Apache-2.0 */
#include "native/process/run.h"

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
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"
#include "sys/memfd.h"

enum {
    TERMINAL_LEFT = 256 << 10 /* more than a terminal's buffers hold */
};

void run_init(struct run *run, int socket, const char *id, int answer_ms,
              struct packet *packet)
{
    *run = (struct run){.socket = socket,
                        .owner = getpid(),
                        .id = id,
                        .answer_ms = answer_ms,
                        .packet = packet,
                        .input = -1,
                        .streams = {-1, -1},
                        .hung_up = -1,
                        .watch = -1};
}

static void shut(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* A terminal's two descriptors are one thing, and it is of no use without the other. */
static void shut_stream(struct run *run, int index)
{
    if (run->has_tty)
        shut(&run->input);
    if (!run->has_tty || run->ended) {
        shut(&run->streams[index]);
        return;
    }
    /* The program has closed its side, but may live on; closing ours would be the end of
     * it, by SIGHUP. */
    if (run->watch >= 0)
        (void)epoll_ctl(run->watch, EPOLL_CTL_DEL, run->streams[index], NULL);
    shut(&run->hung_up);
    run->hung_up = run->streams[index];
    run->streams[index] = -1;
}

void run_close(struct run *run)
{
    shut(&run->input);
    shut(&run->streams[0]);
    shut(&run->streams[1]);
    shut(&run->hung_up);
}

/* --- What init says --- */

/* What was written before the end is in the pipe; nobody waits for background children
 * that hold it open, nor reads for ever what they go on writing. */
static void note_end(struct run *run)
{
    run->ended = true;
    for (int i = 0; i < 2; i++) {
        int count = 0;
        if (run->streams[i] < 0)
            continue;
        if (run->has_tty)
            count = TERMINAL_LEFT;
        else if (ioctl(run->streams[i], FIONREAD, &count) != 0 || count < 0)
            count = 0;
        run->left[i] = (uint64_t)count;
        if (count == 0)
            shut_stream(run, i);
    }
}

static void note_loss(struct run *run)
{
    run->gone = true;
    if (!run->ended)
        note_end(run);
}

/* The master of a terminal inside, and nothing else that init may have sent. */
static bool take_terminal(struct run *run, int fd)
{
    struct stat st;
    unsigned number;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode) ||
        ioctl(fd, TIOCGPTN, &number) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        return false;
    run->input = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (run->input < 0)
        return false;
    run->streams[0] = fd;
    return true;
}

static bool note_start(struct run *run, const struct message *head, const void *payload,
                       int fds[MESSAGE_FDS_MAX])
{
    bool wants_terminal = run->has_tty && !run->is_background;

    if (run->started || head->len != sizeof run->begin ||
        head->fd_count != (wants_terminal ? 1 : 0) ||
        (wants_terminal && !take_terminal(run, fds[0])))
        return false;
    if (wants_terminal)
        fds[0] = -1;
    memcpy(&run->begin, payload, sizeof run->begin);
    run->started = true;
    return true;
}

static bool note_output(struct run *run, const struct message *head)
{
    if (!run->is_background || head->len < sizeof run->output)
        return false;
    memcpy(&run->output, run->packet->payload, sizeof run->output);
    run->has_output = true;
    run->output_at = sizeof run->output;
    return run->output.stream == 1 || run->output.stream == 2;
}

/* 1: an answer; 0: news; -1: nonsense. */
static int note(struct run *run, const struct message *head, const void *payload,
                int fds[MESSAGE_FDS_MAX])
{
    switch (head->kind) {
    case MESSAGE_STARTED:
        return note_start(run, head, payload, fds) ? 0 : -1;
    case MESSAGE_OUTPUT:
        return payload == run->packet->payload && note_output(run, head) ? 0 : -1;
    case MESSAGE_ENDED:
        if (run->ended || head->len != sizeof run->end)
            return -1;
        memcpy(&run->end, payload, sizeof run->end);
        note_end(run);
        return 0;
    case MESSAGE_FAILED:
        if (run->started)
            return 1;
        (void)wire_error(payload, head->len, &run->failure);
        if (run->failure.code == CAY_E_BUSY) /* it does not know its own id */
            cay_copy_text(run->failure.subject, sizeof run->failure.subject, run->id);
        note_end(run);
        return 0;
    default:
        return 1;
    }
}

/* Takes note of one message, if there is one.  1 if it is an answer, which is then in
 * *answer; 0 if it was news, or nothing. */
static int hear(struct run *run, struct answer *ret_answer)
{
    struct answer answer;
    struct message *head = &answer.head;
    int *fds = answer.fds;
    const void *payload = answer.payload;
    int got;

    run->unheard = 0;
    /* Output can only come when the last was read. */
    if (run->is_background && !run->has_output) {
        head = &run->packet->head;
        fds = run->packet->fds;
        payload = run->packet->payload;
        got = packet_poll(run->socket, run->packet);
    } else {
        got = packet_poll_small(run->socket, head, fds, answer.payload,
                                sizeof answer.payload);
    }
    if (got == -EAGAIN)
        return 0;
    int what = got == 1 ? note(run, head, payload, fds) : -1;
    if (got == 1)
        wire_close_fds(fds);
    if (what == 1 && run->late > 0) {
        run->late--;
        return 0;
    }
    if (what == 1 && ret_answer && head->len <= sizeof ret_answer->payload) {
        ret_answer->head = *head;
        memcpy(ret_answer->payload, payload, head->len);
        return 1;
    }
    if (what != 0)
        note_loss(run);
    return 0;
}

int run_ask(struct run *run, const char *op, enum message_kind kind, const void *payload,
            size_t payload_len, enum message_kind want, void *ret_answer, size_t len,
            struct cay_error *err)
{
    struct answer answer;
    int error = run->gone ? -EPIPE
                          : packet_send(run->socket, kind, payload, payload_len, NULL, 0);

    if (error) {
        note_loss(run);
        return wire_fail_gone(op, run->id, -error, err);
    }
    for (;;) {
        int code = wire_wait(run->socket, run->answer_ms, op, run->id, err);
        if (code) {
            run->late++;
            return code;
        }
        if (hear(run, &answer) == 1)
            break;
        if (run->gone)
            return wire_fail_gone(op, run->id, 0, err);
    }
    if (answer.head.kind == MESSAGE_FAILED)
        return wire_error(answer.payload, answer.head.len, err);
    if (answer.head.kind != want || answer.head.len != len) {
        note_loss(run);
        return wire_error(NULL, 0, err);
    }
    if (len)
        memcpy(ret_answer, answer.payload, len);
    return CAY_OK;
}

int run_wait_start(struct run *run, const char *op, struct cay_error *err)
{
    while (!run->started && !run->ended) {
        int code = wire_wait(run->socket, run->answer_ms, op, run->id, err);
        if (code)
            return code;
        (void)hear(run, NULL);
    }
    if (run->started)
        return CAY_OK;
    if (run->gone)
        return wire_fail_gone(op, run->id, 0, err);
    if (err)
        *err = run->failure;
    return run->failure.code;
}

/* --- Its output --- */

/* One piece of a pipe or terminal: its stream, 0 if there is none now. */
static int take_piece(struct run *run, int index, void *data, size_t room,
                      size_t *ret_len)
{
    int fd = run->streams[index];

    if (fd < 0 || (run->idle & 1u << index && !run->ended))
        return 0;
    if (run->ended && room > run->left[index])
        room = (size_t)run->left[index];
    ssize_t len = room ? io_read_some(fd, data, room) : 0;
    if (len > 0) {
        *ret_len = (size_t)len;
        run->left[index] -= run->ended ? (uint64_t)len : 0;
        run->turn = (unsigned)index + 1;
        return index + 1;
    }
    bool nothing_now = len < 0 && (errno == EAGAIN || errno == EINTR);
    if (!nothing_now && len < 0 && errno != EIO) /* a terminal ends with EIO */
        return -errno;
    if (!nothing_now || run->ended)
        shut_stream(run, index);
    return 0;
}

static int take_foreground(struct run *run, int *ret_stream, void *data, size_t room,
                           size_t *ret_len)
{
    /* Its end is told even where its children keep the pipes full. */
    if (!run->ended && ++run->unheard > RUN_PIECES)
        (void)hear(run, NULL);
    for (int round = 0; round < 2; round++) {
        bool ended = run->ended;
        for (unsigned i = 0; i < 2; i++) {
            int stream = take_piece(run, (int)((run->turn + i) % 2), data, room, ret_len);
            if (stream != 0) {
                *ret_stream = stream;
                return stream < 0 ? stream : 0;
            }
        }
        if (ended) {
            *ret_stream = -1;
            return 0;
        }
        if (!(run->idle & RUN_SOCKET))
            (void)hear(run, NULL);
        if (!run->ended)
            return 0;
    }
    *ret_stream = -1;
    return 0;
}

void run_ask_for_more(struct run *run)
{
    if (!run->ended && packet_send(run->socket, MESSAGE_READ, NULL, 0, NULL, 0) != 0)
        note_loss(run);
}

static int take_background(struct run *run, int *ret_stream, void *data, size_t room,
                           size_t *ret_len, uint64_t *ret_dropped)
{
    if (!run->has_output && !run->ended)
        (void)hear(run, NULL);
    if (!run->has_output) {
        *ret_stream = run->ended ? -1 : 0;
        return 0;
    }
    size_t left = run->packet->head.len - run->output_at;
    size_t len = left < room ? left : room;
    memcpy(data, run->packet->payload + run->output_at, len);
    *ret_stream = (int)run->output.stream;
    *ret_len = len;
    *ret_dropped = run->output.dropped;
    run->output.dropped = 0;
    run->output_at += len;
    if (len == left) {
        run->has_output = false;
        run_ask_for_more(run);
    }
    return 0;
}

int run_take(struct run *run, int *ret_stream, void *data, size_t room, size_t *ret_len,
             uint64_t *ret_dropped)
{
    *ret_stream = 0;
    *ret_len = 0;
    *ret_dropped = 0;
    if (run->is_background)
        return take_background(run, ret_stream, data, room, ret_len, ret_dropped);
    return take_foreground(run, ret_stream, data, room, ret_len);
}

/* --- Its input --- */

void run_set_input(struct run *run, const void *data, size_t len)
{
    const char *text = data;

    run->data = text;
    run->data_len = len;
    /* In the middle of a line the first ^D only ends the piece. */
    run->ends_left = !run->has_tty ? 0 : len && text[len - 1] != '\n' ? 2 : 1;
    run_feed(run);
}

void run_feed(struct run *run)
{
    while (run->input >= 0) {
        bool last = run->data_len == 0;
        if (last && run->ends_left == 0) {
            shut(&run->input);
            return;
        }
        ssize_t put = last ? write(run->input, "\x04", 1)
                           : write(run->input, run->data, run->data_len);
        if (put < 0) {
            if (errno != EAGAIN && errno != EINTR)
                shut(&run->input);
            return;
        }
        if (last) {
            run->ends_left--;
        } else {
            run->data += put;
            run->data_len -= (size_t)put;
        }
    }
}

/* --- Its end --- */

void run_kill(struct run *run)
{
    const uint32_t answer = 0;

    if (!run->killed && !run->ended)
        (void)packet_send(run->socket, MESSAGE_KILL, &answer, sizeof answer, NULL, 0);
    run->killed = true;
}

static uint32_t read_count(int fd, const char *name, uint32_t otherwise)
{
    char text[512] = "";

    if (fd < 0 || pread(fd, text, sizeof text - 1, 0) <= 0)
        return otherwise;
    const char *count = strstr(text, name);
    return count ? (uint32_t)strtoull(count + strlen(name), NULL, 10) : otherwise;
}

uint64_t run_mark(const struct events *events, uint64_t earlier)
{
    uint32_t kills = read_count(events->memory, "oom_kill ", (uint32_t)earlier);
    uint32_t refused = read_count(events->pids, "max ", (uint32_t)(earlier >> 32));

    return kills | (uint64_t)refused << 32;
}

uint32_t run_memory_kills(uint64_t mark, uint64_t earlier)
{
    return (uint32_t)mark - (uint32_t)earlier;
}

bool run_ran_out(int status, uint32_t cause, bool killed, uint32_t memory_kills)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
           cause == CAY_CAUSE_SIGNALLED && !killed && memory_kills > 0;
}

static void fill_in(const struct run *run, const struct events *events, bool over_limit,
                    struct cay_exec_result *result)
{
    const struct exec_end *end = &run->end;
    uint64_t mark = run_mark(events, end->mark);
    bool signalled = WIFSIGNALED(end->status);

    result->memory_kills = run_memory_kills(mark, end->mark);
    result->refused_forks = (uint32_t)(mark >> 32) - (uint32_t)(end->mark >> 32);

    result->signal = signalled ? WTERMSIG(end->status) : 0;
    result->exit_code = signalled ? 128 + result->signal : WEXITSTATUS(end->status);
    bool memory =
        run_ran_out(end->status, end->cause, end->killed, (uint32_t)result->memory_kills);
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

int run_result(const struct run *run, const struct events *events, bool over_limit,
               struct cay_exec_result *ret_result, struct cay_error *err)
{
    const struct cay_error *failure = &run->failure;

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
    } else if (!run->end.cause) { /* its end was never told */
        ret_result->cause = CAY_CAUSE_GONE;
        ret_result->exit_code = 128 + SIGKILL;
    } else {
        fill_in(run, events, over_limit, ret_result);
    }
    return CAY_OK;
}

/* --- stdin, stdout and stderr --- */

/* Pipes of our own, or a terminal of the sandbox's: no terminal, log file or socket of
 * the caller's ever goes inside. */

static const char op[] = "sandbox.exec";

enum { PIPE_MOST = 1 << 20 };

static void give(struct wire_exec *exec, int fd)
{
    exec->fds[exec->fd_count++] = fd;
}

/* A pipe whose one end is ours, and does not block.  It belongs to us, but whoever runs
 * inside is to be able to open it again, as /dev/stderr. */
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

/* Input that nobody needs to feed: a file that cannot be changed any more. */
static int open_file(const void *data, size_t len, int *ret_fd, struct cay_error *err)
{
    int fd = memfd_of("cay-input", 0, data, len);

    if (fd < 0)
        return cay_fail_errno(err, -fd, op, "input");
    *ret_fd = fd;
    return CAY_OK;
}

/* Into a pipe that stays open: all of it, before anybody reads. */
static int fill_pipe(int fd, const struct cay_exec_options *options,
                     struct cay_error *err)
{
    if (options->input_len > 65536 && options->input_len <= PIPE_MOST)
        (void)fcntl(fd, F_SETPIPE_SZ, PIPE_MOST);
    if (!options->input_len ||
        write(fd, options->input, options->input_len) == (ssize_t)options->input_len)
        return CAY_OK;
    return cay_fail(err, CAY_E_LIMIT, 0, op, "input",
                    "that is more than goes into an input which stays open",
                    "give at most 64 KiB at the start, and write the rest afterwards");
}

static int open_input(struct run *run, bool waits, struct wire_exec *exec,
                      struct cay_error *err)
{
    const struct cay_exec_options *options = exec->options;
    bool stays_open = options->flags & CAY_EXEC_INPUT;
    int theirs = -1;

    if (!stays_open && (!options->input || options->input_len == 0))
        return CAY_OK;
    int code = waits || stays_open
                   ? open_pipe(1, &run->input, &theirs, err)
                   : open_file(options->input, options->input_len, &theirs, err);
    if (code)
        return code;
    exec->flags |= EXEC_INPUT;
    give(exec, theirs);
    return stays_open ? fill_pipe(run->input, options, err) : CAY_OK;
}

static int open_output(struct run *run, struct wire_exec *exec, struct cay_error *err)
{
    for (int i = 0; i < 2; i++) {
        int theirs = -1;
        int code = open_pipe(0, &run->streams[i], &theirs, err);
        if (code)
            return code;
        give(exec, theirs);
    }
    return CAY_OK;
}

int run_open_stdio(struct run *run, bool waits, struct wire_exec *exec,
                   struct cay_error *err)
{
    bool keep =
        run->is_background && (run->has_tty || exec->options->flags & CAY_EXEC_INPUT);

    if (run->is_background)
        exec->flags |=
            EXEC_BACKGROUND |
            (exec->options->flags & CAY_EXEC_PIPED ? (unsigned)EXEC_PIPED : 0u);
    if (keep)
        exec->flags |= EXEC_KEEP_INPUT;
    if (run->has_tty) {
        exec->flags |= EXEC_TTY;
        return CAY_OK;
    }
    int code = open_input(run, waits, exec, err);
    if (!code && !run->is_background)
        code = open_output(run, exec, err);
    if (!code && keep)
        give(exec, TAKE_FD(run->input)); /* init keeps it */
    return code;
}
