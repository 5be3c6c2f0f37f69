/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_FILES_CLIENT_H
#define NATIVE_PROCESS_FILES_CLIENT_H

#include <limits.h>
#include <stdbool.h>

#include "init/protocol.h"

/* A connection to a sandbox's init that asks for its files, with the rights of one user.
 * Shared by handles and threads; one question is under way at a time. */
struct files_client;

/* Takes the socket over, also on failure.  A NULL user is the sandbox's default.  Init
 * has `reply_ms` for each answer, or a minute if that is 0.  ret_start is where the
 * user's commands start. */
int files_client_new(int socket, const char *user, uint32_t reply_ms,
                     struct files_client **ret_client, char ret_start[PATH_MAX],
                     struct cay_error *err);
void files_client_free(struct files_client *client); /* NULL is fine */

const char *files_client_user(const struct files_client *client);

/* A question, and what came back. */
struct files_call {
    struct file_request head;
    const char *name, *other; /* NULL: "" */
    int fds[2];               /* -1: the root */
    unsigned fd_count;

    struct file_reply reply;
    int fd, dir; /* the caller's to check and to close; -1: none came */
    char text[PATH_MAX];
    struct file_look *looks; /* room for look_count of them: so many must come */
    size_t look_count;
};

void files_call_done(struct files_call *call);
#define AUTO_FILES_CALL __attribute__((cleanup(files_call_done))) struct files_call
#define FILES_CALL(operation, ...)                                                       \
    {                                                                                    \
        .head.op = (operation), .fd = -1, .dir = -1, __VA_ARGS__                         \
    }

/* 0 or a negative errno: init's answer, or if there was none -ECONNRESET (it is gone),
 * -ETIME (it does not answer) or -EPROTO (not that way); from then on for ever. */
int files_client_request(struct files_client *client, struct files_call *call);

/* The answer was wrong in itself: -EPROTO. */
int files_client_fail(struct files_client *client);

#endif
