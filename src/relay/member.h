/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_MEMBER_H
#define RELAY_MEMBER_H

#include "relay/server.h"

/* The other sandboxes of the named networks that this one has joined.  Each has a
 * connection to its PID 1 that serves relay_dial only.  Its end removes the member. */
struct member {
    struct source dialer; /* the first field; fd -1: a name of this sandbox */
    struct member *next;
    uint64_t sent, received; /* requests and replies, which come in order */
    struct relay_join join;
};

/* A member again, or a new one, which then owns *fd.  `fd` is -1 for a name of this
 * sandbox itself.  CAY_OK or a code with the reply's message. */
int member_join(struct server *server, const void *bytes, size_t len, int *fd,
                struct relay_reply *reply);

/* NULL: no member has this clean name.  Networks come in the order in which this sandbox
 * joined them. */
struct member *member_find(const struct server *server, const char *name);

/* Requests a connection to a port of the member: 0 and the number of the request, for
 * link_dialled(), or a negative errno.  -EAGAIN: too many are pending; a reply to one of
 * them comes. */
int member_dial(struct member *member, uint16_t port, uint64_t *ret_request);

/* Whether the question is for a member's name, and its answer. */
bool member_answer(struct server *server, const struct dns_question *question,
                   struct dns_answer *ret_answer);

#endif
