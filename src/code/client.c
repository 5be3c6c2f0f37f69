/* SPDX-License-Identifier: Apache-2.0 */

#include "code/client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "code/warm.h"
#include "sys/rights.h"

enum {
    GRACE_MS = 20000,  /* after the timeout, for the kill and a slow machine */
    REPLY_MS = 150000, /* without code: two starts of an interpreter, a minute each */
    TRIES = 3          /* again, if the service ends before it has seen the request */
};

static int dial(struct code_client *client, struct cay_error *err)
{
    return client->sandbox->backend->code(client->sandbox->cookie, client->user,
                                          &client->fd, &client->memory_kills,
                                          &client->template_name, err);
}

static int check_backend(const struct cay_backend *backend, const char *op,
                         struct cay_error *err)
{
    if (backend->code)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, backend->name,
                    "this backend has no code contexts",
                    "use the native backend, or a language without contexts");
}

int code_dial(cay_sandbox *sandbox, const char *user, int *ret_fd,
              uint64_t *ret_memory_kills, struct cay_error *err)
{
    const char *template_name;

    TRY(check_backend(sandbox->backend, "code.connect", err));
    return sandbox->backend->code(sandbox->cookie, user, ret_fd, ret_memory_kills,
                                  &template_name, err);
}

int code_connect(struct code_client *client, cay_sandbox *sandbox, const char *user,
                 const char *op, struct cay_error *err)
{
    *client = (struct code_client){
        .sandbox = sandbox, .op = op, .user = user, .fd = -1, .deadline_ms = UINT64_MAX};
    TRY(check_backend(sandbox->backend, op, err));
    if (!code_reader_init(&client->reader))
        return cay_fail_memory(err, op);
    return dial(client, err);
}

void code_hang_up(struct code_client *client)
{
    if (client->fd >= 0)
        rights_hang_up(client->fd);
    code_reader_done(&client->reader);
    client->fd = -1;
}

/* --- Bytes --- */

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

/* Also before each read: a service that always has something to say must not hide that
 * the caller cancels, or that the time is over. */
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
        if (count < 0 && errno != EINTR)
            return cay_fail_errno(err, errno, client->op, NULL);
        if (left == 0)
            break;
        if (count > 0)
            return CAY_OK;
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

/* The next event; its payload is valid until the next call. */
static int receive(struct code_client *client, struct code_event *ret_event,
                   const char **ret_payload, struct cay_error *err)
{
    int got;

    while ((got = code_reader_next(&client->reader, ret_event, ret_payload)) == 0) {
        struct iovec part;
        size_t count;
        part.iov_base = code_reader_room(&client->reader, &part.iov_len);
        TRY(wait_for(client, POLLIN, err));
        ssize_t len = rights_receive(client->fd, &part, 1, NULL, 0, &count, MSG_DONTWAIT);
        if (len == -EPROTO || len == -EMFILE) /* a descriptor came with it */
            return code_fail_protocol(client->op, err);
        if (len == 0 || (len < 0 && len != -EAGAIN))
            return code_fail_gone(client->op, err);
        if (len > 0)
            client->reader.to += (size_t)len;
    }
    return got == 1 ? CAY_OK : code_fail_protocol(client->op, err);
}

/* --- Requests --- */

/* The descriptor, unless it is -1, goes with the head. */
static int send_with(const struct code_client *client, const struct buf *message,
                     int image, struct cay_error *err)
{
    size_t sent = 0;

    if (image >= 0) {
        const struct iovec part = {message->data, sizeof(struct code_request)};
        int error = rights_send(client->fd, &part, 1, &image, 1, MSG_NOSIGNAL);
        sent = error ? 0 : part.iov_len;
    }
    return send_all(client, message->data + sent, message->len - sent, err);
}

static int send_query(const struct code_client *client, const struct code_query *query,
                      struct cay_error *err)
{
    AUTO_BUF message = {.max = CODE_MESSAGE_MAX};

    TRY(code_pack_query(query, client->op, &message, err));
    return send_with(client, &message, query->image > 0 ? query->image : -1, err);
}

/* Interpreters are saved for users that every sandbox of the template has.  The name of a
 * template in the working directory could mean another one later. */
int code_open_image(struct code_client *client, const char *preload, int *ret_image,
                    struct cay_error *err)
{
    const char *template = client->template_name, *user = client->user;

    *ret_image = -1;
    if (!template || (user && strcmp(user, "root") != 0) ||
        (strchr(template, '/') && *template != '/'))
        return CAY_OK;
    TRY(warm_key_init(&client->warm, template, user, preload, err));
    *ret_image = warm_open(&client->warm);
    client->uses_warm = true;
    client->sent_image = *ret_image >= 0;
    return CAY_OK;
}

void code_note_warm(const struct code_client *client, bool is_warm)
{
    if (client->uses_warm && !client->sent_image)
        warm_later(&client->warm);
    else if (client->uses_warm && !is_warm)
        warm_misfit(&client->warm);
}

static int send_driver(struct code_client *client, const struct code_query *query,
                       struct cay_error *err)
{
    AUTO_BUF message = {.max = CODE_MESSAGE_MAX};

    TRY(code_pack_driver(query, client->op, &message, err));
    AUTO_FD image = -1;
    if (query->driver == code_language_find("python"))
        TRY(code_open_image(client, query->preload, &image, err));
    return send_with(client, &message, image, err);
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
        rights_hang_up(client->fd);
        client->fd = -1;
        client->reader.from = client->reader.to = 0;
        TRY(dial(client, err));
    }
}

/* The service ends a request at its timeout; this is for one that does not. */
static void set_deadline(struct code_client *client, const struct code_query *query)
{
    if (query->timeout_ms && query->timeout_ms < UINT64_MAX / 4000000)
        client->deadline_ms = clock_ms() + query->timeout_ms + GRACE_MS;
    else if (query->op != CODE_EXECUTE)
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
                return code_fail_protocol(client->op, err);
            memcpy(ret_end, payload, sizeof *ret_end);
            return CAY_OK;
        }
        if (event.kind == CODE_EVENT_NEED && !has_driver) {
            has_driver = true;
            TRY(send_driver(client, query, err));
        } else if (!on_event || !on_event(cookie, &event, payload)) {
            return code_fail_protocol(client->op, err);
        }
        if (stops && *stops) {
            *ret_end = (struct code_end){.reason = CODE_DONE, .interrupted = 1};
            return CAY_OK;
        }
        TRY(receive(client, &event, &payload, err));
    }
}
