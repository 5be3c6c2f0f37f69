/* SPDX-License-Identifier: Apache-2.0 */

/* One command, from the request to its result.  The data never passes through init: the
 * pipes run straight between here and the command, and init only tells of its end.  That
 * end is the first process's, so what is in the pipes then is still read, but nobody
 * waits for background children that hold them open. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/native/native.h"
#include "base/auto.h"
#include "base/error.h"
#include "base/tail.h"
#include "init/packet.h"
#include "sys/io.h"

static const char op[] = "sandbox.exec";

enum { PIECE = 64 << 10 };

struct run {
    struct native *native;
    struct cay_exec_options options;
    int input, streams[2]; /* our ends; -1 once closed */
    size_t input_at;
    struct tail tails[2];
    bool started, ended, killed, over_limit, gone;
    struct exec_end end;
    struct cay_error failure; /* of the start */
    char *piece;
};

/* --- The request --- */

static void add_env(struct buf *strings, char *const *env, uint32_t *count)
{
    for (; env && *env; env++) {
        buf_append(strings, *env, strlen(*env) + 1);
        ++*count;
    }
}

static int pack(const struct run *run, struct exec_request *head, struct buf *strings,
                struct cay_error *err)
{
    const struct cay_exec_options *options = &run->options;
    const char *cwd = options->cwd ? options->cwd : "";
    const char *user = options->user ? options->user : "user";

    *head = (struct exec_request){.timeout_ms = options->timeout_ms};
    buf_append(strings, cwd, strlen(cwd) + 1);
    buf_append(strings, user, strlen(user) + 1);
    for (const char *const *arg = options->argv; *arg; arg++, head->argc++)
        buf_append(strings, *arg, strlen(*arg) + 1);
    add_env(strings, run->native->env, &head->envc);
    add_env(strings, (char *const *)(uintptr_t)options->env, &head->envc);
    if (strings->failed || head->argc > EXEC_COUNT_MAX || head->envc > EXEC_COUNT_MAX)
        return cay_fail(err, CAY_E_INVALID, E2BIG, op, options->argv[0],
                        "the arguments and environment are too long",
                        "pass at most 2 MiB of them, and large data on stdin");
    head->strings_len = (uint32_t)strings->len;
    return CAY_OK;
}

/* Nothing was run. */
static int fail_dead(const struct run *run, int sys_errno, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, sys_errno, op, run->native->record.id,
                    "the sandbox does not answer", "it has ended; make a new one");
}

static int send_request(const struct run *run, const int stdio[3], struct cay_error *err)
{
    AUTO_BUF strings;
    AUTO_FREE char *payload = malloc(MESSAGE_MAX);
    struct exec_request head;
    int fds[4] = {stdio[0], stdio[1], stdio[2], -1};
    size_t len = sizeof head;
    AUTO_FD memfd = -1;

    buf_init(&strings, EXEC_STRINGS_MAX);
    int code = payload ? pack(run, &head, &strings, err) : cay_fail_memory(err, op);
    if (code)
        return code;
    head.in_memfd = strings.len > MESSAGE_MAX - sizeof head;
    if (head.in_memfd) {
        fds[3] = memfd = memfd_create("cay-strings", MFD_CLOEXEC);
        int error = memfd < 0 ? -errno : io_write(memfd, strings.data, strings.len);
        if (error)
            return cay_fail_errno(err, -error, op, NULL);
    } else {
        memcpy(payload + sizeof head, strings.data, strings.len);
        len += strings.len;
    }
    memcpy(payload, &head, sizeof head);
    int error = packet_send(run->native->socket, MESSAGE_EXEC, payload, len, fds,
                            3 + head.in_memfd);
    return error ? fail_dead(run, -error, err) : CAY_OK;
}

/* --- The pump --- */

static void shut(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void feed_input(struct run *run)
{
    const char *input = run->options.input;
    size_t left = run->options.input_len - run->input_at;
    ssize_t put = write(run->input, input + run->input_at, left);

    if (put > 0)
        run->input_at += (size_t)put;
    if ((put < 0 && errno != EAGAIN && errno != EINTR) ||
        run->input_at == run->options.input_len)
        shut(&run->input);
}

static void kill_run(struct run *run)
{
    if (!run->killed && !run->ended)
        (void)packet_send(run->native->socket, MESSAGE_KILL, NULL, 0, NULL, 0);
    run->killed = true;
}

/* 0 at the end of the stream, 1 if there may be more, or a negative errno. */
static int take_output(struct run *run, int index)
{
    ssize_t got = read(run->streams[index], run->piece, PIECE);

    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 1 : -errno;
    if (got == 0)
        return 0;
    if (run->options.on_output) {
        if (run->options.on_output(run->options.cookie, index + 1, run->piece,
                                   (size_t)got) != 0)
            kill_run(run);
        return 1;
    }
    struct tail *tail = &run->tails[index];
    if (!tail_add(tail, run->piece, (size_t)got))
        return -ENOMEM;
    if (tail->dropped && run->options.flags & CAY_EXEC_FAIL_ON_LIMIT) {
        run->over_limit = true;
        kill_run(run);
    }
    return 1;
}

/* What init says: the end, or that there was no beginning. */
static void take_news(struct run *run)
{
    struct packet *packet = malloc(sizeof *packet);
    int got = packet ? packet_receive(run->native->socket, packet) : -ENOMEM;

    if (got != 1) {
        run->gone = run->ended = got != -EAGAIN;
    } else if (packet->head.kind == MESSAGE_ENDED &&
               packet->head.len == sizeof run->end) {
        memcpy(&run->end, packet->payload, sizeof run->end);
        run->ended = true;
    } else if (packet->head.kind == MESSAGE_FAILED &&
               packet->head.len == sizeof run->failure) {
        memcpy(&run->failure, packet->payload, sizeof run->failure);
        run->ended = true;
    } else if (packet->head.kind == MESSAGE_STARTED && packet->head.fd_count == 1) {
        run->started = true;
    } else {
        run->gone = run->ended = true;
    }
    if (got == 1)
        packet_close_fds(packet);
    free(packet);
}

static int drain(struct run *run)
{
    for (int i = 0; i < 2; i++)
        for (;;) {
            struct pollfd ready = {.fd = run->streams[i], .events = POLLIN};
            if (run->streams[i] < 0 || poll(&ready, 1, 0) <= 0)
                break;
            int more = take_output(run, i);
            if (more < 0)
                return more;
            if (more == 0)
                shut(&run->streams[i]);
        }
    return 0;
}

static int pump(struct run *run)
{
    while (!run->ended) {
        struct pollfd fds[4] = {
            {.fd = run->native->socket, .events = POLLIN},
            {.fd = run->streams[0], .events = POLLIN},
            {.fd = run->streams[1], .events = POLLIN},
            {.fd = run->input, .events = POLLOUT},
        };
        if (poll(fds, 4, -1) < 0 && errno != EINTR)
            return -errno;
        if (fds[3].revents)
            feed_input(run);
        for (int i = 0; i < 2; i++)
            if (fds[1 + i].revents) {
                int more = take_output(run, i);
                if (more < 0)
                    return more;
                if (more == 0)
                    shut(&run->streams[i]);
            }
        if (fds[0].revents)
            take_news(run);
    }
    return drain(run);
}

/* --- The result --- */

static int convert(struct run *run, uint64_t kills_before, struct cay_exec_result *result,
                   struct cay_error *err)
{
    const struct exec_end *end = &run->end;

    if (run->failure.code && run->failure.code != CAY_E_EXEC_FAILED) {
        if (err)
            *err = run->failure;
        return run->failure.code;
    }
    if (run->failure.code) {
        result->cause = CAY_CAUSE_NOT_STARTED;
        result->exec_errno = run->failure.sys_errno;
        result->exit_code = run->failure.sys_errno == ENOENT ? 127 : 126;
        return CAY_OK;
    }
    if (run->gone && !run->started)
        return fail_dead(run, 0, err);
    if (run->gone) {
        result->cause = CAY_CAUSE_GONE;
        result->exit_code = 128 + SIGKILL;
        return CAY_OK;
    }
    result->signal = WIFSIGNALED(end->status) ? WTERMSIG(end->status) : 0;
    result->exit_code = result->signal ? 128 + result->signal : WEXITSTATUS(end->status);
    bool memory = result->signal == SIGKILL && end->cause == CAY_CAUSE_SIGNALLED &&
                  groups_memory_kills(&run->native->record.groups) > kills_before;
    result->cause = run->over_limit                   ? CAY_CAUSE_OUTPUT_LIMIT
                    : memory                          ? CAY_CAUSE_MEMORY
                    : end->cause == CAY_CAUSE_TIMEOUT ? CAY_CAUSE_TIMEOUT
                    : result->signal                  ? CAY_CAUSE_SIGNALLED
                                                      : CAY_CAUSE_EXITED;
    if (result->cause == CAY_CAUSE_TIMEOUT)
        result->exit_code = 124;
    result->user_us = end->user_us;
    result->system_us = end->system_us;
    result->wall_us = end->wall_us;
    result->peak_memory = end->peak_memory;
    return CAY_OK;
}

static int collect(struct run *run, struct cay_exec_result *result, struct cay_error *err)
{
    result->out_dropped = run->tails[0].dropped;
    result->error_dropped = run->tails[1].dropped;
    result->out = tail_take(&run->tails[0], &result->out_len);
    result->error = tail_take(&run->tails[1], &result->error_len);
    return result->out && result->error ? CAY_OK : cay_fail_memory(err, op);
}

static int run_command(struct run *run, int stdio[3], struct cay_exec_result *result,
                       struct cay_error *err)
{
    uint64_t kills = groups_memory_kills(&run->native->record.groups);
    int code = send_request(run, stdio, err);

    for (int i = 0; i < 3; i++)
        shut(&stdio[i]);
    if (code)
        return code;
    int error = pump(run);
    if (error)
        return cay_fail_errno(err, -error, op, run->options.argv[0]);
    code = convert(run, kills, result, err);
    return code ? code : collect(run, result, err);
}

/* Pipes of our own: no terminal, log file or socket of the caller's ever goes inside. */
static int open_stdio(struct run *run, int stdio[3], struct cay_error *err)
{
    int ends[2];

    for (int i = 0; i < 2; i++) {
        if (pipe2(ends, O_CLOEXEC) != 0)
            return cay_fail_errno(err, errno, op, "pipe");
        run->streams[i] = ends[0];
        stdio[1 + i] = ends[1];
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    if (!run->options.input) {
        stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return stdio[0] < 0 ? cay_fail_errno(err, errno, op, "/dev/null") : CAY_OK;
    }
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    stdio[0] = ends[0];
    run->input = ends[1];
    (void)fcntl(ends[1], F_SETFL, O_NONBLOCK);
    if (run->options.input_len == 0)
        shut(&run->input);
    return CAY_OK;
}

/* A reader that goes away is our business, not a reason to die. */
static void block_sigpipe(sigset_t *ret_before)
{
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, ret_before);
}

static void restore_sigpipe(const sigset_t *before)
{
    const struct timespec now = {0};
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!sigismember(before, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &now) > 0)
            continue;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

int native_exec(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err)
{
    struct native *native = cookie;
    struct run run = {.native = native, .input = -1, .streams = {-1, -1}};
    struct cay_exec_result result = {0};
    int stdio[3] = {-1, -1, -1};
    sigset_t before;

    int code = cay_take_struct(&run.options, sizeof run.options, options, op, err);
    if (code)
        return code;
    if (!run.options.argv || !run.options.argv[0])
        return cay_fail(err, CAY_E_INVALID, 0, op, "argv", "there is no command",
                        "give at least the name of a program");
    code = native_connect(native, err);
    if (code)
        return code;
    uint64_t limit =
        run.options.output_limit ? run.options.output_limit : CAY_OUTPUT_DEFAULT;
    tail_init(&run.tails[0], (size_t)limit);
    tail_init(&run.tails[1], (size_t)limit);
    run.piece = malloc(PIECE);
    code = run.piece ? open_stdio(&run, stdio, err) : cay_fail_memory(err, op);
    block_sigpipe(&before);
    if (!code)
        code = run_command(&run, stdio, &result, err);
    restore_sigpipe(&before);
    shut(&run.input);
    for (int i = 0; i < 3; i++) {
        shut(&stdio[i]);
        if (i < 2) {
            shut(&run.streams[i]);
            tail_done(&run.tails[i]);
        }
    }
    free(run.piece);
    if (code || run.gone)
        shut(&native->socket); /* its state is unknown: start afresh next time */
    if (code)
        cay_exec_done(&result);
    else
        *ret_result = result;
    return code;
}
