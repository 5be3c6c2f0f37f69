/* SPDX-License-Identifier: Apache-2.0 */

/* The service has the rights of the user inside, so every event is checked: its kind, its
 * length, and that texts end within their field. */
#include "code/client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "code/warm.h"
#include "sys/rights.h"

enum {
    EVENTS_ROOM = sizeof(struct code_event) + CODE_PIECE,
    GRACE_MS = 20000, /* after the timeout, for the kill and a slow machine */
    REPLY_MS = 60000, /* for a request that does not wait for code */
    TRIES = 3         /* again, if the service ends before it has seen the request */
};

static int dial(struct code_client *client, struct cay_error *err)
{
    return client->sandbox->backend->code(client->sandbox->cookie, client->user,
                                          &client->fd, &client->memory_kills,
                                          &client->template_name, err);
}

int code_connect(struct code_client *client, cay_sandbox *sandbox, const char *user,
                 const char *op, struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;

    *client = (struct code_client){
        .sandbox = sandbox, .op = op, .user = user, .fd = -1, .deadline_ms = UINT64_MAX};
    if (!backend->code)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, backend->name,
                        "this backend has no code contexts",
                        "run the code without a context (cay_code_run), or use the "
                        "native backend");
    client->events = malloc(EVENTS_ROOM);
    if (!client->events)
        return cay_fail_memory(err, op);
    return dial(client, err);
}

void code_hang_up(struct code_client *client)
{
    if (client->fd >= 0)
        (void)close(client->fd);
    free(client->events);
    client->fd = -1;
    client->events = NULL;
}

/* --- Bytes --- */

static int fail_gone(const struct code_client *client, struct cay_error *err)
{
    return cay_fail(err, CAY_E_KILLED, 0, client->op, NULL,
                    "the process that serves code contexts in the sandbox has ended",
                    "try again: it is started again, with new contexts; check the memory "
                    "limit of the sandbox if it ends again");
}

static int fail_protocol(const struct code_client *client, struct cay_error *err)
{
    return cay_fail(err, CAY_E_PROTOCOL, 0, client->op, NULL,
                    "the process that serves code contexts in the sandbox sent an "
                    "invalid message",
                    "a program inside may have changed it: kill the sandbox");
}

/* At most an hour at a time, since poll(2) has an int. */
static int left_ms(const struct code_client *client)
{
    uint64_t now = clock_ms();

    if (client->deadline_ms == UINT64_MAX)
        return -1;
    if (now >= client->deadline_ms)
        return 0;
    return client->deadline_ms - now > 3600000 ? 3600000
                                               : (int)(client->deadline_ms - now);
}

static int wait_for(const struct code_client *client, short events, struct cay_error *err)
{
    struct pollfd waiting[2] = {
        {.fd = client->fd, .events = events},
        {.fd = client->cancel_fd > 0 ? client->cancel_fd : -1, .events = POLLIN}};

    for (;;) {
        int left = left_ms(client);
        int count = poll(waiting, 2, left);
        if (count > 0 && waiting[1].revents)
            return cay_fail(err, CAY_E_CANCELLED, 0, client->op, NULL,
                            "the caller cancelled the execution", "run it again");
        if (count > 0)
            return CAY_OK;
        if (count < 0 && errno != EINTR)
            return cay_fail_errno(err, errno, client->op, NULL);
        if (count == 0 && left == 0)
            break;
    }
    return cay_fail(err, CAY_E_TIMEOUT, 0, client->op, NULL,
                    "the process that serves code contexts in the sandbox does not reply",
                    "resume the sandbox if it is paused, or restart it");
}

static int send_all(const struct code_client *client, const char *data, size_t len,
                    struct cay_error *err)
{
    while (len > 0) {
        ssize_t sent = send(client->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN)
            TRY(wait_for(client, POLLOUT, err));
        else if (sent < 0 && errno != EINTR)
            return CAY_OK; /* it has hung up: what it sent before says why */
        else if (sent > 0) {
            data += sent;
            len -= (size_t)sent;
        }
    }
    return CAY_OK;
}

static bool has_event(const struct code_client *client, struct code_event *ret_event)
{
    size_t len = client->to - client->from;

    if (len < sizeof *ret_event)
        return false;
    memcpy(ret_event, client->events + client->from, sizeof *ret_event);
    return len - sizeof *ret_event >= ret_event->len || ret_event->len > CODE_PIECE;
}

/* The next event; its payload is valid until the next call. */
static int receive(struct code_client *client, struct code_event *ret_event,
                   const char **ret_payload, struct cay_error *err)
{
    while (!has_event(client, ret_event)) {
        memmove(client->events, client->events + client->from, client->to - client->from);
        client->to -= client->from;
        client->from = 0;
        ssize_t len = recv(client->fd, client->events + client->to,
                           EVENTS_ROOM - client->to, MSG_DONTWAIT);
        if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR))
            return fail_gone(client, err);
        if (len < 0)
            TRY(wait_for(client, POLLIN, err));
        else
            client->to += (size_t)len;
    }
    if (ret_event->len > CODE_PIECE)
        return fail_protocol(client, err);
    *ret_payload = client->events + client->from + sizeof *ret_event;
    client->from += sizeof *ret_event + ret_event->len;
    return CAY_OK;
}

/* --- Requests --- */

static void add(struct buf *buf, const char *text)
{
    const char *plain = text ? text : "";

    buf_append(buf, plain, strlen(plain) + 1);
}

static int finish_message(const struct code_client *client, struct buf *message,
                          struct code_request *head, int image, struct cay_error *err)
{
    if (message->failed || head->words > CODE_STRINGS_MAX ||
        message->len - sizeof *head > CODE_BODY_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, client->op, NULL,
                        "the code or the environment is too long",
                        "the limit is %d MiB; write large data to a file",
                        CODE_BODY_MAX >> 20);
    head->len = (uint32_t)(message->len - sizeof *head);
    memcpy(message->data, head, sizeof *head);
    size_t sent = 0;
    if (image >= 0) { /* the descriptor goes with the head */
        const struct iovec part = {message->data, sizeof *head};
        int error = rights_send(client->fd, &part, 1, &image, 1, MSG_NOSIGNAL);
        sent = error ? 0 : sizeof *head;
    }
    return send_all(client, message->data + sent, message->len - sent, err);
}

static int send_query(const struct code_client *client, const struct code_query *query,
                      struct cay_error *err)
{
    struct code_request head = {.op = query->op, .timeout_ms = query->timeout_ms};
    AUTO_BUF message;

    buf_init(&message, CODE_BODY_MAX + (1 << 20));
    buf_append(&message, &head, sizeof head);
    add(&message, query->id);
    add(&message, query->language);
    add(&message, query->cwd);
    for (const char *const *word = query->words; word && *word; word++, head.words++)
        add(&message, *word);
    buf_append(&message, query->body, query->body_len);
    return finish_message(client, &message, &head, -1, err);
}

/* Copies are the default user's. */
static int open_image(const struct code_client *client, const struct code_query *query)
{
    bool is_python = query->driver == code_language_find("python");

    return client->template_name && !client->user && is_python
               ? code_warm_open(client->template_name)
               : -1;
}

static int send_driver(struct code_client *client, const struct code_query *query,
                       struct cay_error *err)
{
    struct code_request head = {.op = CODE_DRIVER};
    AUTO_BUF message;

    buf_init(&message, CODE_BODY_MAX + (1 << 20));
    if (!query->driver)
        return fail_protocol(client, err);
    head.timeout_ms = query->driver->interrupt_ms;
    buf_append(&message, &head, sizeof head);
    add(&message, NULL);
    add(&message, query->language);
    TRY(code_language_pack(query->driver, &message, &head.words, err));
    AUTO_FD image = open_image(client, query);
    client->sent_image = image >= 0;
    return finish_message(client, &message, &head, image, err);
}

/* Sends the request, and receives the first event.  If the service has hung up before
 * that, it was about to end when PID 1 passed the connection on, and nothing has run. */
static int begin(struct code_client *client, const struct code_query *query,
                 struct code_event *ret_event, const char **ret_payload,
                 struct cay_error *err)
{
    for (int tries = 0;; tries++) {
        TRY(send_query(client, query, err));
        struct cay_error why = {0};
        int code = receive(client, ret_event, ret_payload, &why);
        if (code != CAY_E_KILLED || tries == TRIES)
            return cay_fail_as(err, code, &why);
        (void)close(client->fd);
        client->fd = -1;
        client->from = client->to = 0;
        TRY(dial(client, err));
    }
}

/* The service ends a request at its timeout; this is for one that does not. */
static void set_deadline(struct code_client *client, const struct code_query *query)
{
    if (query->timeout_ms && query->timeout_ms < UINT64_MAX / 4000000)
        client->deadline_ms = clock_ms() + query->timeout_ms + GRACE_MS;
    else if (query->op != CODE_EXECUTE && query->op != CODE_CREATE)
        client->deadline_ms = clock_ms() + REPLY_MS;
}

int code_request(struct code_client *client, const struct code_query *query,
                 code_on_event *on_event, void *cookie, const bool *stops,
                 struct code_end *ret_end, struct cay_error *err)
{
    struct code_event event;
    const char *payload = NULL;
    bool has_driver = false;

    set_deadline(client, query);
    TRY(begin(client, query, &event, &payload, err));
    for (;;) {
        if (event.kind == CODE_EVENT_END) {
            if (event.len != sizeof *ret_end || !payload)
                return fail_protocol(client, err);
            memcpy(ret_end, payload, sizeof *ret_end);
            return CAY_OK;
        }
        if (event.kind == CODE_EVENT_NEED && !has_driver) {
            has_driver = true;
            TRY(send_driver(client, query, err));
        } else if (!on_event || !on_event(cookie, &event, payload)) {
            return fail_protocol(client, err);
        }
        if (stops && *stops) {
            *ret_end = (struct code_end){.reason = CODE_DONE, .interrupted = 1};
            return CAY_OK;
        }
        TRY(receive(client, &event, &payload, err));
    }
}

/* --- The end of a request --- */

void code_describe_loss(uint32_t loss, int status, bool is_memory, char *text,
                        size_t room)
{
    static const char lost[] = "its variables are lost";

    if (is_memory)
        snprintf(text, room,
                 "the kernel killed the interpreter: the sandbox is out of memory; %s",
                 lost);
    else if (loss == CODE_LOSS_KILLED)
        snprintf(text, room,
                 "the interpreter did not react to the interrupt and was killed; %s",
                 lost);
    else if (loss == CODE_LOSS_RESTARTED)
        snprintf(text, room, "the context was restarted; %s", lost);
    else if (loss == CODE_LOSS_SILENT)
        snprintf(text, room, "the interpreter did not start in time and was killed");
    else if (WIFSIGNALED(status))
        snprintf(text, room, "the interpreter was killed by signal %d (SIG%s); %s",
                 WTERMSIG(status),
                 sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?",
                 lost);
    else
        snprintf(text, room, "the interpreter exited with status %d; %s",
                 WEXITSTATUS(status), lost);
}

static int fail_start(const struct code_query *query, const char *op,
                      const struct code_end *end, struct cay_error *err)
{
    const char *program = query->driver ? query->driver->argv[0] : query->id;
    char text[256];

    if (end->reason == CODE_NO_EXEC)
        return cay_fail(err, CAY_E_EXEC_FAILED, end->error, op, program,
                        "the sandbox cannot execute the interpreter",
                        "use a template that has it, install it inside, or choose "
                        "another language");
    code_describe_loss(end->loss, end->status, false, text, sizeof text);
    return cay_fail(err, CAY_E_EXEC_FAILED, 0, op, program,
                    "the interpreter ended before it was ready",
                    "%s; run it in the sandbox to see why", text);
}

static int fail_directory(const struct code_query *query, const char *op, int error,
                          struct cay_error *err)
{
    int code = error == ENOENT    ? CAY_E_NOT_FOUND
               : error == ENOTDIR ? CAY_E_NOT_A_DIRECTORY
               : error == EACCES  ? CAY_E_DENIED
                                  : CAY_E_INVALID;

    return cay_fail(err, code, error, op, query->cwd ? query->cwd : "",
                    cay_errno_words(error),
                    "the directory of a context must exist, and its user must be "
                    "allowed to enter it");
}

int code_fail_end(const struct code_query *query, const char *op,
                  const struct code_end *end, struct cay_error *err)
{
    const char *id = query->id;

    switch (end->reason) {
    case CODE_UNKNOWN:
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no such context",
                        "list the contexts; each belongs to the user who created it");
    case CODE_REMOVED:
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "the context was removed",
                        "create a new one");
    case CODE_EXPIRED:
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, id,
                        "the context was not ready in time", "use a longer timeout");
    case CODE_TOO_MANY:
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "this user has too many contexts in the sandbox",
                        "the limit is %d; remove some", CODE_CONTEXTS_MAX);
    case CODE_FULL:
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "too many executions are waiting in the sandbox",
                        "the limit is %d executions and %d MiB of code; wait for some",
                        CODE_REQUESTS_MAX, CODE_PENDING_MAX >> 20);
    case CODE_NO_CWD:
        return fail_directory(query, op, end->error, err);
    case CODE_NO_EXEC:
    case CODE_NO_START:
        return fail_start(query, op, end, err);
    case CODE_NO_FORK:
        return cay_fail(err, CAY_E_LIMIT, end->error, op, NULL,
                        "no process can be started for the context",
                        "end some processes, or create a sandbox with higher limits");
    default:
        return cay_fail(err, CAY_E_PROTOCOL, 0, op, id,
                        "the sandbox sent an invalid message", "kill the sandbox");
    }
}
