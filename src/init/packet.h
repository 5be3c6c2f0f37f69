/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PACKET_H
#define INIT_PACKET_H

#include <stdbool.h>
#include <stddef.h>

#include "init/protocol.h"

/* One message with its payload and descriptors, on either end. */
struct packet {
    struct message head;
    int fds[MESSAGE_FDS_MAX]; /* head.fd_count of them; the receiver owns them */
    char payload[MESSAGE_MAX];
};

/* 1; 0 if the peer is gone; -EAGAIN; or -EPROTO for a malformed message (its descriptors
 * are closed). */
int packet_receive(int socket, struct packet *ret_packet);
void packet_close_fds(struct packet *packet);

/* The same without blocking. */
int packet_poll(int socket, struct packet *ret_packet);

/* The same for a payload of at most `room` bytes, into `head`, `fds` and `payload`. */
int packet_poll_small(int socket, struct message *head, int fds[MESSAGE_FDS_MAX],
                      void *payload, size_t room);

/* 0 or a negative errno. */
int packet_send(int socket, unsigned kind, const void *payload, size_t len,
                const int *fds, size_t fd_count);

#endif
