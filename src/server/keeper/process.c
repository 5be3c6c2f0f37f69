/* SPDX-License-Identifier: Apache-2.0 */

/* Processes, as the E2B contract has them: background commands of the sandbox, whose
 * output waits for who reads (CAY_EXEC_PIPED).  A stream is one client that reads one of
 * them; when the client is slow its channel fills up, then we stop to read, and then the
 * command waits. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/started.h"

enum { PIECE = CHANNEL_PACKET, PIECES_AT_A_TIME = 8 };

static char piece[PIECE];

/* --- The end of a command --- */

static void describe(const struct cay_exec_result *result, struct tell *tell,
                     char *status, size_t room)
{
    bool exited = result->cause == CAY_CAUSE_EXITED;
    const char *name = sigdescr_np(result->signal);

    *tell = (struct tell){.kind = TELL_ENDED, .count = 1};
    tell->numbers[END_EXITED] = exited;
    tell->numbers[END_EXIT_CODE] = exited ? result->exit_code : -1;
    tell->numbers[END_CAUSE] = result->cause;
    if (exited)
        snprintf(status, room, "exit status %d", result->exit_code);
    else
        snprintf(status, room, "signal: %s%s", name ? name : "unknown",
                 result->cause == CAY_CAUSE_MEMORY ? " (out of memory)" : "");
    for (char *at = status; *at; at++)
        *at = (char)tolower((unsigned char)*at);
}

static int tell_end(int channel, struct tell *tell, const char *status)
{
    AUTO_BUF strings = {0};

    buf_init(&strings, 256);
    strings_add(&strings, status);
    return tell_send(channel, tell, &strings, -1);
}

/* --- Streams --- */

struct stream {
    struct task task;
    struct keep_source output, client;
    cay_process *process;
    struct tell tell; /* of what is held */
    char *held;       /* what the channel did not take yet */
    size_t held_len;
    bool is_over; /* only its end is still to be told */
};

static struct stream *stream_of_client(struct keep_source *source)
{
    return (struct stream *)((char *)source - offsetof(struct stream, client));
}

static struct stream *stream_of_output(struct keep_source *source)
{
    return (struct stream *)((char *)source - offsetof(struct stream, output));
}

static void stream_done(struct task *task)
{
    struct stream *stream = (struct stream *)task;

    cay_process_free(stream->process);
    free(stream->held);
    free(stream);
}

static void stream_end(struct keep *keep, struct stream *stream)
{
    keep_forget(keep, cay_process_fd(stream->process));
    keep_forget(keep, stream->task.channel);
    stream->task.is_over = true;
}

static bool must_wait(int error)
{
    return error == -EAGAIN || error == -ENOBUFS;
}

/* Nothing more is read until the client has taken what there is. */
static void wait_for_client(struct keep *keep, struct stream *stream)
{
    keep_change(keep, cay_process_fd(stream->process), 0, &stream->output);
    keep_change(keep, stream->task.channel, EPOLLOUT | EPOLLRDHUP, &stream->client);
}

static void tell_over(struct keep *keep, struct stream *stream)
{
    struct cay_exec_result result = {0};
    struct cay_error error = {0};
    struct tell tell;
    char status[128], pid[16];
    int code = cay_process_wait(stream->process, 0, &result, &error);

    if (code == CAY_E_TIMEOUT)
        return;
    if (!code && result.cause == CAY_CAUSE_GONE)
        keep_end();
    if (!code && result.cause == CAY_CAUSE_TIMEOUT)
        code = cay_fail(&error, CAY_E_TIMEOUT, 0, "process", NULL,
                        "the time given for the command is over", "give it more time");
    describe(&result, &tell, status, sizeof status);
    cay_exec_done(&result);
    int sent = code ? tell_failed(stream->task.channel, 0, &error)
                    : tell_end(stream->task.channel, &tell, status);
    stream->is_over = true;
    if (must_wait(sent)) {
        wait_for_client(keep, stream);
        return;
    }
    snprintf(pid, sizeof pid, "%d", cay_process_pid(stream->process));
    struct started *started = *started_find(keep, pid);
    if (started) {
        started->end = tell;
        memcpy(started->status, status, sizeof status);
        started->ended_ms = keep_now_ms();
    }
    stream_end(keep, stream);
}

/* False if the client has to read first. */
static bool send_piece(struct keep *keep, struct stream *stream, const char *data,
                       size_t len)
{
    int error = tell_bytes(stream->task.channel, &stream->tell, data, len);

    if (must_wait(error)) {
        if (data == piece) {
            stream->held = malloc(len);
            stream->held_len = len;
            if (!stream->held) {
                stream_end(keep, stream);
                return false;
            }
            memcpy(stream->held, data, len);
        }
        wait_for_client(keep, stream);
        return false;
    }
    if (error)
        stream_end(keep, stream);
    return !error;
}

static void hear_output(struct keep *keep, struct keep_source *source, unsigned events)
{
    struct stream *stream = stream_of_output(source);

    (void)events;
    if (stream->task.is_over)
        return;
    for (int i = 0; i < PIECES_AT_A_TIME && !stream->held; i++) {
        struct cay_error error;
        uint64_t dropped = 0;
        size_t len = 0;
        int number = 0;
        int code = cay_process_read(stream->process, &number, piece, sizeof piece, &len,
                                    &dropped, &error);
        if (code) {
            (void)tell_failed(stream->task.channel, 0, &error);
            stream_end(keep, stream);
            return;
        }
        if (number < 0)
            tell_over(keep, stream);
        if (number <= 0)
            return;
        stream->tell = (struct tell){
            .kind = TELL_OUTPUT,
            .numbers = {[OUTPUT_STREAM] = number, [OUTPUT_DROPPED] = (int64_t)dropped}};
        if (!send_piece(keep, stream, piece, len))
            return;
    }
}

static void hear_client(struct keep *keep, struct keep_source *source, unsigned events)
{
    struct stream *stream = stream_of_client(source);

    if (stream->task.is_over)
        return;
    if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) {
        stream_end(keep, stream);
        return;
    }
    if (stream->is_over) {
        tell_over(keep, stream);
        return;
    }
    if (!stream->held || !send_piece(keep, stream, stream->held, stream->held_len))
        return;
    free(stream->held);
    stream->held = NULL;
    keep_change(keep, stream->task.channel, EPOLLRDHUP, &stream->client);
    keep_change(keep, cay_process_fd(stream->process), EPOLLIN, &stream->output);
}

/* The client is told of the start, and from then on of all that comes.  Takes the
 * process and the channel. */
static int stream_new(struct keep *keep, struct question *question, cay_process *process,
                      bool has_pty, struct cay_error *err)
{
    struct stream *stream = calloc(1, sizeof *stream);
    struct tell tell = {
        .kind = TELL_STARTED,
        .numbers = {
            [STARTED_PID] = cay_process_pid(process), [STARTED_HAS_PTY] = has_pty}};

    if (!stream) {
        cay_process_free(process);
        return cay_fail_memory(err, "process.stream");
    }
    stream->task.channel = question->channel;
    stream->task.done = stream_done;
    stream->process = process;
    stream->output.ready = hear_output;
    stream->client.ready = hear_client;
    question->channel = -1;
    (void)tell_send(stream->task.channel, &tell, NULL, -1);
    keep_add(keep, &stream->task);
    if (!keep_watch(keep, cay_process_fd(process), EPOLLIN, &stream->output) ||
        !keep_watch(keep, stream->task.channel, EPOLLRDHUP, &stream->client))
        stream_end(keep, stream);
    return CAY_OK;
}

/* --- Starting --- */

static int check_counts(const struct ask *head, struct cay_error *err)
{
    const int64_t *numbers = head->numbers;

    if (numbers[START_ARGS] >= 1 && numbers[START_ENV] >= 0 &&
        numbers[START_ARGS] <= head->count && numbers[START_ENV] <= head->count &&
        2 + numbers[START_ARGS] + numbers[START_ENV] == head->count &&
        numbers[START_TIMEOUT_MS] >= 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "process.start", NULL,
                    "the request is malformed", "name a command");
}

static int check_directory(struct keep *keep, const struct question *question,
                           char path[PATH_MAX], struct cay_error *err)
{
    const char *user = question->head.user;
    cay_files *files = keep_files(keep, user, err);
    struct cay_stat st;

    if (!files)
        return err->code;
    int code = entry_path(keep, user, question->strings[0], path, err);
    if (!code && (cay_files_stat(files, path, false, &st, NULL) != CAY_OK ||
                  st.type != CAY_TYPE_DIRECTORY))
        code = cay_fail(err, CAY_E_INVALID, 0, "process.start", path,
                        "the directory to start in does not exist",
                        "make it first, or leave cwd out");
    return code;
}

int keep_start(struct keep *keep, struct question *question, struct cay_error *err)
{
    const struct ask *head = &question->head;
    int64_t argc = head->numbers[START_ARGS];
    char cwd[PATH_MAX];
    cay_process *process = NULL;

    int code = check_counts(head, err);
    if (!code && *question->strings[0])
        code = check_directory(keep, question, cwd, err);
    if (code)
        return code;
    AUTO_FREE const char **argv = calloc((size_t)argc + 1, sizeof *argv);
    if (!argv)
        return cay_fail_memory(err, "process.start");
    memcpy(argv, question->strings + 2, (size_t)argc * sizeof *argv);
    AUTO_FREE const char **env = keep_identity_env(keep, question->strings + 2 + argc);
    if (!env)
        return cay_fail_memory(err, "process.start");
    const struct cay_exec_options options = {
        .size = sizeof options,
        .flags = CAY_EXEC_BACKGROUND | CAY_EXEC_PIPED |
                 (head->flags & START_PTY ? CAY_EXEC_TTY | CAY_EXEC_INPUT : 0u) |
                 (head->flags & START_INPUT ? (unsigned)CAY_EXEC_INPUT : 0u),
        .argv = argv,
        .env = env,
        .cwd = *question->strings[0] ? cwd : NULL,
        .user = *head->user ? head->user : NULL,
        .tag = *question->strings[1] ? question->strings[1] : NULL,
        .timeout_ms = (uint64_t)head->numbers[START_TIMEOUT_MS],
        .rows = (uint16_t)head->numbers[START_ROWS],
        .columns = (uint16_t)head->numbers[START_COLUMNS],
    };
    code = cay_process_start(keep->sandbox, &options, &process, err);
    if (code)
        return code;
    started_add(keep, question, cay_process_pid(process));
    return stream_new(keep, question, process, head->flags & START_PTY, err);
}

/* One that an earlier keeper has started is known to the sandbox only. */
static int has_terminal(struct keep *keep, int pid, bool *ret_has, struct cay_error *err)
{
    struct cay_process_info *infos = NULL;
    size_t count = 0;
    int code = cay_process_list(keep->sandbox, &infos, &count, err);

    *ret_has = false;
    for (size_t i = 0; i < count; i++)
        if (infos[i].pid == pid && infos[i].is_background)
            *ret_has = infos[i].has_terminal;
    cay_free(infos);
    return code;
}

/* Only what comes from now on, as a live listener would get it. */
int keep_attach(struct keep *keep, struct question *question, struct cay_error *err)
{
    const char *which = question->strings[0];
    cay_process *process = NULL;

    started_tidy(keep);
    struct started *started = *started_find(keep, which);
    if (started && started->ended_ms) {
        struct tell tell = {
            .kind = TELL_STARTED,
            .numbers = {
                [STARTED_PID] = started->pid, [STARTED_HAS_PTY] = started->has_pty}};
        (void)tell_send(question->channel, &tell, NULL, -1);
        (void)tell_end(question->channel, &started->end, started->status);
        return CAY_OK;
    }
    int code = cay_process_attach(keep->sandbox, which, &process, err);
    if (!code)
        code = cay_process_skip(process, err);
    bool has_pty = started && started->has_pty;
    if (!code && !started)
        code = has_terminal(keep, cay_process_pid(process), &has_pty, err);
    if (code) {
        cay_process_free(process);
        return code;
    }
    return stream_new(keep, question, process, has_pty, err);
}

cay_process *started_handle(struct keep *keep, int pid)
{
    for (struct task *task = keep->tasks; task; task = task->next) {
        const struct stream *stream = (const struct stream *)task;
        if (task->done == stream_done && !task->is_over &&
            cay_process_pid(stream->process) == pid)
            return stream->process;
    }
    return NULL;
}

/* --- Listing --- */

/* Of one that an earlier keeper has started only its words are known. */
static void tell_words(int channel, const struct cay_process_info *info)
{
    struct tell tell = {
        .kind = TELL_PROCESS, .numbers = {[PROCESS_PID] = info->pid}, .count = 2};
    AUTO_BUF strings = {0};
    char words[sizeof info->command];

    buf_init(&strings, CHANNEL_PACKET);
    strings_add(&strings, info->tag);
    strings_add(&strings, "");
    cay_copy_text(words, sizeof words, info->command);
    for (char *at = words; *at;) {
        size_t len = strcspn(at, " ");
        bool last = at[len] == '\0';
        at[len] = '\0';
        strings_add(&strings, at);
        tell.numbers[PROCESS_ARGS]++;
        tell.count++;
        at += last ? len : len + 1;
    }
    (void)tell_send(channel, &tell, &strings, -1);
}

static void tell_process(struct keep *keep, int channel,
                         const struct cay_process_info *info)
{
    char pid[16];

    snprintf(pid, sizeof pid, "%d", info->pid);
    const struct started *started = *started_find(keep, pid);
    if (!started || started->strings.failed) {
        tell_words(channel, info);
        return;
    }
    struct tell tell = {.kind = TELL_PROCESS,
                        .numbers = {[PROCESS_PID] = info->pid,
                                    [PROCESS_ARGS] = started->argc,
                                    [PROCESS_ENV] = started->envc},
                        .count = 1 + started->count};
    AUTO_BUF strings = {0};
    buf_init(&strings, CHANNEL_PACKET);
    strings_add(&strings, info->tag);
    (void)buf_append(&strings, started->strings.data, started->strings.len);
    (void)tell_send(channel, &tell, &strings, -1);
}

/* SDKs count the time of a command as well, from before their request came here: one that
 * hangs up so shortly before the end of the time takes the command to have ended. */
static bool has_run_out(struct keep *keep, const struct cay_process_info *info)
{
    enum { CLIENT_AHEAD_MS = 250 };
    char pid[16];

    snprintf(pid, sizeof pid, "%d", info->pid);
    const struct started *started = *started_find(keep, pid);
    return started && started->deadline_ms && !started_handle(keep, info->pid) &&
           keep_now_ms() >= started->deadline_ms - CLIENT_AHEAD_MS;
}

int keep_processes(struct keep *keep, struct question *question, struct cay_error *err)
{
    struct cay_process_info *infos = NULL;
    size_t count = 0;
    int code = cay_process_list(keep->sandbox, &infos, &count, err);

    if (code)
        return code;
    for (size_t i = 0; i < count; i++)
        if (infos[i].is_background && !infos[i].has_ended &&
            !has_run_out(keep, &infos[i]) && keep_wait(question->channel, NULL) == CAY_OK)
            tell_process(keep, question->channel, &infos[i]);
    cay_free(infos);
    (void)tell_done(question->channel);
    return CAY_OK;
}
