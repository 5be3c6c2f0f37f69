/* SPDX-License-Identifier: Apache-2.0 */

/* A process that its caller drives.  Nothing happens between calls.  The caller polls an
 * epoll with three members: the sockets of libcurl, an eventfd for data that is already
 * here, and a timer.  Each call ends with update_poll(), which sets the last two.
 *
 * Output comes from the stream of a command (command.c), or, for a background command,
 * from its output files.  A wait collects it in the tails, and reads begin with those. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/api.h"
#include "e2b/envd.h"
#include "e2b/reply.h"
#include "e2b/script.h"
#include "sandbox/streams.h"

enum {
    PROCESSES_MAX = 65536,
    LIST_REPLY_MAX = 64 << 20,
    INPUT_MAX = 256 << 10,        /* accepted by one write */
    INPUT_WAIT_MS = 1000,         /* a write waits so long for the input to arrive */
    OUTPUT_PIECE = 256 << 10,     /* read from an output file at a time */
    OUTPUT_OLD_MAX = 1 << 20,     /* of earlier output, for a reader that attaches */
    OUTPUT_INTERVAL_MIN_MS = 20,  /* between two looks at the output files */
    OUTPUT_INTERVAL_MAX_MS = 500, /* if they do not grow */
    FLAGS = CAY_EXEC_FAIL_ON_LIMIT | CAY_EXEC_TTY | CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT
};

/* --- List --- */

/* The program and its arguments, cut to the size of the field. */
static void write_command(const json_t *config, struct cay_process_info *info)
{
    size_t at = 0;

    for (size_t i = 0; at + 1 < sizeof info->command; i++) {
        const char *word = e2b_start_word(config, i);
        if (!word)
            return;
        if (i)
            info->command[at++] = ' ';
        cay_copy_text(info->command + at, sizeof info->command - at, word);
        at += strlen(info->command + at);
    }
}

static bool is_helper(const json_t *process)
{
    const json_t *args = json_object_get(json_object_get(process, "config"), "args");
    const char *name = json_string_value(json_array_get(args, 2));

    return name && strcmp(name, E2B_HELPER) == 0 && !e2b_start_has_output_files(args);
}

static bool read_info(const json_t *process, struct cay_process_info *ret_info)
{
    int64_t pid = e2b_value_int(process, "pid");
    const char *tag = e2b_value_text(process, "tag");

    if (pid <= 0 || pid > INT_MAX)
        return false;
    *ret_info = (struct cay_process_info){
        .pid = (int)pid, .is_command = true, .is_background = true, .state = 'R'};
    cay_copy_text(ret_info->tag, sizeof ret_info->tag, tag ? tag : "");
    write_command(json_object_get(process, "config"), ret_info);
    return true;
}

static int compare_pids(const void *left, const void *right)
{
    const struct cay_process_info *a = left, *b = right;

    return (a->pid > b->pid) - (a->pid < b->pid);
}

/* *ret_list is a part of *ret_reply. */
static int fetch_list(struct e2b *e2b, json_t **ret_reply, const json_t **ret_list,
                      struct cay_error *err)
{
    static const char op[] = "process.list";
    const struct e2b_call call = {.op = op,
                                  .subject = e2b->id,
                                  .method = "process.Process/List",
                                  .repeatable = true,
                                  .fallback = CAY_E_UNAVAILABLE,
                                  .reply_max = LIST_REPLY_MAX};
    AUTO_BUF body;

    buf_init(&body, 16);
    buf_text(&body, "{}");
    int code = e2b_call(e2b, &call, &body, ret_reply, err);
    if (code)
        return code;
    *ret_list = json_object_get(*ret_reply, "processes");
    if ((*ret_list && !json_is_array(*ret_list)) ||
        json_array_size(*ret_list) > PROCESSES_MAX)
        return e2b_reply_malformed(op, e2b->id, "invalid list of processes", err);
    return CAY_OK;
}

static int list_processes(void *cookie, struct cay_process_info **ret_infos,
                          size_t *ret_count, struct cay_error *err)
{
    static const char op[] = "process.list";
    struct e2b *e2b = cookie;
    AUTO_JSON reply = NULL;
    const json_t *list = NULL;

    e2b_api_keep_alive(e2b, UINT64_MAX);
    int code = fetch_list(e2b, &reply, &list, err);
    if (code)
        return code;
    size_t found = 0, count = json_array_size(list);
    AUTO_FREE struct cay_process_info *infos = calloc(count + 1, sizeof *infos);
    if (!infos)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++)
        if (!is_helper(json_array_get(list, i)) &&
            !read_info(json_array_get(list, i), &infos[found++]))
            return e2b_reply_malformed(op, e2b->id, "a process has no valid pid", err);
    qsort(infos, found, sizeof *infos, compare_pids);
    *ret_infos = TAKE_PTR(infos);
    *ret_count = found;
    return CAY_OK;
}

/* --- Output files --- */

/* The two files inside with the output of a background command.  Each read continues
 * where the last one stopped.  envd does not report their growth, so they are polled. */
struct output_files {
    bool exist;
    int pid;
    uint64_t at[2];
    uint64_t skipped[2]; /* bytes before the first that is read */
    uint64_t next_ms;    /* when to look again */
    uint64_t interval_ms;
    unsigned turn;
};

/* Stream 0 is the directory of both. */
static void name_file(const struct output_files *files, int stream, char *ret_path,
                      size_t room)
{
    snprintf(ret_path, room, E2B_OUTPUT_DIR "/%d%s", files->pid,
             stream == 1   ? "/out"
             : stream == 2 ? "/err"
                           : "");
}

static void output_files_init(struct output_files *files, int pid)
{
    *files = (struct output_files){
        .exist = true, .pid = pid, .interval_ms = OUTPUT_INTERVAL_MIN_MS};
}

static void stat_output_files(struct e2b *e2b, struct output_files *files, int pid)
{
    char path[128];

    output_files_init(files, pid);
    for (int stream = 1; stream <= 2 && files->exist; stream++) {
        struct e2b_entry entry;
        name_file(files, stream, path, sizeof path);
        files->exist = e2b_envd_stat(e2b, "process.read", "root", path, path, &entry,
                                     NULL) == CAY_OK;
        if (files->exist && entry.stat.bytes > OUTPUT_OLD_MAX)
            files->at[stream - 1] = files->skipped[stream - 1] =
                entry.stat.bytes - OUTPUT_OLD_MAX;
    }
}

static bool will_have_output_files(struct e2b *e2b, int pid)
{
    AUTO_JSON reply = NULL;
    const json_t *list = NULL;

    if (fetch_list(e2b, &reply, &list, NULL))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *process = json_array_get(list, i);
        if (e2b_value_int(process, "pid") == pid)
            return e2b_start_has_output_files(
                json_object_get(json_object_get(process, "config"), "args"));
    }
    return false;
}

/* Finds the output files of a command that another client started.  A command that has
 * just started creates them in a moment, or it has ended by now and they exist. */
static void find_output_files(struct e2b *e2b, struct output_files *files, int pid)
{
    stat_output_files(e2b, files, pid);
    if (files->exist)
        return;
    if (will_have_output_files(e2b, pid))
        output_files_init(files, pid);
    else
        stat_output_files(e2b, files, pid);
}

static bool read_output_file(struct e2b *e2b, struct output_files *files, int stream,
                             struct e2b_event *ret_event)
{
    uint64_t *at = &files->at[stream - 1];
    E2B_REQUEST request;
    char path[128], bytes[64];

    name_file(files, stream, path, sizeof path);
    e2b_envd_file_request(e2b, &request, "process.read", "GET", "root", path);
    snprintf(bytes, sizeof bytes, "bytes=%llu-%llu", (unsigned long long)*at,
             (unsigned long long)(*at + OUTPUT_PIECE - 1));
    e2b_request_header(&request, "Range", bytes);
    request.reply_max = OUTPUT_PIECE;
    request.repeatable = true;
    int code = e2b_http_send(&e2b->http, &request, e2b->settings.retries,
                             clock_ms() + E2B_REPLY_MS, NULL);
    size_t len = request.reply.len;
    if (code || request.status != 206 || !len)
        return false;
    *ret_event = (struct e2b_event){.kind = E2B_EVENT_OUTPUT,
                                    .stream = stream,
                                    .data = buf_take(&request.reply),
                                    .len = len};
    *at += ret_event->data ? len : 0;
    return ret_event->data;
}

/* As e2b_command_next().  `is_last`: the command is over. */
static int next_from_files(struct e2b *e2b, struct output_files *files, bool is_last,
                           struct e2b_event *ret_event)
{
    if (!is_last && clock_ms() < files->next_ms)
        return 0;
    for (int i = 0; i < 2; i++) {
        int stream = (int)(files->turn++ % 2) + 1;
        if (read_output_file(e2b, files, stream, ret_event)) {
            files->interval_ms = OUTPUT_INTERVAL_MIN_MS;
            files->next_ms = 0;
            return 1;
        }
    }
    files->next_ms = clock_ms() + files->interval_ms;
    files->interval_ms *= 2;
    if (files->interval_ms > OUTPUT_INTERVAL_MAX_MS)
        files->interval_ms = OUTPUT_INTERVAL_MAX_MS;
    return is_last ? -1 : 0;
}

static void remove_output_files(struct e2b *e2b, struct output_files *files)
{
    char path[128];

    if (!files->exist)
        return;
    files->exist = false;
    name_file(files, 0, path, sizeof path);
    (void)e2b_files.remove(e2b, "root", path, CAY_NAME_RECURSIVE, NULL);
}

/* --- Handles --- */

struct process {
    struct e2b *e2b; /* a duplicate: the process may outlive the sandbox's handle */
    struct e2b_command command;
    struct tail tails[2];
    struct e2b_event piece; /* output of which piece_at bytes are read */
    size_t piece_at;
    struct output_files files;
    int epoll, ready, alarm;
    bool is_ready, is_background, fails_on_limit;
};

/* Kills a foreground process; delivers the pending input of a background process. */
static void process_free(void *cookie)
{
    struct process *process = cookie;
    uint64_t until = clock_ms() + E2B_KILL_MS;

    if (!process)
        return;
    struct e2b_command *command = &process->command;
    if (!process->is_background && e2b_command_may_live(command))
        (void)e2b_command_kill(command, NULL);
    while (process->is_background && e2b_input_pending(&command->input) &&
           !command->is_over && !command->request.ended && clock_ms() < until)
        e2b_script_step(command, until);
    if (command->e2b)
        e2b_command_done(command);
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

static int process_new(const struct e2b *e2b, uint64_t limit, const char *op,
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

/* Makes the caller's poll return for data that no socket shows, for a timeout and for a
 * look at the output files. */
static void update_poll(struct process *process)
{
    const struct e2b_command *command = &process->command;
    uint64_t when =
        command->is_over || command->is_timed_out ? UINT64_MAX : command->deadline_ms;
    struct itimerspec spec = {0};
    bool is_ready = process->piece.data || process->tails[0].len ||
                    process->tails[1].len || e2b_command_has_news(command);
    uint64_t count = 1;

    if (is_ready && !process->is_ready)
        (void)!write(process->ready, &count, sizeof count);
    else if (!is_ready && process->is_ready)
        (void)!read(process->ready, &count, sizeof count);
    process->is_ready = is_ready;
    if (process->files.exist && process->files.next_ms < when)
        when = process->files.next_ms;
    if (e2b_script_watch_due(command) < when)
        when = e2b_script_watch_due(command);
    if (when != UINT64_MAX) {
        spec.it_value.tv_sec = (time_t)(when / 1000);
        spec.it_value.tv_nsec = (long)(when % 1000 * 1000000 + 1);
    }
    (void)timerfd_settime(process->alarm, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* --- Start and attach --- */

/* Waits a moment, so that input has usually arrived when the call returns. */
static void drive_input(struct process *process)
{
    struct e2b_command *command = &process->command;
    uint64_t until = clock_ms() + INPUT_WAIT_MS;

    e2b_input_feed(command);
    while (e2b_input_pending(&command->input) && !command->request.ended &&
           clock_ms() < until)
        e2b_script_step(command, until);
}

/* envd accepts a tag that is in use. */
static int check_tag(struct e2b *e2b, const char *tag, const char *op,
                     struct cay_error *err)
{
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0;

    int code = tag ? list_processes(e2b, &infos, &count, err) : CAY_OK;
    for (size_t i = 0; !code && i < count; i++)
        if (strcmp(infos[i].tag, tag) == 0)
            return cay_fail(err, CAY_E_EXISTS, 0, op, tag,
                            "a running command has this tag", "choose another tag");
    return code;
}

static int start(void *cookie, const struct cay_exec_options *options, void **ret_process,
                 struct cay_error *err)
{
    static const char op[] = "process.start";
    struct cay_exec_options known;
    AUTO_PROCESS process = NULL;

    int code = cay_take_struct(&known, sizeof known, options, op, err);
    if (!code)
        code = e2b_start_check(&known, op, FLAGS, err);
    if (!code && known.on_output)
        code = cay_fail(err, CAY_E_INVALID, 0, op, "on_output",
                        "on_output is not supported for background processes",
                        "read the output with cay_process_read()");
    if (!code)
        code = check_tag(cookie, known.tag, op, err);
    if (!code)
        code = process_new(cookie, known.output_limit, op, &process, err);
    if (code)
        return code;
    e2b_api_keep_alive(process->e2b, UINT64_MAX);
    e2b_command_init(&process->command, process->e2b, op);
    process->fails_on_limit = known.flags & CAY_EXEC_FAIL_ON_LIMIT;
    if (known.input) { /* the caller's bytes are valid only during the call */
        process->command.input.own = malloc(known.input_len + 1);
        if (!process->command.input.own)
            return cay_fail_memory(err, op);
        memcpy(process->command.input.own, known.input, known.input_len);
        known.input = process->command.input.own;
    }
    code = e2b_command_start(&process->command, &known,
                             known.flags & CAY_EXEC_BACKGROUND ? 0 : E2B_GRACE_MS, err);
    if (!code)
        code = e2b_command_wait_start(&process->command, clock_ms() + E2B_REPLY_MS, err);
    if (code) /* is_background is false: a command that did start is killed */
        return code;
    process->is_background = known.flags & CAY_EXEC_BACKGROUND;
    if (process->command.has_output_files)
        output_files_init(&process->files, process->command.pid);
    drive_input(process);
    update_poll(process);
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
                        "no background command has this pid or tag",
                        "list the processes to see their pids and tags");
    int code = process_new(cookie, 0, op, &process, err);
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
    find_output_files(process->e2b, &process->files, process->command.pid);
    process->command.has_output_files = process->files.exist;
    update_poll(process);
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

/* --- Output and end --- */

static void enforce_timeout(struct process *process)
{
    struct e2b_command *command = &process->command;

    e2b_api_keep_alive(process->e2b, command->deadline_ms);
    if (!command->is_over && clock_ms() >= command->deadline_ms)
        command->is_timed_out = true;
    /* The server's own timeout kills only the first process. */
    if (command->is_timed_out && !command->is_killed)
        (void)e2b_command_kill(command, NULL);
}

/* Reads from the tails and the current piece; false if both are empty. */
static bool read_buffered(struct process *process, int *ret_stream, void *data,
                          size_t room, size_t *ret_len, uint64_t *ret_dropped)
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
    *ret_dropped = process->files.skipped[piece->stream - 1];
    process->files.skipped[piece->stream - 1] = 0;
    if (process->piece_at == piece->len)
        e2b_event_done(piece);
    return true;
}

/* As e2b_command_next(), from the stream or the output files. */
static int next_piece(struct process *process)
{
    int next;

    process->piece_at = 0;
    while ((next = e2b_command_next(&process->command, &process->piece)) > 0 &&
           process->piece.len == 0)
        e2b_event_done(&process->piece);
    if (next > 0 || !process->files.exist)
        return next;
    return next_from_files(process->e2b, &process->files, next < 0, &process->piece);
}

static int read_some(void *cookie, int *ret_stream, void *data, size_t room,
                     size_t *ret_len, uint64_t *ret_dropped, struct cay_error *err)
{
    struct process *process = cookie;
    struct cay_exec_result result;
    uint64_t dropped = 0;
    int code = CAY_OK, next = 1;

    if (room == 0)
        return streams_fail_room(err);
    *ret_stream = 0;
    *ret_len = 0;
    enforce_timeout(process);
    if (!read_buffered(process, ret_stream, data, room, ret_len, &dropped)) {
        e2b_script_step(&process->command, 0);
        next = next_piece(process);
        if (next > 0)
            (void)read_buffered(process, ret_stream, data, room, ret_len, &dropped);
    }
    if (next < 0) {
        *ret_stream = -1;
        code = e2b_command_result(&process->command, &result, err);
    }
    if (ret_dropped)
        *ret_dropped = dropped;
    update_poll(process);
    return code;
}

/* Moves available output to the tails.  1 when the command is over, 0, or -ENOMEM. */
static int collect_output(struct process *process)
{
    struct e2b_command *command = &process->command;

    for (;;) {
        int next = process->piece.data ? 1 : next_piece(process);
        if (next <= 0)
            return next < 0;
        struct e2b_event *piece = &process->piece;
        struct tail *tail = &process->tails[piece->stream - 1];
        tail->dropped += process->files.skipped[piece->stream - 1];
        process->files.skipped[piece->stream - 1] = 0;
        bool is_added = tail_add(tail, piece->data + process->piece_at,
                                 piece->len - process->piece_at);
        e2b_event_done(piece);
        if (!is_added)
            return -ENOMEM;
        if (tail->dropped && process->fails_on_limit && !command->is_over_limit) {
            command->is_over_limit = true;
            (void)e2b_command_kill(command, NULL);
        }
    }
}

/* 1 when the command is over, 0 if it is still running, or -ENOMEM. */
static int wait_until(struct process *process, uint64_t until_ms)
{
    struct e2b_command *command = &process->command;

    for (;;) {
        enforce_timeout(process);
        int over = collect_output(process);
        if (over || clock_ms() >= until_ms)
            return over;
        uint64_t next = e2b_api_keep_alive_due(process->e2b);
        if (!command->is_timed_out && command->deadline_ms < next)
            next = command->deadline_ms;
        if (process->files.exist && process->files.next_ms < next)
            next = process->files.next_ms;
        e2b_script_step(command, next < until_ms ? next : until_ms);
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
    update_poll(process);
    if (over < 0)
        return cay_fail_memory(err, op);
    if (over == 0)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, NULL, "the command is still running",
                        "wait longer, or kill it");
    int code = e2b_command_result(&process->command, &result, err);
    if (!code)
        code = streams_take(process->tails, &result, op, err);
    if (code) {
        cay_exec_done(&result);
        return code;
    }
    remove_output_files(process->e2b, &process->files);
    update_poll(process);
    *ret_result = result;
    return CAY_OK;
}

/* --- Input and terminal --- */

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
    update_poll(process);
    if (input->is_open && !process->command.is_over)
        return CAY_OK;
    if (!input->failure.code)
        return cay_fail(err, CAY_E_IO, 0, "process.write", NULL,
                        "the command has closed its input", "check whether it has ended");
    if (err)
        *err = input->failure;
    return input->failure.code;
}

static int close_input(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    struct e2b_input *input = &process->command.input;

    int code = input->is_open ? e2b_input_can_end(&process->command, err) : CAY_OK;
    if (code)
        return code;
    input->ends = input->is_open;
    if (!input->ends_left)
        input->ends_left = 1;
    drive_input(process);
    update_poll(process);
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
    update_poll(process);
    return code;
}

/* --- Signals --- */

static int send_signal(void *cookie, int number, struct cay_error *err)
{
    struct process *process = cookie;

    if (process->command.is_over)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "process.signal", NULL,
                        "the command has ended",
                        "its output and its result can still be read");
    int code = e2b_command_signal(&process->command, number, err);
    update_poll(process);
    return code;
}

static int kill_process(void *cookie, struct cay_error *err)
{
    struct process *process = cookie;
    int code = e2b_command_kill(&process->command, err);

    update_poll(process);
    return code;
}

const struct cay_process_backend e2b_processes = {
    .size = sizeof e2b_processes,
    .start = start,
    .attach = attach,
    .list = list_processes,
    .free = process_free,
    .pid = pid_of,
    .fd = fd_of,
    .read = read_some,
    .write = write_some,
    .close_input = close_input,
    .resize = resize,
    .signal = send_signal,
    .kill = kill_process,
    .wait = wait_for,
};
