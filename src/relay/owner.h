/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_OWNER_H
#define RELAY_OWNER_H

#include <stdbool.h>

#include "relay/relay.h"

/* Which process inside has the socket of a connection or of a packet.  The kernel knows
 * the socket by its addresses, and PID 1 the process by the socket.  The answer is for
 * people: a process may end before, pass its socket on, and choose its name. */

struct server;
struct source;

enum { OWNERS_PENDING = 32 };

/* One end of a flow. */
struct owner_end {
    struct network_address address;
    uint16_t port;
};

/* As the sandbox has it. */
struct owner_flow {
    int protocol;
    struct owner_end client, peer;
};

/* The number of the request, or 0: the process stays unknown. */
uint64_t owner_ask(struct server *server, const struct owner_flow *flow);

void owner_replies(struct server *server, struct source *source, uint32_t events);

#endif
