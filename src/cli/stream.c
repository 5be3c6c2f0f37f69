/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/signals.h"

/* --- The terminal --- */

static struct termios original;
static bool is_raw, is_known;

int terminal_require(const char *what, const char *hint, struct cay_error *err)
{
    if (isatty(STDIN_FILENO))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "cli.terminal", what,
                    "standard input is not a terminal", "%s", hint);
}

bool terminal_size(uint16_t *ret_rows, uint16_t *ret_columns)
{
    struct winsize size;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col) {
            *ret_rows = size.ws_row;
            *ret_columns = size.ws_col;
            return true;
        }
    return false;
}

void terminal_make_raw(void)
{
    struct termios raw;

    if (!is_known && tcgetattr(STDIN_FILENO, &original) != 0)
        return;
    is_known = true;
    raw = original;
    cfmakeraw(&raw);
    is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

void terminal_restore(void)
{
    if (is_raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &original);
    is_raw = false;
}

/* --- The stream --- */

enum {
    PIECE = 64 << 10,
    SURE = 4096,      /* what a pipe that poll() calls writable takes without waiting */
    GRACE_MS = 1000,  /* between a signal that is passed on and the kill */
    TURNS = 64,       /* pieces of output before input gets a chance again */
    SHORTEST_US = 20, /* between two tries to hand over input that does not fit */
    LONGEST_US = 2000
};

/* One stream per program, so the buffers are static. */
static char input[PIECE], output[PIECE];

static void kill_process(struct stream *stream)
{
    if (!stream->only_shows && !stream->is_dying)
        (void)!cay_process_kill(stream->process, NULL);
    stream->is_dying = true;
    stream->kill_at_ms = 0;
}

/* Handles signals, the kill deadline and a resized terminal. */
static void attend(struct stream *stream)
{
    uint16_t rows, columns;
    int number = signals_take();

    if (number && (stream->signal || stream->only_shows)) {
        kill_process(stream);
    } else if (number) {
        (void)!cay_process_signal(stream->process, number, NULL);
        stream->kill_at_ms = clock_ms() + GRACE_MS;
    }
    if (number)
        stream->signal = number;
    if (stream->kill_at_ms && clock_ms() >= stream->kill_at_ms)
        kill_process(stream);
    if (stream->is_raw && signals_redraw()) {
        terminal_make_raw();
        if (terminal_size(&rows, &columns))
            (void)!cay_process_resize(stream->process, rows, columns, NULL);
    }
}

/* Waits for one of the descriptors, a signal, or so many microseconds (-1: any time). */
static int wait_for(struct stream *stream, struct pollfd *fds, nfds_t count, int64_t us)
{
    struct timespec most;

    attend(stream);
    if (stream->kill_at_ms) {
        int64_t left = (int64_t)(stream->kill_at_ms - clock_ms()) * 1000;
        us = us < 0 || left < us ? left : us;
        us = us < 0 ? 0 : us;
    }
    most = (struct timespec){us / 1000000, us % 1000000 * 1000};
    int got = ppoll(fds, count, us < 0 ? NULL : &most, signals_mask());
    if (got < 0 && errno != EINTR)
        return -errno;
    if (got <= 0)
        for (nfds_t i = 0; i < count; i++)
            fds[i].revents = 0;
    attend(stream);
    return 0;
}

/* --- Output --- */

/* A slow reader must not delay signals or the timeout, so a pipe or terminal is only
 * written to when poll() reports room. */
static void pass_output(struct stream *stream, int fd, const char *data, size_t len)
{
    struct stat st;
    bool may_block = fstat(fd, &st) != 0 || !S_ISREG(st.st_mode);

    while (len > 0 && !stream->write_errno && !stream->is_dying) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        if (may_block && wait_for(stream, &ready, 1, -1) == 0 && !ready.revents)
            continue;
        ssize_t put = write(fd, data, may_block && len > SURE ? SURE : len);
        if (put >= 0) {
            data += put;
            len -= (size_t)put;
        } else if (errno != EINTR && errno != EAGAIN) {
            stream->write_errno = errno;
        }
    }
    if (stream->write_errno)
        kill_process(stream);
}

static int take_output(struct stream *stream, bool *ret_any, struct cay_error *err)
{
    *ret_any = false;
    for (int turn = 0; turn < TURNS && !stream->ended; turn++) {
        int which = 0;
        size_t len = 0;
        uint64_t dropped = 0;
        TRY(cay_process_read(stream->process, &which, output, PIECE, &len, &dropped,
                             err));
        if (dropped && !stream->kept)
            fprintf(stderr, "cay: note: %llu bytes of earlier output were dropped\n",
                    (unsigned long long)dropped);
        stream->ended = which < 0;
        if (which <= 0)
            break;
        *ret_any = true;
        if (!stream->kept)
            pass_output(stream, which, output, len);
        else if (!tail_add(&stream->kept[which - 1], output, len))
            return cay_fail_memory(err, "cli.stream");
        if (stream->kept)
            stream->kept[which - 1].dropped += dropped;
    }
    return CAY_OK;
}

/* --- Input --- */

static void end_input(struct stream *stream)
{
    stream->input_ended = true;
    stream->input_at = stream->input_len = 0;
    (void)!cay_process_close_input(stream->process, NULL);
}

static int read_input(struct stream *stream, struct cay_error *err)
{
    ssize_t got = read(STDIN_FILENO, input, PIECE);

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return CAY_OK;
    if (got < 0 && errno != EIO) /* EIO: the terminal is gone */
        return cay_fail_errno(err, errno, "cli.stream", "standard input");
    if (got <= 0) {
        end_input(stream);
        return CAY_OK;
    }
    stream->input_at = 0;
    stream->input_len = (size_t)got;
    return CAY_OK;
}

/* Writes what fits.  A process that closed its input is no failure, as in `yes | head`.
 */
static void pass_input(struct stream *stream)
{
    struct cay_error why;
    size_t put = 0;

    if (stream->input_at == stream->input_len)
        return;
    int code = cay_process_write(stream->process, input + stream->input_at,
                                 stream->input_len - stream->input_at, &put, &why);
    stream->input_at += put;
    stream->input_moves = put ? 0 : stream->input_moves + 1;
    if (code)
        end_input(stream);
}

/* How long to wait before the next try; input that waits has no descriptor to poll. */
static int64_t input_delay(const struct stream *stream, bool any)
{
    int64_t us = SHORTEST_US;

    if (any)
        return 0;
    if (stream->input_at == stream->input_len)
        return -1;
    for (size_t i = 0; i < stream->input_moves && us < LONGEST_US; i++)
        us *= 2;
    return us;
}

/* --- Both --- */

static int turn(struct stream *stream, struct cay_error *err)
{
    bool any, wants_input = stream->passes_input && !stream->input_ended &&
                            stream->input_at == stream->input_len;
    struct pollfd fds[2] = {
        {.fd = cay_process_fd(stream->process), .events = POLLIN},
        {.fd = wants_input ? STDIN_FILENO : -1, .events = POLLIN},
    };
    int code = take_output(stream, &any, err);

    if (code || stream->ended)
        return code;
    int error = wait_for(stream, fds, 2, input_delay(stream, any));
    if (error)
        return cay_fail_errno(err, -error, "cli.stream", "poll");
    if (fds[1].revents)
        code = read_input(stream, err);
    pass_input(stream);
    return code;
}

/* Prints the output of a background command so far, without waiting for its result. */
static int show_kept(struct stream *stream, struct cay_error *err)
{
    bool any = true;
    int code = CAY_OK;

    while (!code && any && !stream->ended && !stream->is_dying)
        code = take_output(stream, &any, err);
    return code;
}

int stream_run(struct stream *stream, struct cay_error *err)
{
    int code = CAY_OK;

    if (stream->is_raw)
        terminal_make_raw();
    if (stream->only_kept)
        code = show_kept(stream, err);
    while (!code && !stream->only_kept && !stream->ended &&
           !(stream->is_dying && stream->only_shows))
        code = turn(stream, err);
    terminal_restore();
    if (stream->signal)
        kill_process(stream);
    if (!code && stream->write_errno == EPIPE)
        stream->signal = SIGPIPE;
    else if (!code && stream->write_errno)
        code = cay_fail_errno(err, stream->write_errno, "cli.output", "standard output");
    return code;
}
