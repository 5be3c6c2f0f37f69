/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_FILES_CLIENT_H
#define NATIVE_PROCESS_FILES_CLIENT_H

#include <limits.h>
#include <stdbool.h>

#include "init/protocol.h"

/* A connection to init for requests about files, with the rights of one user.  Shared by
 * handles and threads; one request is pending at a time. */
struct files_client;

/* Takes ownership of the socket, also on failure.  A NULL user is the sandbox's default.
 * Init has `reply_ms` for each reply, or a minute if that is 0.  ret_start is the working
 * directory of the user's commands. */
int files_client_new(int socket, const char *user, uint32_t reply_ms,
                     struct files_client **ret_client, char ret_start[PATH_MAX],
                     struct cay_error *err);
void files_client_free(struct files_client *client); /* NULL is fine */

const char *files_client_user(const struct files_client *client);

/* A request and its reply. */
struct files_call {
    struct file_request head;
    const char *name, *other; /* NULL: "" */
    int fds[2];               /* -1: the root */
    unsigned fd_count;

    struct file_reply reply;
    int fd, dir; /* the caller checks and closes them; -1: none */
    char text[PATH_MAX];
    struct file_look *looks; /* look_count entries, all of which must come */
    size_t look_count;
};

void files_call_done(struct files_call *call);
#define AUTO_FILES_CALL __attribute__((cleanup(files_call_done))) struct files_call
#define FILES_CALL(operation, ...)                                                       \
    {                                                                                    \
        .head.op = (operation), .fd = -1, .dir = -1, __VA_ARGS__                         \
    }

/* 0 or a negative errno: that of the reply, or -ECONNRESET (init is gone), -ETIME (no
 * reply in time) or -EPROTO (invalid reply), which then stays for all later requests. */
int files_client_request(struct files_client *client, struct files_call *call);

/* Marks the reply as invalid: -EPROTO. */
int files_client_fail(struct files_client *client);

#endif
