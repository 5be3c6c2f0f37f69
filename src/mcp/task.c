/* SPDX-License-Identifier: Apache-2.0 */

/* Calls of tools.  A short one runs in the loop, one that may wait in a worker: a child
 * process that is killed when the call is cancelled.  A worker sends lines: "P" and a
 * JSON string for progress, "R" and the whole result. */
#include "mcp/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

static void write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t done = write(fd, data, len);
        if (done < 0 && errno != EINTR)
            _exit(1); /* the server is gone */
        data += done > 0 ? done : 0;
        len -= done > 0 ? (size_t)done : 0;
    }
}

static void worker_progress(struct mcp_call *call, const char *text, size_t len)
{
    AUTO_BUF line = {0};
    struct json json;

    buf_init(&line, 1 << 20);
    (void)buf_text(&line, "P");
    json_to_unicode(&json, &line);
    json_put_bytes(&json, text, len);
    if (json_finish(&json) && buf_text(&line, "\n"))
        write_all(call->progress_fd, line.data, line.len);
}

/* The client's end of the transport must close with the server, and signals are the
 * worker's own again. */
static void leave_server(const struct server *server, pid_t parent)
{
    static const struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)sigemptyset(&none);
    for (int number = 1; number < 32; number++)
        if (number != SIGPIPE)
            (void)sigaction(number, &plain, NULL); /* allow: sigaction a worker's own */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (null >= 0) {
        (void)dup3(null, server->in, O_CLOEXEC);
        (void)dup3(null, server->out, O_CLOEXEC);
    }
}

_Noreturn static void work(struct server *server, const struct task *task, int fd,
                           pid_t parent)
{
    struct mcp_call call = {.session = &server->session,
                            .arguments = task->arguments,
                            .progress = task->token ? worker_progress : NULL,
                            .progress_fd = fd};
    struct buf text;
    struct json json;

    leave_server(server, parent);
    server->session.is_worker = true;
    buf_init(&text, MCP_REPLY_MAX);
    (void)buf_text(&text, "R");
    json_to_unicode(&json, &text);
    json_put_object(&json);
    mcp_put_modern(&json, &task->request, false);
    mcp_run_tool(&call, task->tool, &json);
    json_put_end(&json);
    if (json_finish(&json) && buf_text(&text, "\n"))
        write_all(fd, text.data, text.len);
    _exit(0);
}

void mcp_task_free(struct server *server, struct task *task)
{
    if (task->pid) {
        (void)kill(task->pid, SIGKILL);
        while (waitpid(task->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        (void)close(task->fd);
        mcp_lines_done(&task->lines);
        server->workers--;
        if (task->tool->flags & MCP_TOOL_RESETS)
            for (size_t i = 0; i < server->session.box_count; i++) {
                cay_files_free(server->session.boxes[i].files);
                server->session.boxes[i].files = NULL;
            }
    }
    json_decref(task->request.id);
    json_decref(task->arguments);
    json_decref(task->token);
    mcp_end_batch(server, task->request.batch);
    server->queued -= task->size;
    *task = (struct task){.tool = NULL};
}

static void fail_task(struct server *server, struct task *task, const char *message)
{
    mcp_send_error(server, &task->request, MCP_E_INTERNAL, message, NULL);
    mcp_task_free(server, task);
}

static void start_worker(struct server *server, struct task *task)
{
    pid_t parent = getpid();
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        fail_task(server, task, "no descriptor is available for a worker");
        return;
    }
    mcp_lines_init(&task->lines);
    pid_t pid = fork(); /* allow: fork a worker is a copy of the server */
    if (pid == 0) {
        (void)close(ends[0]);
        work(server, task, ends[1], parent);
    }
    (void)close(ends[1]);
    if (pid < 0) {
        (void)close(ends[0]);
        fail_task(server, task, "no process is available for a worker");
        return;
    }
    task->pid = pid;
    task->fd = ends[0];
    task->begun_ms = task->progress_ms = mcp_now_ms();
    server->workers++;
}

static void report_call(const struct server *server, const struct task *task)
{
    static const char *const keys[] = {"command", "code", "path", "from",
                                       "process", "name", "id",   "sandbox"};
    const char *key = "";
    const json_t *value = NULL;

    if (!server->options->called || task->tool->flags & MCP_TOOL_READS)
        return;
    for (size_t i = 0; !value && i < sizeof keys / sizeof *keys; i++)
        if ((value = json_object_get(task->arguments, keys[i])))
            key = keys[i];
    AUTO_FREE char *text = value && !json_is_string(value)
                               ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY)
                               : NULL;
    const char *subject = json_is_string(value) ? json_string_value(value) : text;
    server->options->called(server->options->cookie, task->tool->name, subject ? key : "",
                            subject ? subject : "");
}

static bool may_approve_write(const struct server *server, const struct task *task)
{
    return task->tool->flags & MCP_TOOL_WRITES && server->options->approve_writes;
}

/* A failed creation is the result of a worker, too; the sandbox itself is the server's,
 * which lives longer. */
static void start_task(struct server *server, struct task *task)
{
    const char *id = json_string_value(json_object_get(task->arguments, "sandbox"));
    struct mcp_call call = {.session = &server->session, .arguments = task->arguments};
    struct mcp_box *box;
    AUTO_BUF text = {0};
    struct json json;

    report_call(server, task);
    if ((task->tool->flags & MCP_TOOL_WAITS || may_approve_write(server, task)) &&
        (task->tool->flags & MCP_TOOL_BOXES ||
         mcp_session_box(&server->session, id, &box, NULL) == CAY_OK)) {
        start_worker(server, task);
        return;
    }
    mcp_begin_result(&json, &text, &task->request, false);
    mcp_run_tool(&call, task->tool, &json);
    mcp_send_result(server, &json, &text, &task->request);
    mcp_task_free(server, task);
}

void mcp_tasks_start(struct server *server)
{
    for (unsigned i = 0; i < MCP_CALLS_MAX; i++) {
        struct task *task = &server->tasks[(server->next + i) % MCP_CALLS_MAX];
        if (!task->tool || task->pid)
            continue;
        if (server->roots_until_ms || server->workers == MCP_WORKERS_MAX ||
            mcp_is_full(server))
            return;
        start_task(server, task);
    }
}

static void send_progress(struct server *server, struct task *task, const char *message)
{
    AUTO_BUF text = {0};
    struct json json;

    buf_init(&text, 1 << 20);
    json_to_unicode(&json, &text);
    json_put_object(&json);
    json_set_text(&json, "jsonrpc", "2.0");
    json_set_text(&json, "method", "notifications/progress");
    json_put_key(&json, "params");
    json_put_object(&json);
    json_put_key(&json, "progressToken");
    mcp_put_tree(&json, task->token);
    json_set_uint(&json, "progress", ++task->progress);
    json_put_key(&json, "message");
    json_put_raw(&json, message);
    json_put_end(&json);
    json_put_end(&json);
    if (json_finish(&json))
        mcp_send(server, NULL, &text);
    task->progress_ms = mcp_now_ms();
}

void mcp_tasks_report(struct server *server)
{
    char message[64];

    for (unsigned i = 0; i < MCP_CALLS_MAX; i++) {
        struct task *task = &server->tasks[i];
        uint64_t now = mcp_now_ms();
        if (!task->pid || !task->token || now < task->progress_ms + MCP_PROGRESS_MS)
            continue;
        snprintf(message, sizeof message, "\"running for %llu s\"",
                 (unsigned long long)(now - task->begun_ms) / 1000);
        send_progress(server, task, message);
    }
}

/* With the id of the call, by which the front of a server finds its stream. */
static void elicit(struct server *server, struct task *task)
{
    AUTO_BUF text = {0};
    struct json json;
    char id[64];
    const json_t *call = task->request.id;

    task->elicited = ++server->elicited;
    snprintf(id, sizeof id, "approve-%u-%lld", task->elicited,
             json_is_integer(call) ? (long long)json_integer_value(call) : 0);
    buf_init(&text, 1 << 20);
    json_to_unicode(&json, &text);
    json_put_object(&json);
    json_set_text(&json, "jsonrpc", "2.0");
    json_set_text(&json, "id", id);
    json_set_text(&json, "method", "elicitation/create");
    json_put_key(&json, "params");
    mcp_approval_put(task->approval, server->version == MCP_LEGACY, &json);
    json_put_end(&json);
    if (json_finish(&json))
        mcp_send(server, NULL, &text);
}

/* The newest revision has no requests of servers: the call ends, with what the client
 * needs to send it again.  The command has not started. */
static void require_input(struct server *server, struct task *task)
{
    AUTO_BUF text = {0};
    struct json json;

    mcp_begin_message(&json, &text, task->request.id);
    json_put_key(&json, "result");
    json_put_object(&json);
    json_set_text(&json, "resultType", "input_required");
    json_set_text(&json, "requestState", task->approval);
    json_put_key(&json, "inputRequests");
    json_put_object(&json);
    json_put_key(&json, "approval");
    json_put_object(&json);
    json_set_text(&json, "method", "elicitation/create");
    json_put_key(&json, "params");
    mcp_approval_put(task->approval, true, &json);
    json_put_end(&json);
    json_put_end(&json);
    mcp_send_result(server, &json, &text, &task->request);
    mcp_task_free(server, task);
}

static bool waits_for_command(const struct server *server, const struct task *task)
{
    return task->pid && task->can_elicit && !*task->approval &&
           server->options->sandbox.approve &&
           json_object_get(task->arguments, "command");
}

/* A file that changes before a reply of the newest revision arrives needs another one. */
static bool waits_for_write(const struct server *server, const struct task *task)
{
    return task->pid && task->can_elicit && may_approve_write(server, task);
}

/* In the newest revision the call would have to end, and with it what connects. */
static bool waits_for_egress(const struct server *server, const struct task *task)
{
    return task->pid && task->can_elicit && !task->request.is_modern &&
           server->options->asks_egress;
}

bool mcp_task_may_wait(const struct server *server, const struct task *task)
{
    return waits_for_command(server, task) || waits_for_write(server, task) ||
           waits_for_egress(server, task);
}

static bool is_shown(const void *cookie, const char *id)
{
    const struct server *server = cookie;

    for (unsigned i = 0; i < MCP_CALLS_MAX; i++)
        if (server->tasks[i].tool && strcmp(server->tasks[i].approval, id) == 0)
            return true;
    return false;
}

/* One form at a time. */
static void approve_egress(struct server *server, struct task *task)
{
    char id[CAY_PENDING_ID_MAX];

    if ((*task->approval && mcp_approval_is_open(task->approval)) ||
        !mcp_approval_find_egress(&server->session, is_shown, server, id))
        return;
    memcpy(task->approval, id, sizeof id);
    elicit(server, task);
}

static bool find_request(const struct server *server, struct task *task)
{
    char id[CAY_PENDING_ID_MAX];

    if ((!waits_for_command(server, task) && !waits_for_write(server, task)) ||
        !mcp_approval_find(&server->session, task->arguments, id) ||
        strcmp(id, task->approval) == 0)
        return false;
    memcpy(task->approval, id, sizeof id);
    return true;
}

void mcp_tasks_approve(struct server *server)
{
    uint64_t now = mcp_now_ms();

    if (now < server->looked_ms + MCP_APPROVAL_MS)
        return;
    server->looked_ms = now;
    for (unsigned i = 0; i < MCP_CALLS_MAX; i++) {
        struct task *task = &server->tasks[i];
        bool is_found = find_request(server, task);
        if (is_found && task->request.is_modern)
            require_input(server, task);
        else if (is_found)
            elicit(server, task);
        else if (waits_for_egress(server, task))
            approve_egress(server, task);
    }
}

/* The line of a worker is JSON that this program has written. */
static void take_line(struct server *server, struct task *task, const char *line,
                      size_t len)
{
    AUTO_BUF text = {0};
    AUTO_FREE char *content = strndup(line + 1, len - 1);
    struct json json;

    buf_init(&text, MCP_REPLY_MAX);
    if (!content) {
        fail_task(server, task, "memory is exhausted");
    } else if (*line == 'P') {
        send_progress(server, task, content);
    } else {
        mcp_begin_message(&json, &text, task->request.id);
        json_put_key(&json, "result");
        json_put_raw(&json, content);
        json_put_end(&json);
        mcp_send(server, task->request.batch, &text);
        mcp_task_free(server, task);
    }
}

void mcp_task_read(struct server *server, struct task *task)
{
    char data[MCP_READ_SIZE];
    const char *line;
    size_t len;
    int state;
    ssize_t got = read(task->fd, data, sizeof data);

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0 || !mcp_lines_add(&task->lines, data, (size_t)got)) {
        fail_task(server, task, "the call has failed: its worker has ended");
        return;
    }
    while (task->pid && (state = mcp_lines_take(&task->lines, &line, &len)) != 0) {
        if (state < 0)
            fail_task(server, task, "the result is too large");
        else if (len > 1)
            take_line(server, task, line, len);
    }
}

struct task *mcp_task_place(struct server *server)
{
    for (unsigned i = 0; i < MCP_CALLS_MAX; i++) {
        struct task *task = &server->tasks[(server->next + i) % MCP_CALLS_MAX];
        if (task->tool)
            continue;
        /* Later ones are searched first from here on, and this one after them. */
        server->next = (unsigned)(task + 1 - server->tasks) % MCP_CALLS_MAX;
        return task;
    }
    return NULL;
}
