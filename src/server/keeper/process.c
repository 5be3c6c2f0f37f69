/* SPDX-License-Identifier: Apache-2.0 */

/* Processes of E2B's API: background commands of the sandbox, whose output blocks until
 * it is read (CAY_EXEC_PIPED).  A stream is a client that reads the output of one
 * command. If the client is slow, its channel fills up, the keeper stops reading, and the
 * command blocks. */
#include <ctype.h>
#include <errno.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/signal.h"
#include "cay/approval.h"
#include "server/keeper/keeper.h"

/* A command started by this keeper: its configuration, and for a while its exit status.
 */
struct command {
    struct command *next;
    int pid;
    char tag[64];
    bool has_pty;
    uint32_t argc, envc, count;
    struct buf strings;  /* cwd, argv, env */
    int64_t deadline_ms; /* 0: none */
    int64_t ended_ms;    /* 0: running, as far as known */
    struct reply end;
    char status[128];
};

/* The handle of a stream that reads the command's output, or NULL. */
static cay_process *command_handle(struct keeper *keeper, int pid);

/* Requests about processes, other than reading output. */

enum {
    RETAINED_MS = 30000, /* how long the exit status is kept */
    COMMANDS_MAX = 1024, /* more than can run at the same time */
    INPUT_MAX = 6 << 20,
    INPUT_SMALL = 64 << 10,  /* always accepted: the client waits until it was read */
    INPUT_WAITING = 64 << 20 /* total of larger input */
};

static void auto_cay_process(cay_process **process)
{
    cay_process_free(*process);
}

#define AUTO_PROCESS __attribute__((cleanup(auto_cay_process))) cay_process *

/* --- Commands --- */

/* By pid or tag; NULL if there is none. */
static struct command *find_command(struct keeper *keeper, const char *which)
{
    struct command *command = keeper->commands;
    char *end;
    long pid = strtol(which, &end, 10);

    while (command && (*end ? strcmp(command->tag, which) != 0 : command->pid != pid))
        command = command->next;
    return command;
}

static struct command *command_of(struct keeper *keeper, int pid)
{
    struct command *command = keeper->commands;

    while (command && command->pid != pid)
        command = command->next;
    return command;
}

/* Removes commands that ended some time ago. */
static void drop_commands(struct keeper *keeper, unsigned most)
{
    struct command **link = &keeper->commands;
    unsigned count = 0;

    while (*link) {
        struct command *command = *link;
        bool is_old =
            command->ended_ms && keeper_now_ms() - command->ended_ms > RETAINED_MS;
        if (!is_old && ++count <= most) {
            link = &command->next;
            continue;
        }
        *link = command->next;
        buf_done(&command->strings);
        free(command);
    }
}

static void prune_commands(struct keeper *keeper)
{
    drop_commands(keeper, COMMANDS_MAX);
}

void keeper_forget_commands(struct keeper *keeper)
{
    drop_commands(keeper, 0);
}

static void add_command(struct keeper *keeper, const struct keeper_request *request,
                        int pid, int64_t arrived_ms)
{
    struct command *command = calloc(1, sizeof *command);
    const char **strings = request->strings;

    prune_commands(keeper);
    if (!command)
        return;
    command->pid = pid;
    command->has_pty = request->head.flags & START_PTY;
    if (request->head.numbers[START_TIMEOUT_MS] > 0)
        command->deadline_ms = arrived_ms + request->head.numbers[START_TIMEOUT_MS];
    command->argc = (uint32_t)request->head.numbers[START_ARGS];
    command->envc = (uint32_t)request->head.numbers[START_ENV];
    command->count = 1 + command->argc + command->envc;
    cay_copy_text(command->tag, sizeof command->tag, strings[1]);
    buf_init(&command->strings, CHANNEL_PACKET - 128);
    strings_add(&command->strings, strings[0]);
    for (uint32_t i = 0; i < command->argc + command->envc; i++)
        strings_add(&command->strings, strings[2 + i]);
    command->next = keeper->commands;
    keeper->commands = command;
}

/* --- Commands of an earlier keeper --- */

/* A command as the next keeper gets it, followed by its strings.  Those of a command that
 * ended are not needed any more: only its exit status can be requested. */
struct saved_command {
    struct command command; /* its pointers are not used */
    uint32_t strings_len;
};

void keeper_save_commands(struct keeper *keeper, struct buf *state)
{
    uint32_t count = 0;

    prune_commands(keeper);
    for (const struct command *command = keeper->commands; command;
         command = command->next)
        count++;
    (void)buf_append(state, &count, sizeof count);
    for (const struct command *command = keeper->commands; command;
         command = command->next) {
        struct saved_command saved = {.command = *command};
        saved.command.next = NULL;
        saved.command.strings = (struct buf){.failed = command->strings.failed};
        saved.strings_len = command->ended_ms ? 0 : (uint32_t)command->strings.len;
        (void)buf_append(state, &saved, sizeof saved);
        (void)buf_append(state, command->strings.data, saved.strings_len);
    }
}

size_t keeper_restore_commands(struct keeper *keeper, const char *state, size_t len)
{
    struct command **link = &keeper->commands;
    struct saved_command saved;
    size_t at = sizeof(uint32_t);
    uint32_t count;

    if (len < at)
        return 0;
    memcpy(&count, state, sizeof count);
    for (; count > 0; count--) {
        struct command *command = calloc(1, sizeof *command);
        if (!command || len - at < sizeof saved) {
            free(command);
            return 0;
        }
        memcpy(&saved, state + at, sizeof saved);
        at += sizeof saved;
        if (saved.strings_len > len - at) {
            free(command);
            return 0;
        }
        *command = saved.command;
        command->next = NULL;
        command->strings = (struct buf){.max = CHANNEL_PACKET - 128};
        (void)buf_append(&command->strings, state + at, saved.strings_len);
        command->strings.failed |= saved.command.strings.failed;
        at += saved.strings_len;
        *link = command;
        link = &command->next;
    }
    return at;
}

/* --- Requests about a command --- */

/* The handle of an existing stream, or a temporary one. */
static int reach(struct keeper *keeper, const char *which, cay_process **ret_process,
                 cay_process **ret_own, struct cay_error *err)
{
    const struct command *command = find_command(keeper, which);

    *ret_process = command ? command_handle(keeper, command->pid) : NULL;
    if (*ret_process)
        return CAY_OK;
    if (command && command->ended_ms)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "process.find", which,
                        "the process has ended", "list the processes");
    int code = cay_process_attach(keeper->sandbox, which, ret_own, err);
    *ret_process = *ret_own;
    return code;
}

int keeper_op_signal(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    int code = reach(keeper, request->strings[0], &process, &own, err);

    if (!code)
        code =
            cay_process_signal(process, (int)request->head.numbers[SIGNAL_NUMBER], err);
    return code ? code : KEEPER_DONE;
}

int keeper_op_resize(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    const int64_t *numbers = request->head.numbers;
    int code = reach(keeper, request->strings[0], &process, &own, err);

    if (!code)
        code = cay_process_resize(process, (uint16_t)numbers[RESIZE_ROWS],
                                  (uint16_t)numbers[RESIZE_COLUMNS], err);
    return code ? code : KEEPER_DONE;
}

int keeper_op_close_input(struct keeper *keeper, struct keeper_request *request,
                          struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    const struct command *command = find_command(keeper, request->strings[0]);
    int code = reach(keeper, request->strings[0], &process, &own, err);

    if (!code && command && command->has_pty)
        code = cay_fail(err, CAY_E_PROTOCOL, 0, "process.close-input", NULL,
                        "the input of a terminal cannot be closed", "send ^D instead");
    if (!code)
        code = cay_process_close_input(process, err);
    return code ? code : KEEPER_DONE;
}

/* --- Input --- */

/* Input that the process has not read; retried every tick. */
struct input {
    struct task task;
    char which[64];
    int pid; /* of `which`, once known */
    size_t len, at;
    unsigned char data[];
};

static void input_done(struct task *task)
{
    free(task);
}

/* Whether earlier input for the same process is still pending: newer tasks come first in
 * the list. */
static bool has_to_wait(const struct input *input)
{
    for (const struct task *task = input->task.next; task; task = task->next)
        if (task->done == input_done && !task->is_over &&
            ((const struct input *)task)->pid == input->pid)
            return true;
    return false;
}

static void feed(struct keeper *keeper, struct task *task)
{
    struct input *input = (struct input *)task;
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    struct cay_error error;
    size_t put = 0;
    char gone;
    int code = reach(keeper, input->which, &process, &own, &error);

    if (!code)
        input->pid = cay_process_pid(process);
    bool waits = !code && has_to_wait(input);
    if (!code && !waits)
        code = cay_process_write(process, input->data + input->at, input->len - input->at,
                                 &put, &error);
    input->at += put;
    if (code)
        (void)reply_send_error(task->channel, 0, &error);
    else if (input->at == input->len && !waits)
        (void)reply_send_done(task->channel);
    else if (recv(task->channel, &gone, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
        return; /* the client still waits */
    task->is_over = true;
}

static int fail_input(const char *message, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, "process.input", NULL, message,
                    "send base64, at most %d bytes per request", INPUT_MAX);
}

int keeper_op_input(struct keeper *keeper, struct keeper_request *request,
                    struct cay_error *err)
{
    const char *text = request->strings[1];
    size_t text_len = strlen(text), len = BASE64_DECODE_LENGTH(text_len);
    const struct command *command = find_command(keeper, request->strings[0]);
    bool is_pty = request->head.numbers[INPUT_IS_PTY];
    struct base64_decode_ctx base64;
    size_t waiting = len;

    if (len > INPUT_MAX)
        return fail_input("too much input in one request", err);
    for (const struct task *task = keeper->tasks; task; task = task->next)
        if (task->done == input_done && !task->is_over)
            waiting += ((const struct input *)task)->len;
    if (len > INPUT_SMALL && waiting > INPUT_WAITING)
        return cay_fail(err, CAY_E_LIMIT, 0, "process.input", NULL,
                        "at most 64 MiB of input can be pending in a sandbox",
                        "wait until the processes have read it");
    if (command && command->has_pty != is_pty)
        return cay_fail(err, CAY_E_INTERNAL, 0, "process.input", NULL,
                        is_pty ? "tty not assigned to process"
                               : "tty assigned to process",
                        "send %s input", command->has_pty ? "pty" : "stdin");
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
    cay_copy_text(input->which, sizeof input->which, request->strings[0]);
    input->task.channel = request->channel;
    input->task.done = input_done;
    input->task.tick = feed;
    request->channel = -1;
    keeper_add_task(keeper, &input->task);
    feed(keeper, &input->task);
    return CAY_OK;
}

enum { PIECE = CHANNEL_PACKET, PIECES_AT_A_TIME = 8 };

static char piece[PIECE];

/* --- Exit status --- */

/* The exit status as numbers, and as text in lower case. */
static void describe(const struct cay_exec_result *result, struct reply *reply,
                     char *status, size_t room)
{
    bool exited = result->cause == CAY_CAUSE_EXITED;

    *reply = (struct reply){.kind = REPLY_ENDED, .count = 1};
    reply->numbers[END_EXITED] = exited;
    reply->numbers[END_EXIT_CODE] = exited ? result->exit_code : -1;
    if (exited)
        snprintf(status, room, "exit status %d", result->exit_code);
    else
        snprintf(status, room, "signal: %s%s", signal_words(result->signal),
                 result->cause == CAY_CAUSE_MEMORY ? " (out of memory)" : "");
    for (char *at = status; *at; at++)
        *at = (char)tolower((unsigned char)*at);
}

static int send_end(int channel, struct reply *reply, const char *status)
{
    AUTO_BUF strings = {.max = 256};

    strings_add(&strings, status);
    return reply_send(channel, reply, &strings, -1);
}

/* --- Streams --- */

struct stream {
    struct task task;
    struct keeper_source output, client;
    cay_process *process;
    struct reply reply; /* header of the pending packet */
    char *held;         /* packet that the channel did not accept yet */
    size_t held_len;
    bool is_over; /* only the exit status is still to be sent */
};

static void stream_done(struct task *task)
{
    struct stream *stream = (struct stream *)task;

    cay_process_free(stream->process);
    free(stream->held);
    free(stream);
}

static void stream_end(struct keeper *keeper, struct stream *stream)
{
    keeper_poll_remove(keeper, cay_process_fd(stream->process));
    keeper_poll_remove(keeper, stream->task.channel);
    stream->task.is_over = true;
}

static bool must_wait(int error)
{
    return error == -EAGAIN || error == -ENOBUFS;
}

/* Stops reading output until the client has read the pending packet. */
static void wait_for_client(struct keeper *keeper, struct stream *stream)
{
    keeper_poll_modify(keeper, cay_process_fd(stream->process), 0, &stream->output);
    keeper_poll_modify(keeper, stream->task.channel, EPOLLOUT | EPOLLRDHUP,
                       &stream->client);
}

static void send_exit(struct keeper *keeper, struct stream *stream)
{
    struct cay_exec_result result = {0};
    struct cay_error error = {0};
    struct reply reply;
    char status[128];
    int code = cay_process_wait(stream->process, 0, &result, &error);

    if (code == CAY_E_TIMEOUT)
        return;
    if (!code && result.cause == CAY_CAUSE_GONE)
        keeper_exit();
    if (!code && result.cause == CAY_CAUSE_TIMEOUT)
        code = cay_fail(&error, CAY_E_TIMEOUT, 0, "process", NULL,
                        "the command exceeded its timeout", "use a longer timeout");
    describe(&result, &reply, status, sizeof status);
    cay_exec_done(&result);
    int sent = code ? reply_send_error(stream->task.channel, 0, &error)
                    : send_end(stream->task.channel, &reply, status);
    stream->is_over = true;
    if (must_wait(sent)) {
        wait_for_client(keeper, stream);
        return;
    }
    struct command *command = command_of(keeper, cay_process_pid(stream->process));
    if (command) {
        command->end = reply;
        memcpy(command->status, status, sizeof status);
        command->ended_ms = keeper_now_ms();
    }
    stream_end(keeper, stream);
}

/* False if the client has to read first. */
static bool send_piece(struct keeper *keeper, struct stream *stream, char *data,
                       size_t len)
{
    const struct buf bytes = {.data = data, .len = len};
    int error = reply_send(stream->task.channel, &stream->reply, &bytes, -1);

    if (must_wait(error)) {
        if (data == piece) {
            stream->held = malloc(len);
            stream->held_len = len;
            if (!stream->held) {
                stream_end(keeper, stream);
                return false;
            }
            memcpy(stream->held, data, len);
        }
        wait_for_client(keeper, stream);
        return false;
    }
    if (error)
        stream_end(keeper, stream);
    return !error;
}

static void on_output(struct keeper *keeper, struct keeper_source *source,
                      unsigned events)
{
    struct stream *stream =
        (struct stream *)((char *)source - offsetof(struct stream, output));

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
            (void)reply_send_error(stream->task.channel, 0, &error);
            stream_end(keeper, stream);
            return;
        }
        if (number < 0)
            send_exit(keeper, stream);
        if (number <= 0)
            return;
        stream->reply =
            (struct reply){.kind = REPLY_OUTPUT, .numbers = {[OUTPUT_STREAM] = number}};
        if (!send_piece(keeper, stream, piece, len))
            return;
    }
}

static void on_client(struct keeper *keeper, struct keeper_source *source,
                      unsigned events)
{
    struct stream *stream =
        (struct stream *)((char *)source - offsetof(struct stream, client));

    if (stream->task.is_over)
        return;
    if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) {
        stream_end(keeper, stream);
        return;
    }
    if (stream->is_over) {
        send_exit(keeper, stream);
        return;
    }
    if (!stream->held || !send_piece(keeper, stream, stream->held, stream->held_len))
        return;
    free(stream->held);
    stream->held = NULL;
    keeper_poll_modify(keeper, stream->task.channel, EPOLLRDHUP, &stream->client);
    keeper_poll_modify(keeper, cay_process_fd(stream->process), EPOLLIN, &stream->output);
}

/* Sends REPLY_STARTED, then all output.  Takes over the process and the channel. */
static int stream_new(struct keeper *keeper, struct keeper_request *request,
                      cay_process *process, bool has_pty, struct cay_error *err)
{
    struct stream *stream = calloc(1, sizeof *stream);
    struct reply reply = {
        .kind = REPLY_STARTED,
        .numbers = {
            [STARTED_PID] = cay_process_pid(process), [STARTED_HAS_PTY] = has_pty}};

    if (!stream) {
        cay_process_free(process);
        return cay_fail_memory(err, "process.stream");
    }
    stream->task.channel = request->channel;
    stream->task.done = stream_done;
    stream->process = process;
    stream->output.ready = on_output;
    stream->client.ready = on_client;
    request->channel = -1;
    (void)reply_send(stream->task.channel, &reply, NULL, -1);
    keeper_add_task(keeper, &stream->task);
    if (!keeper_poll_add(keeper, cay_process_fd(process), EPOLLIN, &stream->output) ||
        !keeper_poll_add(keeper, stream->task.channel, EPOLLRDHUP, &stream->client))
        stream_end(keeper, stream);
    return CAY_OK;
}

/* --- Starting --- */

/* A command with the memory that its options point to. */
struct launch {
    struct cay_exec_options options;
    const char **argv, **env;
};

static void launch_done(struct launch *launch)
{
    free(launch->argv);
    free(launch->env);
}

#define AUTO_LAUNCH __attribute__((cleanup(launch_done))) struct launch

static int launch_init(const struct keeper *keeper, const struct request *head,
                       const char *const *strings, const char *cwd,
                       struct launch *ret_launch, struct cay_error *err)
{
    int64_t argc = head->numbers[START_ARGS];
    struct launch *launch = ret_launch;

    launch->argv = calloc((size_t)argc + 1, sizeof *launch->argv);
    launch->env = keeper_identity_env(keeper, strings + 2 + argc);
    if (!launch->argv || !launch->env)
        return cay_fail_memory(err, "process.start");
    memcpy(launch->argv, strings + 2, (size_t)argc * sizeof *launch->argv);
    launch->options = (struct cay_exec_options){
        .size = sizeof launch->options,
        .flags = CAY_EXEC_BACKGROUND | CAY_EXEC_PIPED |
                 (head->flags & START_PTY ? CAY_EXEC_TTY | CAY_EXEC_INPUT : 0u) |
                 (head->flags & START_INPUT ? (unsigned)CAY_EXEC_INPUT : 0u),
        .argv = launch->argv,
        .env = launch->env,
        .cwd = *cwd ? cwd : NULL,
        .user = *head->user ? head->user : NULL,
        .tag = *strings[1] ? strings[1] : NULL,
        .timeout_ms = (uint64_t)head->numbers[START_TIMEOUT_MS],
        .rows = (uint16_t)head->numbers[START_ROWS],
        .columns = (uint16_t)head->numbers[START_COLUMNS],
    };
    return CAY_OK;
}

/* A command that waits for approval.  Its request stays in the queue if the client or
 * this process ends, and the next command that is the same gets its reply. */
struct waiting {
    struct task task;
    struct request head;
    char id[CAY_PENDING_ID_MAX], cwd[PATH_MAX];
    const char **strings; /* and their text */
    size_t size;          /* of both */
};

/* Clients may send the same command any number of times, and a request is up to
 * CHANNEL_STRINGS, which this process has until there is a reply. */
enum { REPLY_LOOK_MS = 250, WAITING_MAX = 256, WAITING_BYTES = 16 << 20 };

static void waiting_done(struct task *task)
{
    free(((struct waiting *)task)->strings);
    free(task);
}

static const char **copy_strings(const char *const *strings, uint32_t count,
                                 size_t *ret_size)
{
    size_t len = 0;

    for (uint32_t i = 0; i < count; i++)
        len += strlen(strings[i]) + 1;
    *ret_size = (count + 1) * sizeof(char *) + len;
    const char **copy = malloc(*ret_size);
    char *at = copy ? (char *)(copy + count + 1) : NULL;
    for (uint32_t i = 0; at && i < count; i++) {
        size_t size = strlen(strings[i]) + 1;
        copy[i] = memcpy(at, strings[i], size);
        at += size;
    }
    if (copy)
        copy[count] = NULL;
    return copy;
}

static void look_for_reply(struct keeper *keeper, struct task *task)
{
    struct waiting *waiting = (struct waiting *)task;
    struct keeper_request request = {waiting->head, task->channel, waiting->strings};
    AUTO_LAUNCH launch = {.argv = NULL};
    cay_process *process = NULL;
    struct cay_error error = {0};
    char gone;

    task->is_over = recv(task->channel, &gone, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    if (task->is_over)
        return;
    int code = launch_init(keeper, &waiting->head, waiting->strings, waiting->cwd,
                           &launch, &error);
    if (!code)
        code = cay_process_start_approved(keeper->sandbox, &launch.options, waiting->id,
                                          &process, &error);
    if (!code && !process) {
        task->due_ms = keeper_now_ms() + REPLY_LOOK_MS;
        return;
    }
    task->is_over = true;
    if (!code) {
        add_command(keeper, &request, cay_process_pid(process), keeper_now_ms());
        task->channel = -1; /* of the stream now */
        code = stream_new(keeper, &request, process, waiting->head.flags & START_PTY,
                          &error);
    }
    if (code && keeper_sandbox_is_gone(keeper, code))
        keeper_exit();
    if (code)
        (void)reply_send_error(request.channel, 0, &error);
    if (code && task->channel < 0)
        (void)close(request.channel);
}

static int check_room(const struct keeper *keeper, size_t size, struct cay_error *err)
{
    size_t count = 1;

    for (const struct task *task = keeper->tasks; task; task = task->next)
        if (task->tick == look_for_reply && !task->is_over) {
            size += ((const struct waiting *)task)->size;
            count++;
        }
    if (count <= WAITING_MAX && size <= WAITING_BYTES)
        return CAY_OK;
    return cay_fail(err, CAY_E_LIMIT, 0, "process.start", NULL,
                    "too many commands of the sandbox wait for approval",
                    "the limits are %d commands, and %d MiB of arguments and variables",
                    WAITING_MAX, WAITING_BYTES >> 20);
}

static int wait_for_reply(struct keeper *keeper, struct keeper_request *request,
                          const char *id, const char *cwd, struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_WAITING, .count = 1};
    size_t size = 0;
    const char **copy = copy_strings(request->strings, request->head.count, &size);
    struct waiting *waiting = copy ? calloc(1, sizeof *waiting) : NULL;
    AUTO_BUF strings = {.max = CAY_PENDING_ID_MAX};
    int code =
        waiting ? check_room(keeper, size, err) : cay_fail_memory(err, "process.start");

    if (code) {
        free(copy);
        free(waiting);
        return code;
    }
    waiting->strings = copy;
    waiting->size = size;
    waiting->head = request->head;
    cay_copy_text(waiting->id, sizeof waiting->id, id);
    cay_copy_text(waiting->cwd, sizeof waiting->cwd, cwd);
    waiting->task = (struct task){
        .channel = request->channel, .done = waiting_done, .tick = look_for_reply};
    request->channel = -1;
    strings_add(&strings, id);
    (void)reply_send(waiting->task.channel, &reply, &strings, -1);
    keeper_add_task(keeper, &waiting->task);
    return CAY_OK;
}

static int find_directory(struct keeper *keeper, const char *user, const char *path,
                          char ret_cwd[PATH_MAX], struct cay_error *err)
{
    cay_files *files = keeper_files(keeper, user, err);
    struct cay_stat st;
    int code = files ? entry_path(keeper, user, path, ret_cwd, err) : err->code;

    if (code)
        return code;
    if (cay_files_stat(files, ret_cwd, false, &st, NULL) != CAY_OK ||
        st.type != CAY_TYPE_DIRECTORY)
        return cay_fail(err, CAY_E_INVALID, 0, "process.start", ret_cwd,
                        "the working directory does not exist",
                        "create it first, or omit cwd");
    return CAY_OK;
}

int keeper_op_start(struct keeper *keeper, struct keeper_request *request,
                    struct cay_error *err)
{
    const struct request *head = &request->head;
    int64_t argc = head->numbers[START_ARGS], envc = head->numbers[START_ENV];
    int64_t arrived_ms = keeper_now_ms();
    char cwd[PATH_MAX] = "", id[CAY_PENDING_ID_MAX];
    AUTO_LAUNCH launch = {.argv = NULL};
    enum cay_decision decision;
    cay_process *process = NULL;

    if (argc < 1 || envc < 0 || argc > head->count || envc > head->count ||
        2 + argc + envc != head->count || head->numbers[START_TIMEOUT_MS] < 0)
        return cay_fail(err, CAY_E_INVALID, 0, "process.start", NULL,
                        "the request is malformed", "give a command");
    if (*request->strings[0])
        TRY(find_directory(keeper, head->user, request->strings[0], cwd, err));
    TRY(launch_init(keeper, head, request->strings, cwd, &launch, err));
    TRY(cay_sandbox_request_command(keeper->sandbox, &launch.options, id, &decision,
                                    err));
    TRY(cay_process_start_approved(keeper->sandbox, &launch.options, id, &process, err));
    if (!process)
        return wait_for_reply(keeper, request, id, cwd, err);
    add_command(keeper, request, cay_process_pid(process), arrived_ms);
    return stream_new(keeper, request, process, head->flags & START_PTY, err);
}

/* Only new output, as for a connected client. */
int keeper_op_attach(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    const char *which = request->strings[0];
    cay_process *process = NULL;

    prune_commands(keeper);
    struct command *command = find_command(keeper, which);
    if (command && command->ended_ms) {
        struct reply reply = {
            .kind = REPLY_STARTED,
            .numbers = {
                [STARTED_PID] = command->pid, [STARTED_HAS_PTY] = command->has_pty}};
        (void)reply_send(request->channel, &reply, NULL, -1);
        (void)send_end(request->channel, &command->end, command->status);
        return CAY_OK;
    }
    int code = cay_process_attach(keeper->sandbox, which, &process, err);
    if (!code)
        code = cay_process_skip(process, err);
    bool has_pty = command && command->has_pty;
    struct cay_process_info *infos = NULL;
    size_t count = 0;
    if (!code && !command) /* only the sandbox knows commands of an earlier keeper */
        code = cay_process_list(keeper->sandbox, &infos, &count, err);
    for (size_t i = 0; i < count; i++)
        if (infos[i].pid == cay_process_pid(process) && infos[i].is_background)
            has_pty = infos[i].has_terminal;
    cay_free(infos);
    if (code) {
        cay_process_free(process);
        return code;
    }
    return stream_new(keeper, request, process, has_pty, err);
}

static cay_process *command_handle(struct keeper *keeper, int pid)
{
    for (struct task *task = keeper->tasks; task; task = task->next) {
        const struct stream *stream = (const struct stream *)task;
        if (task->done == stream_done && !task->is_over &&
            cay_process_pid(stream->process) == pid)
            return stream->process;
    }
    return NULL;
}

/* --- Listing --- */

/* Only the command line is known if an earlier keeper started it. */
static void send_words(int channel, const struct cay_process_info *info)
{
    struct reply reply = {
        .kind = REPLY_PROCESS, .numbers = {[PROCESS_PID] = info->pid}, .count = 2};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char words[sizeof info->command];

    strings_add(&strings, info->tag);
    strings_add(&strings, "");
    cay_copy_text(words, sizeof words, info->command);
    for (char *at = words; *at;) {
        size_t len = strcspn(at, " ");
        bool last = at[len] == '\0';
        at[len] = '\0';
        strings_add(&strings, at);
        reply.numbers[PROCESS_ARGS]++;
        reply.count++;
        at += last ? len : len + 1;
    }
    (void)reply_send(channel, &reply, &strings, -1);
}

static void send_process(const struct command *command, int channel,
                         const struct cay_process_info *info)
{
    if (!command || command->strings.failed) {
        send_words(channel, info);
        return;
    }
    struct reply reply = {.kind = REPLY_PROCESS,
                          .numbers = {[PROCESS_PID] = info->pid,
                                      [PROCESS_ARGS] = command->argc,
                                      [PROCESS_ENV] = command->envc},
                          .count = 1 + command->count};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    strings_add(&strings, info->tag);
    (void)buf_append(&strings, command->strings.data, command->strings.len);
    (void)reply_send(channel, &reply, &strings, -1);
}

/* SDKs count the timeout as well, from before the request arrived: a client that
 * disconnects shortly before the deadline considers the command ended.  Its next request
 * can overtake the end of its stream, so the stream may still be open here. */
static bool has_run_out(const struct command *command)
{
    enum { CLIENT_AHEAD_MS = 250 };

    return command && command->deadline_ms &&
           keeper_now_ms() >= command->deadline_ms - CLIENT_AHEAD_MS;
}

int keeper_op_processes(struct keeper *keeper, struct keeper_request *request,
                        struct cay_error *err)
{
    struct cay_process_info *infos = NULL;
    size_t count = 0;
    int code = cay_process_list(keeper->sandbox, &infos, &count, err);

    if (code)
        return code;
    for (size_t i = 0; i < count; i++) {
        const struct command *command = command_of(keeper, infos[i].pid);
        if (infos[i].is_background && !infos[i].has_ended && !has_run_out(command) &&
            keeper_wait_writable(request->channel, NULL) == CAY_OK)
            send_process(command, request->channel, &infos[i]);
    }
    cay_free(infos);
    return KEEPER_DONE;
}
