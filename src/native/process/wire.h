/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_WIRE_H
#define NATIVE_PROCESS_WIRE_H

#include "init/packet.h"
#include "native/process/handle.h"

/* A message too short to be output: every answer but OUTPUT and LISTED. */
struct reply {
    struct message head;
    int fds[MESSAGE_FDS_MAX]; /* whoever takes one puts -1 in its place */
    char payload[sizeof(struct cay_error)];
};

void wire_close_fds(int fds[MESSAGE_FDS_MAX]);

/* Makes whole characters of UTF-8 without control characters of any bytes: NUL becomes a
 * space, and what else is not for show "?". */
void wire_make_text(char *text, size_t len);

/* What init says that failed, which may be anything: CAY_E_PROTOCOL if it is no error. */
int wire_error(const void *payload, size_t len, struct cay_error *err);

/* EAGAIN: it is there, but takes no message. */
int wire_fail_gone(const char *op, const char *id, int sys_errno, struct cay_error *err);

int wire_fail_silent(const char *op, const char *id, struct cay_error *err);

/* After a message could not be sent: what init said before it hung up, or that it is
 * gone. */
int wire_fail_send(int socket, const char *op, const char *id, int sys_errno,
                   struct cay_error *err);

/* Until there is something to receive; CAY_E_TIMEOUT if init says nothing for `ms`. */
int wire_wait(int socket, int ms, const char *op, const char *id, struct cay_error *err);

/* Asks init something over the handle's own connection and waits for the answer, which
 * must be of kind `want`, with `len` bytes and no descriptor. */
int wire_request(struct native *native, const char *op, enum message_kind kind,
                 const void *payload, size_t payload_len, enum message_kind want,
                 void *ret_reply, size_t len, struct cay_error *err);

/* The same in two steps, so that several sandboxes work on their answers at once. */
int wire_send(struct native *native, const char *op, enum message_kind kind,
              struct cay_error *err);
int wire_receive(struct native *native, const char *op, enum message_kind want,
                 void *ret_reply, size_t len, struct cay_error *err);

/* The same for an answer that is one descriptor, the caller's. */
int wire_request_fd(struct native *native, const char *op, enum message_kind kind,
                    const void *payload, size_t payload_len, enum message_kind want,
                    int *ret_fd, struct cay_error *err);

/* An EXEC message of these options, with `flags` of enum exec_flag and descriptors as
 * protocol.h says. */
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
