/* SPDX-License-Identifier: Apache-2.0 */

/* One thread, one poll loop.  Short calls run in it.  A call that may wait is run by a
 * worker (task.c): its connections to the sandbox close when it is killed, and with them
 * ends the command that it waits for.
 *
 * Messages wait in memory up to a limit: while a client does not read, nothing is read
 * from it, nor from the workers. */
#include "mcp/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

enum {
    OUT_MAX = 1 << 20,     /* bytes that wait for the client before it is not read from */
    QUEUE_MAX = 128 << 20, /* bytes of calls in memory, before nothing is read */
    ROOTS_MS = 5000,       /* for the client to name its roots */
    DRAIN_MS = 2000        /* for a client that is leaving to read what is ready */
};

static const char op[] = "mcp.serve";

/* --- Messages of the client --- */

static void ask_roots(struct server *server)
{
    char text[128];
    struct buf message = {.data = text};

    message.len = (size_t)snprintf(
        text, sizeof text,
        "{\"jsonrpc\":\"2.0\",\"id\":\"roots-%u\",\"method\":\"roots/list\"}",
        ++server->roots_asked);
    mcp_send(server, NULL, &message);
}

static void cancel(struct server *server, const json_t *params)
{
    const json_t *id = json_object_get(params, "requestId");

    for (unsigned i = 0; i < MCP_CALLS_MAX; i++)
        if (server->tasks[i].tool && json_equal(server->tasks[i].request.id, id)) {
            mcp_task_free(server, &server->tasks[i]);
            return;
        }
}

static void take_notification(struct server *server, const struct mcp_message *message)
{
    if (strcmp(message->method, "notifications/cancelled") == 0) {
        cancel(server, message->params);
    } else if (strcmp(message->method, "notifications/initialized") == 0) {
        if (server->has_roots && !server->roots_asked) {
            server->roots_until_ms = mcp_now_ms() + ROOTS_MS;
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
    for (unsigned i = 0; i < MCP_CALLS_MAX && number; i++)
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

static void take_item(struct server *server, json_t *item, struct batch *batch)
{
    struct mcp_message message;
    struct request request;

    mcp_message(item, &message);
    switch (message.kind) {
    case MCP_REQUEST:
        mcp_take_request(server, &message, batch);
        break;
    case MCP_NOTIFICATION:
        take_notification(server, &message);
        break;
    case MCP_RESPONSE:
        take_response(server, &message);
        break;
    case MCP_MALFORMED:
        request = (struct request){.id = message.id, .batch = batch};
        mcp_send_error(server, &request, MCP_E_REQUEST, "the message is not JSON-RPC 2.0",
                       NULL);
        break;
    }
}

static void take_batch(struct server *server, json_t *items)
{
    struct batch *batch = calloc(1, sizeof *batch);

    if (!batch || !json_array_size(items) || server->version != MCP_HAS_BATCHES) {
        mcp_send_error(server, NULL, MCP_E_REQUEST,
                       "batches are of revision 2025-03-26 alone, and not empty", NULL);
        free(batch);
        return;
    }
    buf_init(&batch->out, MCP_REPLY_MAX);
    batch->waiting = 1;
    for (size_t i = 0; i < json_array_size(items); i++)
        take_item(server, json_array_get(items, i), batch);
    mcp_end_batch(server, batch);
}

static void take_message(struct server *server, const char *line, size_t len)
{
    const char *reason = "";
    json_t *tree = mcp_parse(line, len, &reason);

    server->size = mcp_tree_size(line, len);
    if (!tree)
        mcp_send_error(server, NULL, MCP_E_PARSE, reason, NULL);
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

bool mcp_is_full(const struct server *server)
{
    return waiting(server) >= OUT_MAX;
}

/* Calls that wait would take memory without bound. */
static bool takes_more(const struct server *server)
{
    return !mcp_is_full(server) && server->queued < QUEUE_MAX;
}

static void take_messages(struct server *server)
{
    const char *line;
    size_t len;
    int state = 1;

    while (!server->is_over && takes_more(server) &&
           (state = mcp_lines_take(&server->lines, &line, &len)) != 0) {
        if (state < 0)
            mcp_send_error(server, NULL, MCP_E_REQUEST,
                           "the message is larger than 16 MiB", NULL);
        else if (len)
            take_message(server, line, len);
        mcp_tasks_start(server);
    }
}

static void read_client(struct server *server)
{
    char data[MCP_READ_SIZE];
    ssize_t got = read(server->in, data, sizeof data);

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0 || !mcp_lines_add(&server->lines, data, (size_t)got))
        server->is_over = true;
}

/* What is written would count for the limit of the buffer, since new messages follow
 * while less than OUT_MAX waits. */
static void make_room(struct server *server)
{
    struct buf *output = &server->output;

    if (server->output_at < OUT_MAX || mcp_is_full(server))
        return;
    memmove(output->data, output->data + server->output_at, waiting(server));
    output->len = waiting(server);
    server->output_at = 0;
}

static void write_client(struct server *server)
{
    struct buf *output = &server->output;
    ssize_t done = write(server->out, output->data + server->output_at, waiting(server));

    if (done < 0 && errno != EINTR && errno != EAGAIN)
        server->is_over = true;
    server->output_at += done > 0 ? (size_t)done : 0;
    if (waiting(server)) {
        make_room(server);
        return;
    }
    buf_done(output);
    buf_init(output, 2 * (size_t)MCP_REPLY_MAX + OUT_MAX);
    server->output_at = 0;
}

/* --- The loop --- */

static int timeout_of(const struct server *server)
{
    uint64_t now = mcp_now_ms();
    int timeout = -1;

    if (server->roots_until_ms)
        timeout = server->roots_until_ms > now ? (int)(server->roots_until_ms - now) : 0;
    for (unsigned i = 0; i < MCP_CALLS_MAX && timeout < 0; i++)
        if (server->tasks[i].pid && server->tasks[i].token)
            timeout = MCP_PROGRESS_MS;
    for (unsigned i = 0; i < MCP_CALLS_MAX; i++)
        if (mcp_task_may_wait(server, &server->tasks[i]) &&
            (timeout < 0 || timeout > MCP_APPROVAL_MS))
            timeout = MCP_APPROVAL_MS;
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
    struct pollfd fds[2 + MCP_WORKERS_MAX];
    struct task *tasks[2 + MCP_WORKERS_MAX] = {NULL};
    nfds_t count = 2;
    bool is_full = mcp_is_full(server);

    fds[0] = (struct pollfd){takes_more(server) ? server->in : -1, POLLIN, 0};
    fds[1] = (struct pollfd){server->out, waiting(server) ? POLLOUT : 0, 0};
    for (unsigned i = 0; i < MCP_CALLS_MAX && !is_full; i++)
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
        if (fds[i].revents && !mcp_is_full(server))
            mcp_task_read(server, tasks[i]);
    if (fds[0].revents)
        read_client(server);
    if (server->roots_until_ms && mcp_now_ms() >= server->roots_until_ms)
        server->roots_until_ms = 0;
    take_messages(server);
    mcp_tasks_start(server);
    mcp_tasks_report(server);
    mcp_tasks_approve(server);
}

/* What is ready is sent, unless the client reads no more. */
static void drain(struct server *server)
{
    uint64_t until = mcp_now_ms() + DRAIN_MS;

    server->is_over = false;
    while (!server->is_over && waiting(server) && mcp_now_ms() < until) {
        struct pollfd fd = {server->out, POLLOUT, 0};
        if (poll(&fd, 1, 100) > 0 && fd.revents & POLLOUT)
            write_client(server);
        else if (fd.revents)
            return;
    }
}

static void server_done(struct server *server)
{
    for (unsigned i = 0; i < MCP_CALLS_MAX; i++)
        if (server->tasks[i].tool)
            mcp_task_free(server, &server->tasks[i]);
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
    buf_init(&server->output, 2 * (size_t)MCP_REPLY_MAX + OUT_MAX);
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
