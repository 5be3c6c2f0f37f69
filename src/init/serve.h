/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SERVE_H
#define INIT_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "init/packet.h"
#include "init/plan.h"

/* An epoll event source: the first member of the struct that owns the descriptor. */
struct source {
    void (*ready)(struct source *source);
};

/* One connection: a client outside, or sudo.  It is not freed while events are handled:
 * `gone` peers are removed afterwards. */
struct peer {
    struct source source;
    int fd;
    bool gone;
    bool is_inside;                      /* a sudo client: see sudo.h */
    bool wants_output, wants_kill_reply; /* READ, KILL: reply pending */
    bool reads;                          /* it has sent a READ */
    struct process *process;     /* the command that it runs or is attached to, or NULL */
    struct peer *next;           /* of the same process */
    uint64_t at[2];              /* its position in each stream */
    unsigned turn;               /* which stream it reads next */
    struct file_user *file_user; /* the user of its file operations */
};

void peer_reply(struct peer *peer, enum message_kind kind, const void *payload,
                size_t len);
void peer_send(struct peer *peer, enum message_kind kind, const void *payload, size_t len,
               int fd); /* with a descriptor, if it is not -1 */
void peer_fail(struct peer *peer, const struct cay_error *error);

/* Reports that the sandbox is ready, then serves the control socket and never returns. */
_Noreturn void serve(const struct plan *plan);

/* Adds `fd` to the epoll set: 0 or a negative errno. */
int serve_watch(int fd, struct source *source);
void serve_forget(int fd);

/* Closes a watched descriptor. close(2) alone would not end the watch while a child
 * before its execve has a copy of the descriptor. */
void serve_close(int fd);

/* Exits, which ends everything inside. */
_Noreturn void serve_end(void);

#endif
