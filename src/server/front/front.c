/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/front.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

enum {
    /* For headers and pending output.  It is cleared after each request, so a larger one
     * would cost small requests more than it saves large ones; up to 32 KiB it would be
     * on the heap, which does not shrink when many clients disconnect. */
    CONNECTION_MEMORY = 36 << 10,
    IDLE_S = 75,
    SWEEP_MS = 1000,
    HEADERS_MS = 10000, /* for the first headers of a connection */
    CROWDED_MS = 2000,  /* for an idle connection while other clients wait */
    BODY_MS = 10000,
    BODY_BYTES = 4096,    /* minimum in that time */
    BODY_UNUSED = 4096,   /* if the handler does not need the body */
    UNREAD_MAX = 1 << 20, /* of a body after its request was refused */
    PARTS = 17
};

enum {
    RUNS_AT_A_TIME = 8 /* of MHD_run() */
};

/* A connection, and since when it is idle or sends headers. */
struct visit {
    struct visit *next, **link;
    int socket;
    unsigned requests, open; /* all requests; those not completed */
    uint64_t since_ms;
};

/* The broker replaces a front without progress: struct heartbeat. */
static void beat(struct front *front)
{
    if (front->options->beats)
        atomic_fetch_add(front->options->beats, 1);
}

/* --- The access log --- */

/* The access log: one line per request.  Lines are buffered, and written at the
 * latest before the loop waits.  If the log is a pipe that is not read, the lines stay in
 * the buffer, and new ones are dropped while it is full: the front never blocks. */

enum {
    LOG_FLUSH = 48 << 10,
    LOG_MAX = 64 << 10, /* FLUSH and the longest line fit */
    LOG_PATH = 1024,
    LOG_PIECE = 4096 /* a writable pipe accepts this much without blocking (PIPE_BUF) */
};

static void flush_log(struct front *front)
{
    struct pollfd out = {.fd = front->options->log, .events = POLLOUT};
    struct buf *log = &front->log;
    size_t done = 0;

    while (done < log->len && poll(&out, 1, 0) == 1 && out.revents & POLLOUT) {
        size_t left = log->len - done;
        ssize_t got =
            write(out.fd, log->data + done, left < LOG_PIECE ? left : LOG_PIECE);
        if (got < 0 && errno == EAGAIN)
            break;
        done =
            got > 0 ? done + (size_t)got : log->len; /* a full disk: the lines are lost */
    }
    if (done)
        memmove(log->data, log->data + done, log->len - done);
    log->len -= done;
}

static unsigned logged_status(const struct exchange *exchange)
{
    return exchange->is_queued || exchange->is_refused ? exchange->status : 499;
}

static const char *logged_level(unsigned status)
{
    return status >= 500 ? "error" : status >= 400 ? "warn" : "info";
}

static void put_json(struct exchange *exchange, uint64_t took_ms, struct buf *log)
{
    unsigned status = logged_status(exchange);
    int64_t now_ms = clock_since_1970_ms();
    char text[WARN_TIME], name[REQUEST_NAME];
    struct json json;

    warn_put_time(now_ms, text);
    request_name(exchange->id, name);
    json_to_buf(&json, log);
    json_put_object(&json);
    json_set_text(&json, "time", text);
    json_set_int(&json, "time_ms", now_ms);
    json_set_text(&json, "level", logged_level(status));
    json_set_text(&json, "request", name);
    json_set_text(&json, "method", exchange->method);
    json_put_key(&json, "path");
    json_put_bytes(&json, exchange->url, strnlen(exchange->url, LOG_PATH));
    if (*exchange->tenant)
        json_set_text(&json, "tenant", exchange->tenant);
    if (*exchange->route.sandbox)
        json_set_text(&json, "sandbox", exchange->route.sandbox);
    if (exchange->route.plane == PLANE_PORT || exchange->route.plane == PLANE_CODE)
        json_set_int(&json, "port", exchange->route.port);
    json_set_int(&json, "status", status);
    json_set_int(&json, "ms", (int64_t)took_ms);
    json_set_uint(&json, "bytes_in", exchange->body_bytes);
    json_set_uint(&json, "bytes_out", exchange->sent);
    if (status >= 400 && *exchange->reason)
        json_set_text(&json, "reason", exchange->reason);
    json_put_end(&json);
    if (!json_finish(&json))
        log->failed = true;
}

/* Clients choose these texts: without control characters, and without spaces. */
static void put_word(struct buf *log, const char *text, size_t max)
{
    for (size_t i = 0; i < max && text[i]; i++)
        (void)buf_append(log, text[i] > ' ' && text[i] <= '~' ? &text[i] : "?", 1);
}

static void put_text(struct exchange *exchange, uint64_t took_ms, struct buf *log)
{
    unsigned status = logged_status(exchange);
    char text[WARN_TIME], name[REQUEST_NAME];

    warn_put_time(clock_since_1970_ms(), text);
    request_name(exchange->id, name);
    buf_format(log, "%s %s %s %u ", text, logged_level(status), name, status);
    put_word(log, exchange->method, LOG_PATH);
    (void)buf_text(log, " ");
    put_word(log, exchange->url, LOG_PATH);
    buf_format(log, " %llums in=%llu out=%llu", (unsigned long long)took_ms,
               (unsigned long long)exchange->body_bytes,
               (unsigned long long)exchange->sent);
    if (*exchange->tenant)
        buf_format(log, " tenant=%s", exchange->tenant);
    if (*exchange->route.sandbox) {
        (void)buf_text(log, " sandbox=");
        put_word(log, exchange->route.sandbox, SANDBOX_ID_MAX);
    }
    if (status >= 400 && *exchange->reason) {
        (void)buf_text(log, " reason=");
        for (const char *at = exchange->reason; *at; at++)
            (void)buf_append(log, *at >= ' ' && *at <= '~' ? at : "?", 1);
    }
}

static void log_request(struct exchange *exchange)
{
    struct front *front = exchange->front;
    struct buf *log = &front->log;
    uint64_t took_ms = uv_now(&front->loop) - exchange->began_ms;
    size_t before = log->len;

    if (front->options->log < 0)
        return;
    (front->options->log_is_text ? put_text : put_json)(exchange, took_ms, log);
    if (log->failed || !buf_text(log, "\n")) {
        log->len = before;
        log->failed = false;
    }
    if (log->len > LOG_FLUSH)
        flush_log(front);
}

/* --- Accepting connections --- */

/* The front accepts connections itself and passes them to libmicrohttpd, since after
 * EMFILE libmicrohttpd polls its listening socket again only when it runs for another
 * reason, which without a connection never happens.
 *
 * The listener is polled unless connections_max is reached or accept4() failed for lack
 * of resources.  A closed connection resumes polling; after a shortage it resumes every
 * second. */

enum {
    CONNECTIONS_MAX = 4096,
    CONNECTIONS_MIN = 4,
    RESERVED_FILES = 32,  /* event loop, log, and short-lived descriptors */
    CONNECTION_FILES = 3, /* socket, channel, and the file of an upload */
    ACCEPTS_AT_A_TIME = 16,
    STALLED_SWEEPS = 30 /* without an accepted connection although clients wait */
};

unsigned front_connections_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
        return CONNECTIONS_MAX;
    if (files.rlim_cur < RESERVED_FILES + CONNECTION_FILES * CONNECTIONS_MIN)
        return CONNECTIONS_MIN;
    rlim_t room = (files.rlim_cur - RESERVED_FILES) / CONNECTION_FILES;
    return room < CONNECTIONS_MAX ? (unsigned)room : CONNECTIONS_MAX;
}

static bool accept_is_full(const struct front *front)
{
    return front->connections >= front->connections_max;
}

static bool accept_has_waiting(const struct front *front)
{
    struct pollfd listener = {.fd = front->options->listener, .events = POLLIN};

    return poll(&listener, 1, 0) == 1;
}

/* False if no connection waits, or none can be accepted now. */
static bool accept_one(struct front *front)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    int fd = accept4(front->options->listener, (struct sockaddr *)&address, &len,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0 && !cay_errno_is_shortage(errno))
        return errno != EAGAIN; /* the client disconnected before accept4() */
    if (fd < 0) {
        int error = errno;
        if (!front->shortage)
            warn_line(&front->accept_warn,
                      "the front cannot accept connections (%s), %llu are open; new "
                      "clients wait (raise the limit of open files: ulimit -n, "
                      "LimitNOFILE=)",
                      cay_errno_words(error), (unsigned long long)front->connections);
        front->shortage = error;
        return false;
    }
    if (front->shortage)
        warn_line(&front->accept_warn, "the front accepts connections again");
    front->shortage = 0;
    front->accepted++;
    /* It closes the socket on failure. */
    (void)MHD_add_connection(front->daemon, fd, (struct sockaddr *)&address, len);
    front->has_resumed = true; /* run the daemon before waiting */
    return true;
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct front *front = poll->data;
    int count = 0;

    (void)status;
    (void)events;
    while (count++ < ACCEPTS_AT_A_TIME && !accept_is_full(front) && accept_one(front))
        continue;
    if (accept_is_full(front) && !front->was_full)
        warn_line(&front->accept_warn,
                  "the front has %llu connections, the maximum; new clients wait",
                  (unsigned long long)front->connections);
    front->was_full = accept_is_full(front);
    if (front->shortage || front->was_full) {
        (void)uv_poll_stop(&front->listener_poll);
        front->is_listening = false;
    }
}

static void accept_resume(struct front *front)
{
    if (!front->is_listening && !accept_is_full(front))
        front->is_listening =
            uv_poll_start(&front->listener_poll, UV_READABLE, on_listener) == 0;
}

/* The front is stalled if clients wait, there is room, no request is open, and none was
 * accepted within STALLED_SWEEPS.  Open requests free descriptors when they end; a new
 * front would abort them.  ENFILE and ENOMEM concern the whole machine: a new front would
 * not help. */
bool front_accept_sweep(struct front *front)
{
    bool is_ours = !front->shortage || front->shortage == EMFILE;

    accept_resume(front);
    if (front->accepted != front->accepted_before || accept_is_full(front) || !is_ours ||
        front->exchanges || !accept_has_waiting(front))
        front->stalled = 0;
    else
        front->stalled++;
    front->accepted_before = front->accepted;
    if (front->stalled < STALLED_SWEEPS)
        return true;
    warn_line(&front->accept_warn,
              "the front does not accept connections (%llu are open); it exits",
              (unsigned long long)front->connections);
    return false;
}

/* --- Requests --- */

static const struct handler *const planes[][PARTS] = {
    [PLANE_CONTROL] = {usage_handlers, log_handlers, template_handlers, missing_handlers,
                       sandbox_handlers, secret_handlers, volume_handlers,
                       content_handlers, fork_handlers, checkpoint_handlers,
                       snapshot_handlers, metrics_handlers, mcp_handlers,
                       session_handlers, ui_handlers, approval_handlers, key_handlers},
    [PLANE_ENVD] = {process_handlers, filesystem_handlers, file_handlers},
    [PLANE_CODE] = {code_handlers},
};

/* Sets ret_other if the path exists with another method. */
static const struct handler *find_handler(struct exchange *exchange, bool *ret_other)
{
    char part[PART_MAX];

    *ret_other = false;
    if (exchange->route.plane == PLANE_PORT)
        return &port_handler;
    for (int i = 0; i < PARTS; i++) {
        const struct handler *handler = planes[exchange->route.plane][i];
        for (; handler && handler->path; handler++) {
            if (!route_matches(handler->path, exchange->target, part))
                continue;
            if (strcmp(handler->method, exchange->method) == 0) {
                memcpy(exchange->route.part, part, sizeof part);
                return handler;
            }
            *ret_other = true;
        }
    }
    return NULL;
}

/* Called after the request line.  The result becomes the request's context. */
static void *on_request_line(void *cls, const char *target,
                             struct MHD_Connection *connection)
{
    struct front *front = cls;
    struct exchange *exchange = calloc(1, sizeof *exchange);

    if (!exchange)
        return NULL;
    exchange->front = front;
    exchange->connection = connection;
    exchange->references = 1;
    exchange->channel = -1;
    exchange->target = strdup(target);
    exchange->id = front->first_id++;
    exchange->began_ns = clock_ns();
    exchange->began_ms = exchange->body_ms = uv_now(&front->loop);
    exchange->socket =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
            ->connect_fd;
    buf_init(&exchange->body, 0);
    buf_init(&exchange->out, 0);
    return exchange;
}

static const char too_large[] = "the body is too large";

/* Called after the headers. */
static void begin(struct exchange *exchange)
{
    unsigned status;
    bool other;
    const char *wrong = route_check(exchange, &status);
    const char *len = exchange_header(exchange, "Content-Length");
    bool has_body =
        exchange_header(exchange, "Transfer-Encoding") || (len && strcmp(len, "0") != 0);

    if (exchange->front->is_draining) {
        exchange_refuse_and_close(exchange, 503,
                                  "the server is shutting down; try again");
        return;
    }
    if (!wrong)
        wrong = route_find(exchange, &status);
    if (wrong) {
        exchange_refuse_and_close(exchange, status, wrong);
        return;
    }
    exchange->handler = find_handler(exchange, &other);
    if (!exchange->handler) {
        void (*refuse)(struct exchange * exchange, unsigned status, const char *message) =
            has_body ? exchange_refuse_and_close : exchange_refuse;
        refuse(exchange, other ? 405 : 404, other ? "method not allowed" : "not found");
        return;
    }
    wrong = front_session_take(exchange);
    if (wrong) {
        exchange_refuse_and_close(exchange, 403, wrong);
        return;
    }
    exchange->body.max =
        exchange->handler->body_max ? exchange->handler->body_max : BODY_UNUSED;
    if (exchange->handler != &port_handler && strstr(exchange->target, "%00"))
        exchange_refuse_and_close(exchange, 400, "the URL contains a NUL");
    else if (len && !exchange->handler->feed &&
             strtoull(len, NULL, 10) > exchange->body.max) /* before it arrives */
        exchange_refuse_and_close(exchange, 413, too_large);
    else if (exchange->handler->begin && !exchange->handler->begin(exchange) &&
             !exchange->response)
        exchange_refuse_and_close(exchange, 500, "out of memory");
}

static void drop_body(struct exchange *exchange)
{
    buf_done(&exchange->body);
    (void)exchange_charge_body(exchange, 0);
}

/* The response was sent, or the client disconnected. */
static bool is_done_with(const struct exchange *exchange)
{
    return exchange->is_refused || (exchange->is_over && !exchange->is_stream);
}

/* A piece of the body.  False to close the connection. */
static bool take_body(struct exchange *exchange, const char *data, size_t len)
{
    exchange->body_bytes += len;
    if (exchange->is_refused)
        return (exchange->unread += len) < UNREAD_MAX;
    if (is_done_with(exchange))
        return false;
    if (exchange->response) /* already refused: ignore the rest */
        return true;
    if (exchange->handler->feed) {
        (void)exchange->handler->feed(exchange, data, len);
        exchange->body_bytes -= exchange->body_left;
    } else if (!exchange_charge_body(exchange, exchange->body.len + len)) {
        drop_body(exchange);
        return exchange_refuse_now(exchange, 503, "the server is overloaded");
    } else if (!buf_append(&exchange->body, data, len)) {
        drop_body(exchange);
        return exchange_refuse_now(exchange, 413, too_large);
    }
    return true;
}

/* A program in a sandbox that sets the header itself, sets it for its own clients. */
static void add_id(const struct exchange *exchange, struct MHD_Response *response)
{
    static const char header[] = "X-Request-Id";
    char name[REQUEST_NAME];

    if (exchange->route.plane == PLANE_PORT && MHD_get_response_header(response, header))
        return;
    request_name(exchange->id, name);
    (void)MHD_add_response_header(response, header, name);
}

static enum MHD_Result queue(struct exchange *exchange)
{
    unsigned status = exchange->status;
    struct MHD_Response *response = TAKE_PTR(exchange->response);

    if (exchange->is_last)
        (void)MHD_add_response_header(response, "Connection", "close");
    add_id(exchange, response);
    front_ui_protect(exchange, response);
    if (status < 400)
        front_observe(&exchange->front->times[front_kind_of(exchange)],
                      (clock_ns() - exchange->began_ns) / 1000);
    exchange->front->status[status / 100 < 6 ? status / 100 : 5]++;
    enum MHD_Result result = MHD_queue_response(exchange->connection, status, response);
    exchange->is_queued = true;
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result begin_request(struct exchange *exchange,
                                     struct MHD_Connection *connection, const char *url,
                                     const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct visit *visit = info ? info->socket_context : NULL;
    struct front *front = exchange->front;

    exchange->has_begun = true;
    exchange->url = url;
    exchange->method = method;
    exchange->next = front->exchanges;
    exchange->link = &front->exchanges;
    if (exchange->next)
        exchange->next->link = &exchange->next;
    front->exchanges = exchange;
    front->requests++;
    if (visit) {
        visit->requests++;
        visit->open++;
    }
    begin(exchange);
    exchange->is_again = exchange->is_suspended;
    return exchange->response && !exchange->is_suspended ? queue(exchange) : MHD_YES;
}

/* The request is complete.  False to close the connection. */
static bool act(struct exchange *exchange)
{
    exchange->has_body = true;
    exchange->handler->act(exchange);
    if (exchange->response || exchange->is_stream || !exchange_is_read(exchange))
        drop_body(exchange); /* a stream would keep it for hours */
    /* Without a response libmicrohttpd would call again and again. */
    if (exchange->is_refused && !exchange->is_suspended)
        return false;
    if (!exchange->response && !exchange->is_suspended && !exchange->is_stream)
        exchange_refuse(exchange, 500, "internal error: no response");
    return true;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection,
                              const char *url, const char *method, const char *version,
                              const char *upload, size_t *upload_len, void **request)
{
    struct exchange *exchange = *request;

    (void)version;
    beat(cls);
    if (!exchange || !exchange->target)
        return MHD_NO;
    if (!exchange->has_begun)
        return begin_request(exchange, connection, url, method);
    if (*upload_len > 0) {
        exchange->body_left = 0;
        bool goes_on = take_body(exchange, upload, *upload_len);
        *upload_len = exchange->response ? 0 : exchange->body_left;
        return goes_on ? MHD_YES : MHD_NO;
    }
    if (exchange->is_again && !exchange->response) { /* the body has not arrived yet */
        exchange->is_again = false;
        return MHD_YES;
    }
    if (is_done_with(exchange))
        return MHD_NO;
    if (!exchange->response && !exchange->is_stream && !exchange->has_body &&
        !act(exchange))
        return MHD_NO;
    if (exchange->response && !exchange->is_queued)
        return queue(exchange);
    return MHD_YES;
}

static void complete(void *cls, struct MHD_Connection *connection, void **request,
                     enum MHD_RequestTerminationCode how)
{
    struct exchange *exchange = *request;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct visit *visit = info ? info->socket_context : NULL;
    struct front *front = cls;

    if (visit) {
        visit->open -= visit->open > 0;
        visit->since_ms = uv_now(&front->loop);
    }
    if (!exchange)
        return;
    if (exchange->has_begun)
        log_request(exchange);
    exchange_forget_client(exchange);
    if (exchange->is_stream)
        front->streams--;
    /* libmicrohttpd closes an aborted connection at the next event of its socket, and a
     * reset one has no more events: suspend and resume it.  But before all headers
     * arrived it closes the connection itself, and would do so twice. */
    if (how == MHD_REQUEST_TERMINATED_WITH_ERROR && exchange->has_begun &&
        !exchange->is_suspended) {
        exchange_suspend(exchange);
        exchange_resume(exchange);
    }
    *request = NULL;
    if (exchange->response &&
        !exchange->is_queued) /* the response of a stream references the exchange */
        MHD_destroy_response(TAKE_PTR(exchange->response));
    exchange_free(exchange);
}

/* --- Connections --- */

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct front *front = cls;
    struct visit *visit = *context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        visit = calloc(1, sizeof *visit);
        if (!visit)
            return;
        visit->socket =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
                ->connect_fd;
        visit->since_ms = uv_now(&front->loop);
        visit->next = front->visits;
        visit->link = &front->visits;
        if (visit->next)
            visit->next->link = &visit->next;
        front->visits = visit;
        front->connections++;
        *context = visit;
    } else if (visit) {
        *visit->link = visit->next;
        if (visit->next)
            visit->next->link = visit->link;
        free(visit);
        front->connections--;
        *context = NULL;
        accept_resume(front);
    }
}

static void cut(struct front *front, int socket)
{
    front->refused++;
    (void)shutdown(socket, SHUT_RDWR);
}

/* libmicrohttpd does not detect an end that arrived together with the last bytes. */
static bool has_left(int socket)
{
    char byte;

    return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Disconnects clients that send headers or a body too slowly. */
static void sweep_slow(struct front *front, uint64_t now)
{
    bool is_crowded =
        (accept_is_full(front) || front->shortage) && accept_has_waiting(front);

    for (struct visit *visit = front->visits; visit; visit = visit->next) {
        uint64_t limit = is_crowded        ? CROWDED_MS
                         : visit->requests ? IDLE_S * 1000
                                           : HEADERS_MS;
        if (!visit->open && (now - visit->since_ms > limit || has_left(visit->socket)))
            cut(front, visit->socket);
    }
    for (struct exchange *exchange = front->exchanges; exchange;
         exchange = exchange->next) {
        if (exchange->has_body || exchange->is_suspended || exchange->is_queued)
            continue;
        if (has_left(exchange->socket))
            cut(front, exchange->socket);
        if (now - exchange->body_ms < BODY_MS)
            continue;
        if (exchange->body_bytes - exchange->body_seen < BODY_BYTES)
            cut(front, exchange->socket);
        exchange->body_ms = now;
        exchange->body_seen = exchange->body_bytes;
    }
}

static void sweep(uv_timer_t *timer)
{
    struct front *front = timer->data;
    uint64_t now = uv_now(&front->loop);

    sweep_slow(front, now);
    if (!front_accept_sweep(front)) {
        flush_log(front);
        _exit(1);
    }
    beat(front);
    front_mcp_sweep(front);
    for (struct exchange *exchange = front->exchanges; exchange;
         exchange = exchange->next) {
        if (exchange->is_over)
            continue;
        if (!exchange->is_stream) {
            if (exchange->is_suspended && !exchange->response && exchange->handler &&
                exchange->handler->overdue)
                exchange->handler->overdue(exchange);
            continue;
        }
        if (exchange->deadline_ms && now >= exchange->deadline_ms) {
            connect_end_with(exchange, "deadline_exceeded",
                             "the stream exceeded its timeout");
        } else if (exchange->is_suspended && exchange->keepalive &&
                   exchange->keepalive_ms &&
                   now - exchange->heard_ms >= exchange->keepalive_ms) {
            exchange->heard_ms = now;
            exchange->keepalive(exchange);
            exchange_resume(exchange);
        }
    }
}

/* --- The loop --- */

static void run_daemon(struct front *front);

static void on_daemon(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    run_daemon(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
    run_daemon(timer->data);
}

static void run_daemon(struct front *front)
{
    MHD_UNSIGNED_LONG_LONG timeout = 0;
    bool has_timeout = true;

    for (int i = 0; i < RUNS_AT_A_TIME && has_timeout && timeout == 0; i++) {
        front->has_resumed = false;
        (void)MHD_run(front->daemon);
        beat(front);
        timeout = 0;
        if (!front->has_resumed)
            has_timeout = MHD_get_timeout(front->daemon, &timeout) == MHD_YES;
    }
    if (has_timeout)
        (void)uv_timer_start(&front->daemon_timer, on_timer, timeout, 0);
    else
        (void)uv_timer_stop(&front->daemon_timer);
}

/* Without its own thread the daemon does not notice resumed connections.
 *
 * If the server drains, streams end at once, with a reason: the process or directory
 * still exists, and the client can connect again.  All other requests may finish. */
static void before_waiting(uv_prepare_t *prepare)
{
    struct front *front = prepare->data;

    if (front->is_draining)
        front_mcp_drain(front);
    for (struct exchange *exchange = front->exchanges; exchange && front->is_draining;
         exchange = exchange->next)
        if (exchange->is_stream && !exchange->is_over && !exchange->handler->pull)
            connect_end_with(
                exchange, "unavailable",
                "the server is shutting down; the sandbox keeps running: connect again");
    if (front->has_resumed)
        run_daemon(front);
    flush_log(front);
    if (front->is_draining && !front->exchanges)
        _exit(0);
}

/* A packet is the request to drain; the end of the socket means that the broker exited.
 */
static void on_broker(uv_poll_t *poll, int status, int events)
{
    struct front *front = poll->data;
    char word;

    (void)status;
    (void)events;
    ssize_t got = recv(front->options->broker, &word, 1, MSG_DONTWAIT);
    if (got == 1) {
        front->is_draining = true;
    } else if (got == 0 || errno != EAGAIN) {
        flush_log(front);
        _exit(0);
    }
}

static void drop_log(void *cls, const char *format, va_list arguments)
{
    (void)cls;
    (void)format;
    (void)arguments;
}

static struct MHD_Daemon *start_daemon(struct front *front)
{
    const struct front_options *options = front->options;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, options->tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, options->tls_key},
        {MHD_OPTION_END, 0, NULL},
    };

    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
            MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG |
            (options->tls_cert ? (unsigned)MHD_USE_TLS : 0u),
        0, NULL, NULL, handle, front, MHD_OPTION_EXTERNAL_LOGGER, drop_log, NULL,
        MHD_OPTION_CONNECTION_LIMIT, front->connections_max,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_NOTIFY_COMPLETED, complete, front, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, front, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, front,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_ARRAY, options->tls_cert ? tls : &tls[2], MHD_OPTION_END);
}

bool front_open(struct front *front, const struct front_options *options)
{
    front->options = options;
    json_object_seed(0); /* random; /dev/urandom cannot be opened later */
    if (uv_loop_init(&front->loop) != 0)
        return false;
    front->connections_max = front_connections_limit();
    if (getrandom(&front->first_id, sizeof front->first_id, 0) < 0)
        return false;
    front->daemon = start_daemon(front);
    front->wakes = epoll_create1(EPOLL_CLOEXEC);
    if (!front->daemon || front->wakes < 0 || !front_ui_open(front))
        return false;
    buf_init(&front->log, LOG_MAX);
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(front->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    (void)uv_poll_init(&front->loop, &front->daemon_poll, info->epoll_fd);
    (void)uv_poll_init(&front->loop, &front->broker_poll, options->broker);
    (void)uv_poll_init(&front->loop, &front->listener_poll, options->listener);
    (void)uv_poll_init(&front->loop, &front->wakes_poll, front->wakes);
    (void)uv_timer_init(&front->loop, &front->daemon_timer);
    (void)uv_timer_init(&front->loop, &front->sweep_timer);
    (void)uv_prepare_init(&front->loop, &front->before_waiting);
    front->before_waiting.data = front->listener_poll.data = front;
    front->daemon_poll.data = front->broker_poll.data = front->wakes_poll.data = front;
    front->daemon_timer.data = front->sweep_timer.data = front;
    accept_resume(front);
    return front->is_listening &&
           uv_poll_start(&front->daemon_poll, UV_READABLE, on_daemon) == 0 &&
           uv_poll_start(&front->wakes_poll, UV_READABLE, exchange_on_wakes) == 0 &&
           uv_poll_start(&front->broker_poll, UV_READABLE | UV_DISCONNECT, on_broker) ==
               0 &&
           uv_prepare_start(&front->before_waiting, before_waiting) == 0 &&
           uv_timer_start(&front->sweep_timer, sweep, SWEEP_MS, SWEEP_MS) == 0;
}

_Noreturn void front_run(const struct front_options *options)
{
    static struct front front;
    struct cay_error error;

    if (confine_deny_rings(&error) != CAY_OK || !front_open(&front, options) ||
        confine(&error) != CAY_OK)
        _exit(1);
    (void)uv_run(&front.loop, UV_RUN_DEFAULT);
    _exit(1);
}
