/* SPDX-License-Identifier: Apache-2.0 */

/* Links to members of a named network. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay/link.h"
#include "sys/rights.h"

static int request_dial(struct server *server, struct link *link)
{
    int error = member_dial(link->member, link->port, &link->request);

    if (error && error != -EAGAIN)
        link_fail_member(server, link);
    return error;
}

void link_dial(struct server *server, struct link *link)
{
    snprintf(link->rule, sizeof link->rule, "join %s", link->member->join.network);
    link->is_checked = true; /* a member serves under any name */
    link->state = DIALLING;
    link->request = NOT_SENT;
    link_set_deadline(server, link, LINK_CONNECT_MS);
    (void)request_dial(server, link);
}

static void dial_waiting(struct server *server, const struct member *member)
{
    int error = 0;

    for (struct link *link = server->links; link && error != -EAGAIN; link = link->next)
        if (link->state == DIALLING && link->member == member &&
            link->request == NOT_SENT)
            error = request_dial(server, link);
}

/* It comes from another sandbox. */
static bool is_tcp(int fd)
{
    int domain = 0, protocol = 0;
    socklen_t domain_len = sizeof domain, protocol_len = sizeof protocol;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_len) == 0 &&
           (domain == AF_INET || domain == AF_INET6) && protocol == IPPROTO_TCP;
}

/* Takes the socket of a reply, unless it is none. */
static void take_dialled(struct server *server, struct link *link, int fd)
{
    if (fd < 0 || !is_tcp(fd) || fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        rights_close(&fd, 1);
        link_fail_member(server, link);
        return;
    }
    link->server.fd = fd;
    link_set_no_delay(fd);
    link->state = CONNECTING;
    link_set_deadline(server, link, LINK_CONNECT_MS);
    if (server_watch(server, &link->server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET))
        link_fail_member(server, link);
}

void link_dialled(struct server *server, struct member *member, uint64_t request, int fd)
{
    struct link *link = server->links;

    while (link && !(link->state == DIALLING && link->member == member &&
                     link->request == request))
        link = link->next;
    if (link)
        take_dialled(server, link, fd);
    else
        rights_close(&fd, 1);
    dial_waiting(server, member);
}

void link_lose_member(struct server *server, const struct member *member)
{
    for (struct link *link = server->links; link; link = link->next) {
        if (link->member != member)
            continue;
        link->member = NULL;
        if (link->state <= RELAYING)
            link_end(server, link, true);
    }
}
