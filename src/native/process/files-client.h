/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_FILES_CLIENT_H
#define NATIVE_PROCESS_FILES_CLIENT_H

#include <limits.h>
#include <stdbool.h>

#include "init/protocol.h"

/* A connection to a sandbox's init that asks for its files, with the rights of one user.
 * Shared by handles and threads; one question is under way at a time. */
struct inside;

/* Takes the socket over, also on failure.  A NULL user is the sandbox's default.  Init
 * has `answer_ms` for each answer, or a minute if that is 0.  ret_start is where the
 * user's commands start. */
int inside_new(int socket, const char *user, uint32_t answer_ms,
               struct inside **ret_inside, char ret_start[PATH_MAX],
               struct cay_error *err);
void inside_free(struct inside *inside); /* NULL is fine */

const char *inside_user(const struct inside *inside);

/* A question, and what came back. */
struct call {
    struct file_request head;
    const char *name, *other; /* NULL: "" */
    int fds[2];               /* -1: the root */
    unsigned fd_count;

    struct file_reply answer;
    int fd, dir; /* the caller's to check and to close; -1: none came */
    char text[PATH_MAX];
    struct file_look *looks; /* room for look_count of them: so many must come */
    size_t look_count;
};

void call_done(struct call *call);
#define AUTO_CALL __attribute__((cleanup(call_done))) struct call
#define CALL(operation, ...)                                                             \
    {                                                                                    \
        .head.op = (operation), .fd = -1, .dir = -1, __VA_ARGS__                         \
    }

/* 0 or a negative errno: init's answer, or if there was none -ECONNRESET (it is gone),
 * -ETIME (it does not answer) or -EPROTO (not that way); from then on for ever. */
int inside_ask(struct inside *inside, struct call *call);

/* The answer was wrong in itself: -EPROTO. */
int inside_refuse(struct inside *inside);

#endif
