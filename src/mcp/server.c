/* SPDX-License-Identifier: Apache-2.0 */

/* One thread, one poll loop.  Short calls run in it.  A call that may wait is run by a
 * worker, a child process that is killed when the call is cancelled: its connections to
 * the sandbox close, and with them ends the command that it waits for.  A worker sends
 * lines: "P" and a JSON string for progress, "R" and the whole result.
 *
 * Messages wait in memory up to a limit: while a client does not read, nothing is read
 * from it, nor from the workers. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "mcp/message.h"
#include "mcp/session.h"
#include "json/json.h"

enum {
    WORKERS_MAX = 16,
    CALLS_MAX = 128,       /* with those that wait */
    OUT_MAX = 1 << 20,     /* bytes that wait for the client before it is not read from */
    QUEUE_MAX = 128 << 20, /* bytes of calls in memory, before nothing is read */
    REPLY_MAX = 16 << 20,  /* bytes of a result */
    READ_SIZE = 64 << 10,
    PROGRESS_MS = 1000,
    APPROVAL_MS = 100, /* between looks at the queue of approvals */
    ROOTS_MS = 5000,   /* for the client to name its roots */
    DRAIN_MS = 2000,   /* for a client that is leaving to read what is ready */
};

static const char op[] = "mcp.serve";

/* The newest first.  The first one needs no initialize. */
static const char *const versions[] = {"2026-07-28", "2025-11-25", "2025-06-18",
                                       "2025-03-26", "2024-11-05"};
#define MODERN        versions[0]
#define LEGACY        versions[1]
#define HAS_BATCHES   versions[3]
#define VERSION_COUNT (sizeof versions / sizeof *versions)

/* Messages that came together, whose answers go together. */
struct batch {
    struct buf out;
    size_t waiting;
};

/* A request. */
struct request {
    json_t *id;
    bool is_modern; /* it has its revision and the client's capabilities in itself */
    struct batch *batch;
};

/* A call of a tool, until it is answered. */
struct task {
    struct request request;
    const struct mcp_tool *tool; /* NULL: the place is free */
    json_t *arguments, *token;
    size_t size; /* of its message in memory */
    pid_t pid;   /* 0: it waits for its turn */
    int fd;
    struct mcp_lines lines;
    uint64_t begun_ms, progress_ms;
    uint64_t progress;
    bool can_elicit;                   /* the client can show a form */
    char approval[CAY_PENDING_ID_MAX]; /* the request that it was sent, or "" */
    unsigned elicited;                 /* the number of that message */
};

struct server {
    const struct mcp_options *options;
    struct mcp_session session;
    int in, out;
    struct mcp_lines lines;
    struct buf output;
    size_t output_at;
    const char *version; /* of initialize, or NULL */
    bool has_roots;      /* the client can name some */
    bool can_elicit;
    unsigned elicited;
    uint64_t looked_ms;      /* at the queue of approvals */
    uint64_t roots_until_ms; /* tools wait for them until then; 0: they do not */
    unsigned roots_asked;
    struct task tasks[CALLS_MAX];
    unsigned next; /* where the search for a free task begins: calls keep their order */
    unsigned workers;
    size_t size, queued; /* bytes of the present message, and of all tasks */
    bool is_over;        /* the client is gone */
};

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* --- Sending --- */

static void put_tree(struct json *json, const json_t *tree)
{
    AUTO_FREE char *text = json_dumps(tree, JSON_COMPACT | JSON_ENCODE_ANY);

    if (text)
        json_put_raw(json, text);
    else
        json_put_null(json);
}

/* A message is complete or not there. */
static void send_message(struct server *server, struct batch *batch,
                         const struct buf *text)
{
    struct buf *out = batch ? &batch->out : &server->output;
    bool is_sent =
        !text->failed && text->data && (!batch || buf_text(out, out->len ? "," : "[")) &&
        buf_append(out, text->data, text->len) && (batch || buf_text(out, "\n"));

    if (!is_sent && !batch)
        server->is_over = true; /* memory is exhausted */
}

static void end_batch(struct server *server, struct batch *batch)
{
    if (!batch || --batch->waiting)
        return;
    if (batch->out.len) {
        (void)buf_text(&batch->out, "]");
        send_message(server, NULL, &batch->out);
    }
    buf_done(&batch->out);
    free(batch);
}

static void begin_message(struct json *json, struct buf *text, const json_t *id)
{
    buf_init(text, REPLY_MAX);
    json_to_unicode(json, text);
    json_put_object(json);
    json_set_text(json, "jsonrpc", "2.0");
    json_put_key(json, "id");
    put_tree(json, id);
}

static void send_error(struct server *server, const struct request *request, int code,
                       const char *message, const char *data)
{
    AUTO_BUF text = {0};
    struct json json;

    begin_message(&json, &text, request ? request->id : NULL);
    json_put_key(&json, "error");
    json_put_object(&json);
    json_set_int(&json, "code", code);
    json_set_text(&json, "message", message);
    if (data) {
        json_put_key(&json, "data");
        json_put_raw(&json, data);
    }
    json_put_end(&json);
    json_put_end(&json);
    send_message(server, request ? request->batch : NULL, &text);
}

/* What every result of the newest revision has. */
static void put_modern(struct json *json, const struct request *request,
                       bool is_cacheable)
{
    if (!request->is_modern)
        return;
    json_set_text(json, "resultType", "complete");
    if (!is_cacheable)
        return;
    json_set_int(json, "ttlMs", 0);
    json_set_text(json, "cacheScope", "private");
}

static void begin_result(struct json *json, struct buf *text,
                         const struct request *request, bool is_cacheable)
{
    begin_message(json, text, request->id);
    json_put_key(json, "result");
    json_put_object(json);
    put_modern(json, request, is_cacheable);
}

static void send_result(struct server *server, struct json *json, struct buf *text,
                        const struct request *request)
{
    json_put_end(json);
    json_put_end(json);
    if (json_finish(json))
        send_message(server, request->batch, text);
    else
        send_error(server, request, MCP_E_INTERNAL, "the result is too large", NULL);
}

/* --- Results of tools --- */

/* The members of a failure that a model can read and react to. */
static void put_failure(struct json *json, const struct cay_error *failure)
{
    char text[1600];

    snprintf(text, sizeof text, "%s: %s%s%s (%s)", cay_code_slug(failure->code),
             failure->subject, *failure->subject ? ": " : "", failure->message,
             failure->hint);
    json_put_key(json, "content");
    json_put_array(json);
    json_put_object(json);
    json_set_text(json, "type", "text");
    json_set_text(json, "text", text);
    json_put_end(json);
    json_put_end(json);
    json_set_bool(json, "isError", true);
    json_put_key(json, "_meta");
    json_put_object(json);
    json_put_key(json, "cay/error");
    json_put_object(json);
    json_set_text(json, "code", cay_code_slug(failure->code));
    json_set_text(json, "subject", failure->subject);
    json_set_text(json, "message", failure->message);
    json_set_text(json, "hint", failure->hint);
    json_put_end(json);
    json_put_end(json);
}

static void put_success(struct json *json, const struct buf *data, const struct buf *text,
                        const struct buf *more)
{
    const struct buf *shown = text->len ? text : data;
    AUTO_BUF first = {0};
    struct json item;

    buf_init(&first, REPLY_MAX);
    json_to_unicode(&item, &first);
    json_put_object(&item);
    json_set_text(&item, "type", "text");
    json_put_key(&item, "text");
    json_put_bytes(&item, shown->data, shown->len);
    json_put_end(&item);
    (void)buf_append(&first, more->data ? more->data : "", more->len);
    json_put_key(json, "content");
    json_put_array(json);
    if (first.failed || more->failed || text->failed || data->failed || !first.data)
        json->failed = true;
    else
        json_put_raw(json, first.data);
    json_put_end(json);
    if (!json->failed) {
        json_put_key(json, "structuredContent");
        json_put_raw(json, data->data);
    }
    json_set_bool(json, "isError", false);
}

/* Runs the tool, and writes the members of its result. */
static void run_tool(const struct mcp_call *begun, const struct mcp_tool *tool,
                     struct json *json)
{
    struct mcp_call call = *begun;
    struct cay_error failure = {0};
    struct json data;
    AUTO_BUF data_text = {0}, text = {0}, more = {0};
    int code = CAY_OK;

    buf_init(&data_text, REPLY_MAX);
    buf_init(&text, REPLY_MAX);
    buf_init(&more, REPLY_MAX);
    call.text = &text;
    call.more = &more;
    json_to_unicode(&data, &data_text);
    json_put_object(&data);
    if (!(tool->flags & MCP_TOOL_BOXES))
        code = mcp_session_box(call.session, mcp_text(&call, "sandbox", NULL), &call.box,
                               &failure);
    if (!code)
        code = tool->run(&call, &data, &failure);
    json_put_end(&data);
    if (code)
        put_failure(json, &failure);
    else
        put_success(json, &data_text, &text, &more);
}

/* --- Workers --- */

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
    buf_init(&text, REPLY_MAX);
    (void)buf_text(&text, "R");
    json_to_unicode(&json, &text);
    json_put_object(&json);
    put_modern(&json, &task->request, false);
    run_tool(&call, task->tool, &json);
    json_put_end(&json);
    if (json_finish(&json) && buf_text(&text, "\n"))
        write_all(fd, text.data, text.len);
    _exit(0);
}

static void free_task(struct server *server, struct task *task)
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
    end_batch(server, task->request.batch);
    server->queued -= task->size;
    *task = (struct task){.tool = NULL};
}

static void fail_task(struct server *server, struct task *task, const char *message)
{
    send_error(server, &task->request, MCP_E_INTERNAL, message, NULL);
    free_task(server, task);
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
    task->begun_ms = task->progress_ms = now_ms();
    server->workers++;
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

    if (task->tool->flags & MCP_TOOL_WAITS &&
        (task->tool->flags & MCP_TOOL_BOXES ||
         mcp_session_box(&server->session, id, &box, NULL) == CAY_OK)) {
        start_worker(server, task);
        return;
    }
    begin_result(&json, &text, &task->request, false);
    run_tool(&call, task->tool, &json);
    send_result(server, &json, &text, &task->request);
    free_task(server, task);
}

/* In the order in which they came. */
static void start_tasks(struct server *server)
{
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        struct task *task = &server->tasks[(server->next + i) % CALLS_MAX];
        if (!task->tool || task->pid)
            continue;
        if (server->roots_until_ms || server->workers == WORKERS_MAX)
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
    put_tree(&json, task->token);
    json_set_uint(&json, "progress", ++task->progress);
    json_put_key(&json, "message");
    json_put_raw(&json, message);
    json_put_end(&json);
    json_put_end(&json);
    if (json_finish(&json))
        send_message(server, NULL, &text);
    task->progress_ms = now_ms();
}

/* A sign of life of calls that take long. */
static void report_progress(struct server *server)
{
    char message[64];

    for (unsigned i = 0; i < CALLS_MAX; i++) {
        struct task *task = &server->tasks[i];
        uint64_t now = now_ms();
        if (!task->pid || !task->token || now < task->progress_ms + PROGRESS_MS)
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
    mcp_approval_put(task->approval, server->version == LEGACY, &json);
    json_put_end(&json);
    if (json_finish(&json))
        send_message(server, NULL, &text);
}

/* The newest revision has no requests of servers: the call ends, with what the client
 * needs to send it again.  The command has not started. */
static void require_input(struct server *server, struct task *task)
{
    AUTO_BUF text = {0};
    struct json json;

    begin_message(&json, &text, task->request.id);
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
    send_result(server, &json, &text, &task->request);
    free_task(server, task);
}

static bool may_wait(const struct server *server, const struct task *task)
{
    return task->pid && task->can_elicit && !*task->approval &&
           server->options->sandbox.approve &&
           json_object_get(task->arguments, "command");
}

/* Commands wait for approval in workers, which do not say so. */
static void look_for_approvals(struct server *server)
{
    uint64_t now = now_ms();

    if (now < server->looked_ms + APPROVAL_MS)
        return;
    server->looked_ms = now;
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        struct task *task = &server->tasks[i];
        if (!may_wait(server, task) ||
            !mcp_approval_find(&server->session, task->arguments, task->approval))
            continue;
        if (task->request.is_modern)
            require_input(server, task);
        else
            elicit(server, task);
    }
}

/* The line of a worker is JSON that this program has written. */
static void take_line(struct server *server, struct task *task, const char *line,
                      size_t len)
{
    AUTO_BUF text = {0};
    AUTO_FREE char *content = strndup(line + 1, len - 1);
    struct json json;

    buf_init(&text, REPLY_MAX);
    if (!content) {
        fail_task(server, task, "memory is exhausted");
    } else if (*line == 'P') {
        send_progress(server, task, content);
    } else {
        begin_message(&json, &text, task->request.id);
        json_put_key(&json, "result");
        json_put_raw(&json, content);
        json_put_end(&json);
        send_message(server, task->request.batch, &text);
        free_task(server, task);
    }
}

static void read_worker(struct server *server, struct task *task)
{
    char data[READ_SIZE];
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

/* --- Methods --- */

static void put_server_info(struct json *json, const char *key)
{
    json_put_key(json, key);
    json_put_object(json);
    json_set_text(json, "name", "cay");
    json_set_text(json, "title", "Cay sandbox");
    json_set_text(json, "version", cay_version());
    json_put_end(json);
}

static void put_capabilities(struct json *json)
{
    static const char instructions[] =
        "Tools that work inside an isolated Linux sandbox: run commands and code, read "
        "and "
        "write files. Nothing of the user's machine is visible inside but what was "
        "mounted. "
        "The sandbox is created by the first call and removed when the session ends.";

    json_put_key(json, "capabilities");
    json_put_raw(json, "{\"tools\":{},\"resources\":{}}");
    json_set_text(json, "instructions", instructions);
}

/* Forms are what a client without a list of modes can show. */
static bool has_forms(const json_t *capabilities)
{
    const json_t *modes = json_object_get(capabilities, "elicitation");

    return json_is_object(modes) &&
           (!json_object_size(modes) || json_object_get(modes, "form"));
}

static void initialize(struct server *server, const struct request *request,
                       const json_t *params)
{
    const char *asked = json_string_value(json_object_get(params, "protocolVersion"));
    AUTO_BUF text = {0};
    struct json json;

    if (!asked) {
        send_error(server, request, MCP_E_PARAMS, "protocolVersion is missing", NULL);
        return;
    }
    server->version = LEGACY;
    for (size_t i = 1; i < VERSION_COUNT; i++)
        if (strcmp(versions[i], asked) == 0)
            server->version = versions[i];
    server->has_roots =
        server->options->roots != MCP_ROOTS_NONE &&
        json_is_object(json_object_get(json_object_get(params, "capabilities"), "roots"));
    server->can_elicit = has_forms(json_object_get(params, "capabilities"));
    begin_result(&json, &text, request, false);
    json_set_text(&json, "protocolVersion", server->version);
    put_capabilities(&json);
    put_server_info(&json, "serverInfo");
    send_result(server, &json, &text, request);
}

static void discover(struct server *server, const struct request *request,
                     const json_t *params)
{
    AUTO_BUF text = {0};
    struct json json;

    (void)params;
    begin_result(&json, &text, request, true);
    json_put_key(&json, "supportedVersions");
    json_put_array(&json);
    for (size_t i = 0; i < VERSION_COUNT; i++)
        json_put_text(&json, versions[i]);
    json_put_end(&json);
    put_capabilities(&json);
    put_server_info(&json, "serverInfo");
    send_result(server, &json, &text, request);
}

static void ping(struct server *server, const struct request *request,
                 const json_t *params)
{
    AUTO_BUF text = {0};
    struct json json;

    (void)params;
    begin_result(&json, &text, request, false);
    send_result(server, &json, &text, request);
}

static void list_tools(struct server *server, const struct request *request,
                       const json_t *params)
{
    AUTO_BUF text = {0};
    struct json json;

    (void)params;
    begin_result(&json, &text, request, true);
    json_put_key(&json, "tools");
    mcp_tools_put(server->options, &json);
    send_result(server, &json, &text, request);
}

static void list_templates(struct server *server, const struct request *request,
                           const json_t *params)
{
    AUTO_BUF text = {0};
    struct json json;

    (void)params;
    begin_result(&json, &text, request, true);
    mcp_resources_put_templates(&json);
    send_result(server, &json, &text, request);
}

static void fail_resource(struct server *server, const struct request *request,
                          const struct cay_error *failure)
{
    bool is_unknown = failure->code == CAY_E_NOT_FOUND || failure->code == CAY_E_INVALID;
    char message[1300];

    snprintf(message, sizeof message, "%s: %s (%s)", failure->subject, failure->message,
             failure->hint);
    send_error(server, request,
               !is_unknown          ? MCP_E_INTERNAL
               : request->is_modern ? MCP_E_PARAMS
                                    : MCP_E_RESOURCE,
               message, NULL);
}

static void list_resources(struct server *server, const struct request *request,
                           const json_t *params)
{
    const char *cursor = json_string_value(json_object_get(params, "cursor"));
    struct cay_error failure = {0};
    AUTO_BUF text = {0};
    struct json json;

    begin_result(&json, &text, request, true);
    if (mcp_resources_list(&server->session, cursor, &json, &failure) != CAY_OK)
        fail_resource(server, request, &failure);
    else
        send_result(server, &json, &text, request);
}

static void read_resource(struct server *server, const struct request *request,
                          const json_t *params)
{
    const char *uri = json_string_value(json_object_get(params, "uri"));
    struct cay_error failure = {0};
    AUTO_BUF text = {0};
    struct json json;

    begin_result(&json, &text, request, true);
    if (!uri)
        send_error(server, request, MCP_E_PARAMS, "uri is missing", NULL);
    else if (mcp_resource_read(&server->session, uri, &json, &failure) != CAY_OK)
        fail_resource(server, request, &failure);
    else
        send_result(server, &json, &text, request);
}

static struct task *free_place(struct server *server)
{
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        struct task *task = &server->tasks[(server->next + i) % CALLS_MAX];
        if (task->tool)
            continue;
        /* Later ones are searched first from here on, and this one after them. */
        server->next = (unsigned)(task + 1 - server->tasks) % CALLS_MAX;
        return task;
    }
    return NULL;
}

static void fail_arguments(struct server *server, const struct request *request,
                           const struct cay_error *failure)
{
    AUTO_BUF text = {0};
    struct json json;

    begin_result(&json, &text, request, false);
    put_failure(&json, failure);
    send_result(server, &json, &text, request);
}

/* A client of the newest revision sends the call again, with the user's reply. */
static void take_reply(struct server *server, struct task *task, const json_t *params)
{
    const char *id = json_string_value(json_object_get(params, "requestState"));
    const json_t *replies = json_object_get(params, "inputResponses");

    if (!id || !json_is_object(replies) ||
        !mcp_approval_is_for(&server->session, task->arguments, id))
        return;
    mcp_approval_reply(id, json_object_get(replies, "approval"), true);
    cay_copy_text(task->approval, sizeof task->approval, id); /* it is not sent again */
}

static void call_tool(struct server *server, const struct request *request,
                      const json_t *params)
{
    const char *name = json_string_value(json_object_get(params, "name"));
    json_t *arguments = json_object_get(params, "arguments");
    json_t *token = json_object_get(json_object_get(params, "_meta"), "progressToken");
    const struct mcp_tool *tool = name ? mcp_tool_find(server->options, name) : NULL;
    struct cay_error failure = {0};

    if (!tool) {
        send_error(server, request, MCP_E_PARAMS,
                   name ? "unknown tool" : "name is missing", NULL);
        return;
    }
    if (json_is_null(arguments))
        arguments = NULL;
    if (mcp_schema_check(tool->input, arguments, &failure) != CAY_OK) {
        fail_arguments(server, request, &failure);
        return;
    }
    struct task *task = free_place(server);
    if (!task) {
        send_error(server, request, MCP_E_INTERNAL, "too many calls wait", NULL);
        return;
    }
    *task = (struct task){.request = *request,
                          .tool = tool,
                          .arguments = json_incref(arguments),
                          .size = server->size,
                          .token = json_is_string(token) || json_is_integer(token)
                                       ? json_incref(token)
                                       : NULL};
    server->queued += task->size;
    task->can_elicit = server->can_elicit && !request->is_modern;
    if (request->is_modern) {
        const json_t *meta = json_object_get(params, "_meta");
        task->can_elicit = has_forms(
            json_object_get(meta, "io.modelcontextprotocol/clientCapabilities"));
        take_reply(server, task, params);
    }
    (void)json_incref(request->id);
    if (request->batch)
        request->batch->waiting++;
}

static const struct method {
    const char *name;
    void (*run)(struct server *server, const struct request *request,
                const json_t *params);
} methods[] = {
    {"initialize", initialize},
    {"ping", ping},
    {"resources/list", list_resources},
    {"resources/read", read_resource},
    {"resources/templates/list", list_templates},
    {"server/discover", discover},
    {"tools/call", call_tool},
    {"tools/list", list_tools},
};

/* --- Messages of the client --- */

static void ask_roots(struct server *server)
{
    char text[128];
    struct buf message = {.data = text};

    message.len = (size_t)snprintf(
        text, sizeof text,
        "{\"jsonrpc\":\"2.0\",\"id\":\"roots-%u\",\"method\":\"roots/list\"}",
        ++server->roots_asked);
    send_message(server, NULL, &message);
}

static void cancel(struct server *server, const json_t *params)
{
    const json_t *id = json_object_get(params, "requestId");

    for (unsigned i = 0; i < CALLS_MAX; i++)
        if (server->tasks[i].tool && json_equal(server->tasks[i].request.id, id)) {
            free_task(server, &server->tasks[i]);
            return;
        }
}

static void take_notification(struct server *server, const struct mcp_message *message)
{
    if (strcmp(message->method, "notifications/cancelled") == 0) {
        cancel(server, message->params);
    } else if (strcmp(message->method, "notifications/initialized") == 0) {
        if (server->has_roots && !server->roots_asked) {
            server->roots_until_ms = now_ms() + ROOTS_MS;
            ask_roots(server);
        }
    } else if (strcmp(message->method, "notifications/roots/list_changed") == 0) {
        if (server->has_roots)
            ask_roots(server);
    }
}

/* "approve-NUMBER-...": of a call that still waits.  An error leaves the request in the
 * queue. */
static bool take_approval(struct server *server, const struct mcp_message *message,
                          const char *given)
{
    static const char prefix[] = "approve-";

    if (!given || strncmp(given, prefix, strlen(prefix)) != 0)
        return false;
    unsigned long number = strtoul(given + strlen(prefix), NULL, 10);
    for (unsigned i = 0; i < CALLS_MAX && number; i++)
        if (server->tasks[i].tool && *server->tasks[i].approval &&
            server->tasks[i].elicited == number && message->result)
            mcp_approval_reply(server->tasks[i].approval, message->result, false);
    return true;
}

/* Only the last request for roots counts. */
static void take_response(struct server *server, const struct mcp_message *message)
{
    char id[32];
    const char *given = json_string_value(message->id);

    if (take_approval(server, message, given))
        return;
    snprintf(id, sizeof id, "roots-%u", server->roots_asked);
    if (!server->roots_asked || !given || strcmp(id, given) != 0)
        return;
    server->roots_until_ms = 0;
    if (message->result)
        mcp_session_set_roots(&server->session,
                              json_object_get(message->result, "roots"));
}

/* Whether a request has a revision, and this server has it, too. */
static bool check_version(struct server *server, struct request *request,
                          const struct mcp_message *message)
{
    const json_t *meta = json_object_get(message->params, "_meta");
    const char *asked = json_string_value(
        json_object_get(meta, "io.modelcontextprotocol/protocolVersion"));
    AUTO_BUF data = {0};
    struct json json;

    if (!asked) {
        if (server->version || strcmp(message->method, "initialize") == 0 ||
            strcmp(message->method, "ping") == 0)
            return true;
        send_error(server, request, MCP_E_REQUEST,
                   "the session is not initialized: send initialize first", NULL);
        return false;
    }
    request->is_modern = strcmp(asked, MODERN) == 0;
    if (request->is_modern)
        return true;
    buf_init(&data, 1024 + 6 * strlen(asked));
    json_to_unicode(&json, &data);
    json_put_object(&json);
    json_put_key(&json, "supported");
    json_put_array(&json);
    for (size_t i = 0; i < VERSION_COUNT; i++)
        json_put_text(&json, versions[i]);
    json_put_end(&json);
    json_set_text(&json, "requested", asked);
    json_put_end(&json);
    send_error(server, request, MCP_E_VERSION, "Unsupported protocol version",
               json_finish(&json) ? data.data : NULL);
    return false;
}

static void take_request(struct server *server, const struct mcp_message *message,
                         struct batch *batch)
{
    struct request request = {.id = message->id, .batch = batch};

    if (!check_version(server, &request, message))
        return;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, message->method) == 0) {
            methods[i].run(server, &request, message->params);
            return;
        }
    send_error(server, &request, MCP_E_METHOD, "unknown method", NULL);
}

static void take_item(struct server *server, json_t *item, struct batch *batch)
{
    struct mcp_message message;
    struct request request;

    mcp_message(item, &message);
    switch (message.kind) {
    case MCP_REQUEST:
        take_request(server, &message, batch);
        break;
    case MCP_NOTIFICATION:
        take_notification(server, &message);
        break;
    case MCP_RESPONSE:
        take_response(server, &message);
        break;
    case MCP_MALFORMED:
        request = (struct request){.id = message.id, .batch = batch};
        send_error(server, &request, MCP_E_REQUEST, "the message is not JSON-RPC 2.0",
                   NULL);
        break;
    }
}

static void take_batch(struct server *server, json_t *items)
{
    struct batch *batch = calloc(1, sizeof *batch);

    if (!batch || !json_array_size(items) || server->version != HAS_BATCHES) {
        send_error(server, NULL, MCP_E_REQUEST,
                   "batches are of revision 2025-03-26 alone, and not empty", NULL);
        free(batch);
        return;
    }
    buf_init(&batch->out, REPLY_MAX);
    batch->waiting = 1;
    for (size_t i = 0; i < json_array_size(items); i++)
        take_item(server, json_array_get(items, i), batch);
    end_batch(server, batch);
}

static void take_message(struct server *server, const char *line, size_t len)
{
    const char *reason = "";
    json_t *tree = mcp_parse(line, len, &reason);

    server->size = mcp_tree_size(line, len);
    if (!tree)
        send_error(server, NULL, MCP_E_PARSE, reason, NULL);
    else if (json_is_array(tree))
        take_batch(server, tree);
    else
        take_item(server, tree, NULL);
    json_decref(tree);
}

static size_t waiting(const struct server *server)
{
    return server->output.len - server->output_at;
}

/* Calls that wait would take memory without bound. */
static bool takes_more(const struct server *server)
{
    return waiting(server) < OUT_MAX && server->queued < QUEUE_MAX;
}

static void take_messages(struct server *server)
{
    const char *line;
    size_t len;
    int state = 1;

    while (!server->is_over && takes_more(server) &&
           (state = mcp_lines_take(&server->lines, &line, &len)) != 0) {
        if (state < 0)
            send_error(server, NULL, MCP_E_REQUEST, "the message is larger than 16 MiB",
                       NULL);
        else if (len)
            take_message(server, line, len);
        start_tasks(server);
    }
}

static void read_client(struct server *server)
{
    char data[READ_SIZE];
    ssize_t got = read(server->in, data, sizeof data);

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0 || !mcp_lines_add(&server->lines, data, (size_t)got))
        server->is_over = true;
}

static void write_client(struct server *server)
{
    struct buf *output = &server->output;
    ssize_t done = write(server->out, output->data + server->output_at, waiting(server));

    if (done < 0 && errno != EINTR && errno != EAGAIN)
        server->is_over = true;
    server->output_at += done > 0 ? (size_t)done : 0;
    if (waiting(server))
        return;
    buf_done(output);
    buf_init(output, 2 * (size_t)REPLY_MAX + OUT_MAX);
    server->output_at = 0;
}

/* --- The loop --- */

static int timeout_of(const struct server *server)
{
    uint64_t now = now_ms();
    int timeout = -1;

    if (server->roots_until_ms)
        timeout = server->roots_until_ms > now ? (int)(server->roots_until_ms - now) : 0;
    for (unsigned i = 0; i < CALLS_MAX && timeout < 0; i++)
        if (server->tasks[i].pid && server->tasks[i].token)
            timeout = PROGRESS_MS;
    for (unsigned i = 0; i < CALLS_MAX; i++)
        if (may_wait(server, &server->tasks[i]) && (timeout < 0 || timeout > APPROVAL_MS))
            timeout = APPROVAL_MS;
    return timeout;
}

static int poll_all(struct server *server, struct pollfd *fds, nfds_t count)
{
    int timeout = timeout_of(server);
    const struct timespec wait = {timeout / 1000, timeout % 1000 * 1000000L};

    int got = ppoll(fds, count, timeout < 0 ? NULL : &wait, server->options->mask);
    return got < 0 && errno != EINTR ? -1 : 0;
}

static void step(struct server *server)
{
    struct pollfd fds[2 + WORKERS_MAX];
    struct task *tasks[2 + WORKERS_MAX] = {NULL};
    nfds_t count = 2;
    bool is_full = waiting(server) >= OUT_MAX;

    fds[0] = (struct pollfd){takes_more(server) ? server->in : -1, POLLIN, 0};
    fds[1] = (struct pollfd){server->out, waiting(server) ? POLLOUT : 0, 0};
    for (unsigned i = 0; i < CALLS_MAX && !is_full; i++)
        if (server->tasks[i].pid) {
            tasks[count] = &server->tasks[i];
            fds[count++] = (struct pollfd){server->tasks[i].fd, POLLIN, 0};
        }
    for (nfds_t i = 0; i < count; i++)
        fds[i].revents = 0;
    if (poll_all(server, fds, count) != 0) {
        server->is_over = true;
        return;
    }
    if (fds[1].revents & POLLOUT)
        write_client(server);
    else if (fds[1].revents & (POLLERR | POLLHUP | POLLNVAL))
        server->is_over = true; /* the client reads no more */
    for (nfds_t i = 2; i < count; i++)
        if (fds[i].revents)
            read_worker(server, tasks[i]);
    if (fds[0].revents)
        read_client(server);
    if (server->roots_until_ms && now_ms() >= server->roots_until_ms)
        server->roots_until_ms = 0;
    take_messages(server);
    start_tasks(server);
    report_progress(server);
    look_for_approvals(server);
}

/* What is ready is sent, unless the client reads no more. */
static void drain(struct server *server)
{
    uint64_t until = now_ms() + DRAIN_MS;

    server->is_over = false;
    while (!server->is_over && waiting(server) && now_ms() < until) {
        struct pollfd fd = {server->out, POLLOUT, 0};
        if (poll(&fd, 1, 100) > 0 && fd.revents & POLLOUT)
            write_client(server);
        else if (fd.revents)
            return;
    }
}

static void server_done(struct server *server)
{
    for (unsigned i = 0; i < CALLS_MAX; i++)
        if (server->tasks[i].tool)
            free_task(server, &server->tasks[i]);
    drain(server);
    mcp_session_done(&server->session);
    mcp_lines_done(&server->lines);
    buf_done(&server->output);
}

int mcp_serve(const struct mcp_options *options, int in, int out, int *ret_signal,
              struct cay_error *err)
{
    struct server *server = calloc(1, sizeof *server);
    int flags = fcntl(out, F_GETFL);

    *ret_signal = 0;
    if (!server)
        return cay_fail_memory(err, op);
    *server = (struct server){.options = options, .in = in, .out = out};
    mcp_session_init(&server->session, options);
    mcp_lines_init(&server->lines);
    buf_init(&server->output, 2 * (size_t)REPLY_MAX + OUT_MAX);
    if (flags >= 0)
        (void)fcntl(out, F_SETFL, flags | O_NONBLOCK);
    while (!server->is_over && !(*ret_signal = options->take_signal()))
        step(server);
    server_done(server);
    if (flags >= 0)
        (void)fcntl(out, F_SETFL, flags);
    free(server);
    return CAY_OK;
}
