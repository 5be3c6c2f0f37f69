/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PEER_H
#define INIT_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "init/packet.h"

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

#endif
