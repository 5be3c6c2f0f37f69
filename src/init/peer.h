/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PEER_H
#define INIT_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "init/packet.h"

/* What epoll tells of: the first member of whatever owns the descriptor. */
struct source {
    void (*ready)(struct source *source);
};

/* One connection, from outside unless it is a client of sudo.  Nobody frees it while
 * events are being handled: `gone` ones are swept up afterwards. */
struct peer {
    struct source source;
    int fd;
    bool gone;
    bool is_inside;                      /* a client of sudo: see sudo.h */
    bool wants_output, wants_kill_reply; /* READ, KILL: still to be answered */
    bool reads;                          /* it has asked for output */
    struct process *process;             /* that it runs or is attached to, or NULL */
    struct peer *next;                   /* of the same process */
    uint64_t at[2];                      /* where it reads each stream */
    unsigned turn;                       /* which stream it reads next */
    struct file_user *file_user;         /* whose rights its file operations have */
};

void peer_reply(struct peer *peer, enum message_kind kind, const void *payload,
                size_t len);
void peer_send(struct peer *peer, enum message_kind kind, const void *payload, size_t len,
               int fd); /* with a descriptor, if it is not -1 */
void peer_fail(struct peer *peer, const struct cay_error *error);

#endif
