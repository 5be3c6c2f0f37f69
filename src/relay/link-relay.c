/* SPDX-License-Identifier: Apache-2.0 */

/* Bytes move by splice(2) in both directions. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "relay/link.h"

enum {
    ROUNDS = 16,     /* pieces of one direction, before other sources have their turn */
    PIECE = 64 << 10 /* the size of a pipe */
};

/* --- Pipes --- */

static void close_pipe(struct flow *flow)
{
    for (int i = 0; i < 2; i++) {
        auto_close(&flow->pipe[i]);
        flow->pipe[i] = -1;
    }
}

/* Keeps an empty pipe for the next flow. */
void link_put_pipe(struct server *server, struct flow *flow)
{
    struct pipes *pipes = &server->pipes;

    if (flow->pipe[0] < 0)
        return;
    if (flow->pending || pipes->count == sizeof pipes->at / sizeof *pipes->at) {
        close_pipe(flow);
        return;
    }
    memcpy(pipes->at[pipes->count++], flow->pipe, sizeof flow->pipe);
    flow->pipe[0] = flow->pipe[1] = -1;
}

static bool get_pipe(struct server *server, struct flow *flow)
{
    struct pipes *pipes = &server->pipes;

    if (flow->pipe[0] >= 0)
        return true;
    if (!pipes->count)
        return pipe2(flow->pipe, O_NONBLOCK | O_CLOEXEC) == 0;
    memcpy(flow->pipe, pipes->at[--pipes->count], sizeof flow->pipe);
    return true;
}

/* --- Bytes --- */

/* Nothing may pass.  False if there are bytes that never will. */
static bool relay_nothing(struct server *server, struct link *link, struct flow *flow,
                          int from)
{
    char byte;

    if (!limit_is_over(&server->limiter, network_rules_limits(server->rules), 1)) {
        link->is_waiting = true;
        return true;
    }
    ssize_t got = recv(from, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) {
        link_name_limit(server, link, NETWORK_BYTES);
        link->is_limited = true;
        server->counts.refused++;
        return false;
    }
    flow->is_ended = got == 0;
    return got == 0 || errno == EAGAIN;
}

/* With is_inspected: the client's place is taken by cay-net-tls. */
static bool hand_over(struct server *server, struct link *link)
{
    int client = link->client.fd;

    if (link->hello != HELLO_TLS && link->hello != HELLO_HTTP && !link->is_http_only) {
        link->is_inspected = false; /* a secret is not sent over other protocols */
        return true;
    }
    if (link->hello != HELLO_TLS && link->hello != HELLO_HTTP) {
        link_refuse(server, link, 403,
                    "cay: the rule \"%.300s\" is for requests of HTTP only", link->rule);
        return false;
    }
    int error = hand_over_client(server, link->named->name, link->port,
                                 link->hello == HELLO_TLS, link->owner_request, &client);
    if (error) {
        link_refuse(server, link, 502, "cay: requests to %s cannot be inspected now",
                    link->named->name);
        return false;
    }
    /* Not only closed: cay-net-tls has the same socket, which epoll would still report.
     */
    (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, link->client.fd, NULL);
    link_close_source(&link->client);
    link->client.fd = client;
    link->hello = HELLO_MORE;
    if (server_watch(server, &link->client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) ==
        0)
        return true;
    link_end(server, link, true);
    return false;
}

/* False if the connection has failed. */
static bool take_piece(struct server *server, struct link *link, struct flow *flow,
                       int from)
{
    size_t room =
        limit_room(&server->limiter, network_rules_limits(server->rules), PIECE);

    if (!room)
        return relay_nothing(server, link, flow, from);
    if (!get_pipe(server, flow))
        return false;
    ssize_t moved =
        splice(from, NULL, flow->pipe[1], NULL, room, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (moved < 0)
        return errno == EAGAIN;
    flow->is_ended = moved == 0;
    flow->pending = (size_t)moved;
    limit_take(&server->limiter, (size_t)moved);
    return true;
}

/* False if the connection has failed. */
static bool relay_piece(struct server *server, struct link *link, struct flow *flow,
                        int from, int to, bool *ret_progress)
{
    ssize_t moved;

    *ret_progress = false;
    if (!flow->pending && !flow->is_ended && !take_piece(server, link, flow, from))
        return false;
    if (flow->pending) {
        moved = splice(flow->pipe[0], NULL, to, NULL, flow->pending,
                       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (moved < 0)
            return errno == EAGAIN;
        flow->pending -= (size_t)moved;
        flow->bytes += (uint64_t)moved;
        *ret_progress = true;
    }
    if (flow->is_ended && !flow->pending && !flow->is_shut) {
        (void)shutdown(to, SHUT_WR);
        flow->is_shut = true;
    }
    return true;
}

static bool relay_flow(struct server *server, struct link *link, struct flow *flow,
                       int from, int to)
{
    bool progress = true;

    for (int i = 0; i < ROUNDS && progress && !flow->is_shut; i++)
        if (!relay_piece(server, link, flow, from, to, &progress))
            return false;
    link->is_waiting |= progress && !flow->is_shut;
    if (!flow->pending)
        link_put_pipe(server, flow);
    return true;
}

/* False if the connection has failed. */
static bool send_first(struct link *link)
{
    ssize_t sent = send(link->server.fd, link->first + link->first_sent,
                        link->first_len - link->first_sent, MSG_NOSIGNAL);

    if (sent < 0)
        return errno == EAGAIN;
    link->first_sent += (size_t)sent;
    link->up.bytes += (uint64_t)sent;
    if (link->first_sent == link->first_len) {
        free(link->first);
        link->first = NULL;
    }
    return true;
}

static bool relay_up(struct server *server, struct link *link)
{
    if (!link->is_checked)
        return true;
    if (link->first && !send_first(link))
        return false;
    return link->first ||
           relay_flow(server, link, &link->up, link->client.fd, link->server.fd);
}

static void relay(struct server *server, struct link *link, size_t links)
{
    const struct network_limits *limits = network_rules_limits(server->rules);

    link->is_waiting = false;
    if (link->is_http_only && !link->is_checked)
        return;
    if (link->is_inspected && link->is_checked && link->hello != HELLO_MORE &&
        !hand_over(server, link))
        return;
    limit_share(&server->limiter, limits, 2 * links);
    bool is_up = relay_up(server, link);
    limit_share(&server->limiter, limits, links);
    if (!is_up ||
        !relay_flow(server, link, &link->down, link->server.fd, link->client.fd)) {
        link_end(server, link, true);
        return;
    }
    if (link->up.is_shut && link->down.is_shut) {
        link_end(server, link, false);
        return;
    }
    server->has_waiting |= link->is_waiting;
    link->active_ms = clock_ms();
}

/* Behind the links that wait for their share already. */
void link_relay_in_turn(struct server *server, struct link *link)
{
    const struct network_limits *limits = network_rules_limits(server->rules);

    if (limits->at[NETWORK_RATE] &&
        (server->has_waiting || !limit_open(&server->limiter, limits, clock_ms())))
        link->is_waiting = server->has_waiting = true;
    else
        relay(server, link, 1);
}

void link_relay_waiting(struct server *server)
{
    size_t waiting = 0;

    if (!limit_open(&server->limiter, network_rules_limits(server->rules), clock_ms()))
        return;
    for (struct link *link = server->links; link; link = link->next)
        waiting += link->state == RELAYING && link->is_waiting;
    server->has_waiting = false;
    for (struct link *link = server->links; link; link = link->next)
        if (link->state == RELAYING && link->is_waiting)
            relay(server, link, waiting--);
}
