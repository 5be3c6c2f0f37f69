/* SPDX-License-Identifier: Apache-2.0 */

/* Processes, as the E2B contract has them: background commands of the sandbox, whose
 * output waits for who reads (CAY_EXEC_PIPED).  A stream is one client that reads one of
 * them; when the client is slow its channel fills up, then we stop to read, and then the
 * command waits. */
#include <ctype.h>
#include <errno.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

/* A command of ours: how it was started, and for a while how it ended. */
struct started {
    struct started *next;
    int pid;
    char tag[64];
    bool has_pty;
    uint32_t argc, envc, count;
    struct buf strings;  /* cwd, argv, env */
    int64_t deadline_ms; /* 0: none */
    int64_t ended_ms;    /* 0: it runs, as far as we know */
    struct tell end;
    char status[128];
};

/* The handle of a stream that reads it, or NULL. */
static cay_process *started_handle(struct keep *keep, int pid);

/* What was started, and what is done to it besides reading its output. */

enum {
    RETAINED_MS = 30000, /* an end can be heard of for so long */
    STARTED_MAX = 1024,  /* more than run at a time */
    INPUT_MAX = 6 << 20,
    INPUT_SMALL = 64 << 10,  /* is always taken: who sends it waits for it */
    INPUT_WAITING = 64 << 20 /* of all that is larger */
};

static void auto_cay_process(cay_process **process)
{
    cay_process_free(*process);
}

#define AUTO_PROCESS __attribute__((cleanup(auto_cay_process))) cay_process *

/* --- What was started --- */

/* By number or tag: where the pointer to it is, which points to NULL if there is none. */
static struct started **started_find(struct keep *keep, const char *which)
{
    struct started **link = &keep->started;
    char *end;
    long pid = strtol(which, &end, 10);

    while (*link && (*end ? strcmp((*link)->tag, which) != 0 : (*link)->pid != pid))
        link = &(*link)->next;
    return link;
}

static void drop_started(struct started **link)
{
    struct started *started = *link;

    *link = started->next;
    buf_done(&started->strings);
    free(started);
}

/* Forgets those that ended some time ago. */
static void started_tidy(struct keep *keep)
{
    struct started **link = &keep->started;
    unsigned count = 0;

    while (*link) {
        const struct started *started = *link;
        bool is_old =
            started->ended_ms && keep_now_ms() - started->ended_ms > RETAINED_MS;
        if (is_old || ++count > STARTED_MAX)
            drop_started(link);
        else
            link = &(*link)->next;
    }
}

static void started_add(struct keep *keep, const struct question *question, int pid)
{
    struct started *started = calloc(1, sizeof *started);
    const char **strings = question->strings;

    started_tidy(keep);
    if (!started)
        return;
    started->pid = pid;
    started->has_pty = question->head.flags & START_PTY;
    if (question->head.numbers[START_TIMEOUT_MS] > 0)
        started->deadline_ms = keep_now_ms() + question->head.numbers[START_TIMEOUT_MS];
    started->argc = (uint32_t)question->head.numbers[START_ARGS];
    started->envc = (uint32_t)question->head.numbers[START_ENV];
    started->count = 1 + started->argc + started->envc;
    cay_copy_text(started->tag, sizeof started->tag, strings[1]);
    buf_init(&started->strings, CHANNEL_PACKET - 128);
    strings_add(&started->strings, strings[0]);
    for (uint32_t i = 0; i < started->argc + started->envc; i++)
        strings_add(&started->strings, strings[2 + i]);
    started->next = keep->started;
    keep->started = started;
}

/* --- Acting on one --- */

/* The handle of a stream that is there, or one of our own for the moment. */
static int reach(struct keep *keep, const char *which, cay_process **ret_process,
                 cay_process **ret_own, struct cay_error *err)
{
    const struct started *started = *started_find(keep, which);

    *ret_process = started ? started_handle(keep, started->pid) : NULL;
    if (*ret_process)
        return CAY_OK;
    if (started && started->ended_ms)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "process.find", which,
                        "the process has ended", "list the processes");
    int code = cay_process_attach(keep->sandbox, which, ret_own, err);
    *ret_process = *ret_own;
    return code;
}

int keep_signal(struct keep *keep, struct question *question, struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    int code = reach(keep, question->strings[0], &process, &own, err);

    if (!code)
        code =
            cay_process_signal(process, (int)question->head.numbers[SIGNAL_NUMBER], err);
    if (!code)
        (void)tell_done(question->channel);
    return code;
}

int keep_resize(struct keep *keep, struct question *question, struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    const int64_t *numbers = question->head.numbers;
    int code = reach(keep, question->strings[0], &process, &own, err);

    if (!code)
        code = cay_process_resize(process, (uint16_t)numbers[RESIZE_ROWS],
                                  (uint16_t)numbers[RESIZE_COLUMNS], err);
    if (!code)
        (void)tell_done(question->channel);
    return code;
}

int keep_close_input(struct keep *keep, struct question *question, struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    const struct started *started = *started_find(keep, question->strings[0]);
    int code = reach(keep, question->strings[0], &process, &own, err);

    if (!code && started && started->has_pty)
        code = cay_fail(err, CAY_E_PROTOCOL, 0, "process.close-input", NULL,
                        "a terminal has no input that could be closed",
                        "send ^D as input instead");
    if (!code)
        code = cay_process_close_input(process, err);
    if (!code)
        (void)tell_done(question->channel);
    return code;
}

/* --- Input --- */

/* Input that the command does not take yet: tried again and again. */
struct input {
    struct task task;
    char which[64];
    int pid; /* what that means, as soon as it is known */
    size_t len, at;
    unsigned char data[];
};

static void input_done(struct task *task)
{
    free(task);
}

/* Whether some that came before it for the same process is still there: later tasks lead
 * to earlier ones. */
static bool has_to_wait(const struct input *input)
{
    for (const struct task *task = input->task.next; task; task = task->next)
        if (task->done == input_done && !task->is_over &&
            ((const struct input *)task)->pid == input->pid)
            return true;
    return false;
}

static size_t input_waiting(const struct keep *keep)
{
    size_t len = 0;

    for (const struct task *task = keep->tasks; task; task = task->next)
        if (task->done == input_done && !task->is_over)
            len += ((const struct input *)task)->len;
    return len;
}

static void feed(struct keep *keep, struct task *task)
{
    struct input *input = (struct input *)task;
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    struct cay_error error;
    size_t put = 0;
    char gone;
    int code = reach(keep, input->which, &process, &own, &error);

    if (!code)
        input->pid = cay_process_pid(process);
    bool waits = !code && has_to_wait(input);
    if (!code && !waits)
        code = cay_process_write(process, input->data + input->at, input->len - input->at,
                                 &put, &error);
    input->at += put;
    if (code)
        (void)tell_failed(task->channel, 0, &error);
    else if (input->at == input->len && !waits)
        (void)tell_done(task->channel);
    else if (recv(task->channel, &gone, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
        return; /* who asked still waits */
    task->is_over = true;
}

static int fail_input(const char *message, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, "process.input", NULL, message,
                    "send base64, at most %d bytes at a time", INPUT_MAX);
}

static int fail_waiting(struct cay_error *err)
{
    char message[96];

    snprintf(message, sizeof message,
             "at most %d MiB of input can wait for the processes of a sandbox",
             INPUT_WAITING >> 20);
    return cay_fail(err, CAY_E_LIMIT, 0, "process.input", NULL, message,
                    "send more when they have read it");
}

int keep_input(struct keep *keep, struct question *question, struct cay_error *err)
{
    const char *text = question->strings[1];
    size_t text_len = strlen(text), len = BASE64_DECODE_LENGTH(text_len);
    const struct started *started = *started_find(keep, question->strings[0]);
    bool is_pty = question->head.numbers[INPUT_IS_PTY];
    struct base64_decode_ctx base64;

    if (len > INPUT_MAX)
        return fail_input("that is too much input at once", err);
    if (len > INPUT_SMALL && input_waiting(keep) + len > INPUT_WAITING)
        return fail_waiting(err);
    if (started && started->has_pty != is_pty)
        return cay_fail(err, CAY_E_INTERNAL, 0, "process.input", NULL,
                        is_pty ? "tty not assigned to process"
                               : "tty assigned to process",
                        "send %s input", started->has_pty ? "pty" : "stdin");
    struct input *input = calloc(1, sizeof *input + len);
    if (!input)
        return cay_fail_memory(err, "process.input");
    base64_decode_init(&base64);
    input->len = len;
    if (!base64_decode_update(&base64, &input->len, input->data, text_len, text) ||
        !base64_decode_final(&base64)) {
        free(input);
        return fail_input("the input is not base64", err);
    }
    cay_copy_text(input->which, sizeof input->which, question->strings[0]);
    input->task.channel = question->channel;
    input->task.done = input_done;
    input->task.tick = feed;
    question->channel = -1;
    keep_add(keep, &input->task);
    feed(keep, &input->task);
    return CAY_OK;
}

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

static cay_process *started_handle(struct keep *keep, int pid)
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
