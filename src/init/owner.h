/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_OWNER_H
#define INIT_OWNER_H

#include <stdbool.h>

/* Replies to one relay_owner_request (relay/relay.h) on the socket.  False if the peer is
 * gone, or violated the protocol. */
bool owner_reply(int socket, int proc);

#endif
