/* SPDX-License-Identifier: Apache-2.0 */
#include "native/process/wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "base/utf8.h"
#include "sys/io.h"
#include "sys/rights.h"

void wire_close_fds(int fds[MESSAGE_FDS_MAX])
{
    rights_close(fds, MESSAGE_FDS_MAX);
}

void wire_make_text(char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint32_t character;
        size_t size = utf8_next(text + i, len - i, &character);
        bool is_printable = character >= 0x20 && character != UTF8_INVALID &&
                            !(character >= 0x7F && character < 0xA0);
        if (!is_printable)
            text[i] = text[i] == '\0' ? ' ' : '?';
        i += is_printable ? size : 1;
    }
}

static void take_field(char *field, size_t room)
{
    field[room - 1] = '\0';
    wire_make_text(field, strlen(field));
}

int wire_error(const void *payload, size_t len, struct cay_error *err)
{
    struct cay_error error = {0};

    if (len == sizeof error)
        memcpy(&error, payload, sizeof error);
    if (error.code >= 0 || strcmp(cay_code_slug(error.code), "unknown") == 0)
        return cay_fail(err, CAY_E_PROTOCOL, 0, "sandbox.connect", NULL,
                        "PID 1 of the sandbox sent an invalid message",
                        "kill the sandbox: it may be compromised");
    int code = error.code;
    if (error.sys_errno == EMFILE) { /* of init, not of this process */
        cay_copy_text(error.message, sizeof error.message,
                      "PID 1 of the sandbox has too many files open");
        cay_copy_text(
            error.hint, sizeof error.hint,
            "end some of the sandbox's commands, or create it with a higher ulimit -n");
    }
    take_field(error.op, sizeof error.op);
    error.subject[sizeof error.subject - 1] = '\0'; /* any bytes, as spelled */
    take_field(error.message, sizeof error.message);
    take_field(error.hint, sizeof error.hint);
    if (err)
        *err = error;
    return code;
}

int wire_fail_gone(const char *op, const char *id, int sys_errno, struct cay_error *err)
{
    if (sys_errno == EAGAIN) /* it did not read earlier messages in time */
        return wire_fail_silent(op, id, err);
    if (cay_errno_is_shortage(sys_errno))
        return cay_fail_errno(err, sys_errno, op, id);
    return cay_fail(err, CAY_E_NOT_FOUND, sys_errno, op, id, "the sandbox has ended",
                    "create a new one");
}

int wire_fail_silent(const char *op, const char *id, struct cay_error *err)
{
    return cay_fail(err, CAY_E_TIMEOUT, 0, op, id, "PID 1 of the sandbox does not reply",
                    "the machine may be overloaded: try again, or kill the sandbox");
}

int wire_fail_send(int socket, const char *op, const char *id, int sys_errno,
                   struct cay_error *err)
{
    struct reply reply;

    if (packet_poll_small(socket, &reply.head, reply.fds, reply.payload,
                          sizeof reply.payload) != 1)
        return wire_fail_gone(op, id, sys_errno, err);
    wire_close_fds(reply.fds);
    return reply.head.kind == MESSAGE_FAILED
               ? wire_error(reply.payload, reply.head.len, err)
               : wire_fail_gone(op, id, sys_errno, err);
}

/* --- Requests and replies --- */

int wire_wait(int socket, int ms, const char *op, const char *id, struct cay_error *err)
{
    struct pollfd waiting = {.fd = socket, .events = POLLIN};
    int count;

    do
        count = poll(&waiting, 1, ms);
    while (count < 0 && errno == EINTR);
    return count > 0 ? CAY_OK : wire_fail_silent(op, id, err);
}

/* The state of the connection is unknown. */
static int hang_up(struct native *native, int code)
{
    if (native->socket >= 0)
        rights_hang_up(native->socket);
    native->socket = -1;
    return code;
}

int wire_send(struct native *native, const char *op, enum message_kind kind,
              const void *payload, size_t payload_len, struct cay_error *err)
{
    int code = native_connect(native, err);

    if (code)
        return hang_up(native, code);
    int error = packet_send(native->socket, kind, payload, payload_len, NULL, 0);
    return error ? hang_up(native, wire_fail_send(native->socket, op, native->record.id,
                                                  -error, err))
                 : CAY_OK;
}

/* A reply of kind `want` with `len` bytes and that many descriptors. */
static int receive(struct native *native, const char *op, enum message_kind want,
                   size_t len, size_t fd_count, struct reply *reply,
                   struct cay_error *err)
{
    const char *id = native->record.id;
    int code = wire_wait(native->socket, native->reply_ms, op, id, err);
    int got = code ? 0
                   : packet_poll_small(native->socket, &reply->head, reply->fds,
                                       reply->payload, sizeof reply->payload);

    if (!code && got != 1)
        code = wire_fail_gone(op, id, got < 0 ? -got : 0, err);
    if (code)
        return hang_up(native, code);
    if (reply->head.kind == want && reply->head.len == len &&
        reply->head.fd_count == fd_count)
        return CAY_OK;
    wire_close_fds(reply->fds);
    size_t error_len = reply->head.kind == MESSAGE_FAILED ? reply->head.len : 0;
    return hang_up(native, wire_error(reply->payload, error_len, err));
}

int wire_receive(struct native *native, const char *op, enum message_kind want,
                 void *ret_reply, size_t len, struct cay_error *err)
{
    struct reply reply;
    int code = receive(native, op, want, len, 0, &reply, err);

    if (!code && len)
        memcpy(ret_reply, reply.payload, len);
    return code;
}

int wire_request(struct native *native, const char *op, enum message_kind kind,
                 const void *payload, size_t payload_len, enum message_kind want,
                 void *ret_reply, size_t len, struct cay_error *err)
{
    int code = wire_send(native, op, kind, payload, payload_len, err);

    return code ? code : wire_receive(native, op, want, ret_reply, len, err);
}

int wire_request_fd(struct native *native, const char *op, enum message_kind kind,
                    const void *payload, size_t payload_len, enum message_kind want,
                    int *ret_fd, struct cay_error *err)
{
    struct reply reply;
    int code = wire_send(native, op, kind, payload, payload_len, err);

    if (!code)
        code = receive(native, op, want, 0, 1, &reply, err);
    if (!code)
        *ret_fd = reply.fds[0];
    return code;
}

/* --- Commands --- */

static void add(struct buf *strings, const char *text)
{
    const char *plain = text ? text : "";

    buf_append(strings, plain, strlen(plain) + 1);
}

static int pack(const struct wire_exec *exec, struct buf *message, struct cay_error *err)
{
    const struct cay_exec_options *options = exec->options;
    struct exec_request head = {
        .flags = exec->flags | (options->user ? 0u : (unsigned)EXEC_DEFAULT_USER) |
                 (options->flags & CAY_EXEC_LAST ? (unsigned)EXEC_LAST : 0u),
        .timeout_ms = options->timeout_ms,
        .mark = exec->mark,
        .rows = options->rows,
        .columns = options->columns,
    };

    buf_append(message, &head, sizeof head);
    add(message, options->cwd);
    add(message, options->user);
    add(message, options->tag);
    for (const char *const *arg = options->argv; *arg; arg++, head.argc++)
        add(message, *arg);
    bool is_too_long =
        env_count(options->env) > EXEC_COUNT_MAX; /* each has to be found */
    for (const char *const *env = options->env; env && *env && !is_too_long; env++)
        if (!env_sets(env + 1, *env)) { /* the last variable with a name takes effect */
            add(message, *env);
            head.envc++;
        }
    if (message->failed || is_too_long || head.argc > EXEC_COUNT_MAX)
        return cay_fail(err, CAY_E_INVALID, E2BIG, "sandbox.exec", options->argv[0],
                        "the arguments and environment are too long",
                        "the limit is 2 MiB in total; pass large data on stdin");
    head.strings_len = (uint32_t)(message->len - sizeof head);
    if (message->len > MESSAGE_MAX)
        head.flags |= EXEC_IN_MEMFD;
    memcpy(message->data, &head, sizeof head);
    return CAY_OK;
}

int wire_exec(int socket, const char *id, const struct wire_exec *exec,
              struct cay_error *err)
{
    AUTO_BUF message;
    AUTO_FD memfd = -1;
    int fds[MESSAGE_FDS_MAX];
    size_t fd_count = exec->fd_count;

    buf_init(&message, EXEC_STRINGS_MAX + sizeof(struct exec_request));
    int code = pack(exec, &message, err);
    if (code)
        return code;
    size_t len = message.len, head = sizeof(struct exec_request);
    memcpy(fds, exec->fds, sizeof fds);
    if (len > MESSAGE_MAX) {
        memfd = io_memfd("cay-strings", 0, message.data + head, len - head);
        if (memfd < 0)
            return cay_fail_errno(err, -memfd, "sandbox.exec", NULL);
        fds[fd_count++] = memfd;
        len = head;
    }
    int error = packet_send(socket, MESSAGE_EXEC, message.data, len, fds, fd_count);
    return error ? wire_fail_send(socket, "sandbox.exec", id, -error, err) : CAY_OK;
}
