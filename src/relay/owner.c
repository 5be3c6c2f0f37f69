/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/owner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay/server.h"

/* --- The socket --- */

static void set_end(const struct owner_end *end, __be32 address[4], __be16 *port)
{
    memcpy(address, end->address.bytes, end->address.len);
    *port = htons(end->port);
}

/* The reply of the kernel is there when send(2) returns.  For UDP it has the two ends in
 * the other order. */
static uint32_t find_inode(int diag, const struct owner_flow *flow)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 request;
    } message = {
        .head = {.nlmsg_len = sizeof message,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_family = flow->client.address.len == 4 ? AF_INET : AF_INET6,
                    .sdiag_protocol = (uint8_t)flow->protocol,
                    .idiag_states = UINT32_MAX,
                    .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    struct {
        struct nlmsghdr head;
        struct inet_diag_msg found;
        char more[1024];
    } reply;
    struct inet_diag_sockid *id = &message.request.id;
    bool is_udp = flow->protocol == IPPROTO_UDP;

    set_end(is_udp ? &flow->peer : &flow->client, id->idiag_src, &id->idiag_sport);
    set_end(is_udp ? &flow->client : &flow->peer, id->idiag_dst, &id->idiag_dport);
    if (send(diag, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return 0;
    ssize_t got = recv(diag, &reply, sizeof reply, MSG_DONTWAIT);
    return got >= (ssize_t)(sizeof reply.head + sizeof reply.found) &&
                   reply.head.nlmsg_type == SOCK_DIAG_BY_FAMILY
               ? reply.found.idiag_inode
               : 0;
}

/* --- The process --- */

uint64_t owner_ask(struct server *server, const struct owner_flow *flow)
{
    if (server->owners.fd < 0 || !events_may_write(server) ||
        server->owners_sent - server->owners_received == OWNERS_PENDING)
        return 0;
    const struct relay_owner_request request = {find_inode(server->diag, flow)};
    if (!request.inode || send(server->owners.fd, &request, sizeof request,
                               MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof request)
        return 0;
    return ++server->owners_sent;
}

/* PID 1 shares its user with root inside: nothing in its reply is trusted. */
void owner_replies(struct server *server, struct source *source, uint32_t events)
{
    struct relay_owner owner;

    (void)events;
    for (int i = 0; i < OWNERS_PENDING; i++) {
        ssize_t got = recv(source->fd, &owner, sizeof owner, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN)
            return;
        if (got != sizeof owner || server->owners_received == server->owners_sent) {
            (void)close(source->fd);
            source->fd = -1;
            return;
        }
        owner.program[sizeof owner.program - 1] = '\0';
        server->owners_received++;
        link_take_owner(server, server->owners_received, &owner);
        events_take_owner(server, server->owners_received, &owner);
    }
}
