/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_WIRE_H
#define NATIVE_PROCESS_WIRE_H

#include "init/packet.h"
#include "native/process/handle.h"

/* A short message: every reply but OUTPUT and LISTED. */
struct reply {
    struct message head;
    int fds[MESSAGE_FDS_MAX]; /* set to -1 when ownership is taken */
    char payload[sizeof(struct cay_error)];
};

void wire_close_fds(int fds[MESSAGE_FDS_MAX]);

/* Converts any bytes to UTF-8 text without control characters: NUL becomes a space, and
 * other invalid bytes "?". */
void wire_make_text(char *text, size_t len);

/* An error reported by init, which is untrusted: CAY_E_PROTOCOL if it is not a valid
 * error. */
int wire_error(const void *payload, size_t len, struct cay_error *err);

/* EAGAIN: it is running, but accepts no message. */
int wire_fail_gone(const char *op, const char *id, int sys_errno, struct cay_error *err);

int wire_fail_silent(const char *op, const char *id, struct cay_error *err);

/* After a message could not be sent: the error that init reported before it hung up, or
 * that it is gone. */
int wire_fail_send(int socket, const char *op, const char *id, int sys_errno,
                   struct cay_error *err);

/* Waits for a message; CAY_E_TIMEOUT after `ms`. */
int wire_wait(int socket, int ms, const char *op, const char *id, struct cay_error *err);

/* Sends a request over the handle's connection and waits for the reply, which must be of
 * kind `want`, with `len` bytes and no descriptor. */
int wire_request(struct native *native, const char *op, enum message_kind kind,
                 const void *payload, size_t payload_len, enum message_kind want,
                 void *ret_reply, size_t len, struct cay_error *err);

/* The same in two steps, so that several sandboxes reply in parallel. */
int wire_send(struct native *native, const char *op, enum message_kind kind,
              const void *payload, size_t payload_len, struct cay_error *err);
int wire_receive(struct native *native, const char *op, enum message_kind want,
                 void *ret_reply, size_t len, struct cay_error *err);

/* A reply that is one descriptor; the caller owns it. */
int wire_request_fd(struct native *native, const char *op, enum message_kind kind,
                    const void *payload, size_t payload_len, enum message_kind want,
                    int *ret_fd, struct cay_error *err);

/* An EXEC message with these options, `flags` of enum exec_flag, and descriptors as in
 * protocol.h. */
struct wire_exec {
    const struct cay_exec_options *options;
    unsigned flags;
    uint64_t mark;
    int fds[MESSAGE_FDS_MAX];
    size_t fd_count;
};

int wire_exec(int socket, const char *id, const struct wire_exec *exec,
              struct cay_error *err);

#endif
