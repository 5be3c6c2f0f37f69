/* SPDX-License-Identifier: Apache-2.0 */

/* A link is one connection of the sandbox.  It is decided when it is accepted, by the
 * name that its destination stands for; the lookup and the connection outside begin at
 * once, but no byte leaves before the client's first bytes are checked: if they name a
 * host, it must be the same. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "relay/hello.h"
#include "relay/lookup.h"
#include "relay/member.h"
#include "relay/proxy.h"
#include "sys/rights.h"

enum {
    ACCEPTS = 64,         /* at a time, before other sources have their turn */
    ROUNDS = 16,          /* the same for pieces of one direction */
    PIECE = 64 << 10,     /* the size of a pipe */
    CONNECT_MS = 10000,   /* for each address */
    HELLO_MS = 10000,     /* from the first bytes to the end of the hello */
    IDLE_MS = 15 * 60000, /* without a byte */
    HALF_MS = 2 * 60000,  /* the same if one side has closed */
    FIRST_BYTES_MS = 200, /* of a client that is refused */
    DRAIN_MS = 2000,      /* until a refused client has read the reply */
    SHORTAGE_MS = 100
};

enum state {
    DIALLING,
    LOOKING_UP,
    CONNECTING,
    RELAYING,
    ANSWERING,
    PROXYING, /* until the client has sent its request */
    REFUSING,
    DRAINING,
    DEAD
};

/* One direction. */
struct flow {
    int pipe[2]; /* -1: none */
    size_t pending;
    uint64_t bytes;
    bool is_ended, is_shut;
};

struct link {
    struct source client, server; /* the two ends; `server` is also that of a lookup */
    struct link *next, **previous;
    enum state state;
    bool has_begun;    /* the client has sent some of its first bytes */
    bool is_checked;   /* all of them */
    bool is_waiting;   /* more to relay */
    bool is_inspected; /* its requests are read by cay-net-tls */
    bool is_http_only; /* and nothing else may pass */
    enum hello_kind hello;
    bool is_reported;
    bool is_limited; /* cut by a limit */
    bool is_proxied; /* a client of the proxy that has no reply yet */
    bool is_tunnel;  /* it waits for the reply to CONNECT */
    int status;      /* of a refusal, as HTTP has it */
    struct network_address destination;
    uint16_t port;
    struct named *named;            /* NULL: the destination is an address */
    size_t tried;                   /* addresses of the name */
    struct network_address address; /* that it is connected to */
    struct lookup *lookup;
    struct member *member; /* that it leads to, or NULL */
    uint64_t request;      /* to that; NOT_SENT: it waits for others */
    struct flow up, down;
    uint8_t *first; /* the client's checked bytes, until they are sent */
    size_t first_len, first_sent;
    uint64_t began_ms, active_ms, deadline_ms;
    char rule[192];
    char *why;                       /* of a refusal */
    struct owner_end peer, accepted; /* the client, and what it has connected to */
    uint64_t owner_request;          /* of owner_ask(); 0: none */
    struct relay_owner owner;
};

static struct link *link_of_client(struct source *source)
{
    return (struct link *)((char *)source - offsetof(struct link, client));
}

static struct link *link_of_server(struct source *source)
{
    return (struct link *)((char *)source - offsetof(struct link, server));
}

static void set_deadline(struct server *server, struct link *link, uint64_t ms)
{
    link->deadline_ms = clock_ms() + ms;
    if (link->deadline_ms < server->next_deadline_ms)
        server->next_deadline_ms = link->deadline_ms;
}

/* --- Events --- */

/* While the client waits for its connection, or for the refusal. */
static void ask_owner(struct server *server, struct link *link)
{
    const struct owner_flow flow = {IPPROTO_TCP, link->peer, link->accepted};

    if (!link->owner_request && link->peer.port)
        link->owner_request = owner_ask(server, &flow);
}

void link_take_owner(struct server *server, uint64_t request,
                     const struct relay_owner *owner)
{
    for (struct link *link = server->links; link; link = link->next)
        if (link->owner_request == request)
            link->owner = *owner;
}

void link_get_owner(const struct server *server, uint64_t request,
                    struct relay_owner *ret_owner)
{
    for (const struct link *link = server->links; request && link; link = link->next)
        if (link->owner_request == request)
            *ret_owner = link->owner;
}

static void report(struct server *server, struct link *link, enum relay_event_kind kind,
                   enum network_verdict verdict)
{
    struct relay_event event = {.kind = (uint8_t)kind,
                                .verdict = (uint8_t)verdict,
                                .protocol = IPPROTO_TCP,
                                .port = link->port,
                                .up_bytes = link->up.bytes,
                                .down_bytes = link->down.bytes,
                                .duration_ms = (uint32_t)(clock_ms() - link->began_ms)};

    event.address = link->address.len ? link->address : link->destination;
    if (link->named) {
        cay_copy_text(event.name, sizeof event.name, link->named->name);
        if (!link->address.len)
            event.address.len = 0; /* the destination only stands for the name */
    }
    cay_copy_text(event.rule, sizeof event.rule, link->rule);
    if (kind == RELAY_EVENT_OPEN)
        ask_owner(server, link);
    event.owner = link->owner;
    events_write(server, &event, link->owner_request);
}

/* --- The end --- */

static void close_pipe(struct flow *flow)
{
    for (int i = 0; i < 2; i++) {
        auto_close(&flow->pipe[i]);
        flow->pipe[i] = -1;
    }
}

/* Keeps an empty pipe for the next flow. */
static void put_pipe(struct server *server, struct flow *flow)
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

static void close_source(struct source *source)
{
    auto_close(&source->fd);
    source->fd = -1;
}

static void reset(struct source *source)
{
    const struct linger now = {.l_onoff = 1};

    if (source->fd >= 0)
        (void)setsockopt(source->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close_source(source);
}

/* Freed after all events of the moment, which may refer to it. */
static void end(struct server *server, struct link *link, bool is_cut)
{
    if (link->state == DEAD)
        return;
    if (link->is_reported && link->state != REFUSING && link->state != DRAINING)
        report(server, link, RELAY_EVENT_END,
               link->is_limited ? NETWORK_DENY : NETWORK_ALLOW);
    server->counts.up_bytes += link->up.bytes;
    server->counts.down_bytes += link->down.bytes;
    link->state = DEAD;
    if (is_cut) {
        reset(&link->client);
        reset(&link->server);
    }
    close_source(&link->client);
    close_source(&link->server);
    put_pipe(server, &link->up);
    put_pipe(server, &link->down);
    server->has_dead = true;
}

void link_free_dead(struct server *server)
{
    for (struct link *link = server->links, *next; link; link = next) {
        next = link->next;
        if (link->state != DEAD)
            continue;
        *link->previous = next;
        if (next)
            next->previous = link->previous;
        free(link->lookup);
        free(link->first);
        free(link->why);
        free(link);
        server->counts.links--;
    }
    server->has_dead = false;
    server_accept_again(server);
}

/* --- Refusals --- */

static size_t format_refusal(const struct link *link, char *text, size_t room)
{
    const char *why = link->why ? link->why : "cay: out of memory";
    int len = snprintf(text, room,
                       "HTTP/1.1 %s\r\nContent-Type: text/plain\r\n"
                       "Content-Length: %zu\r\nConnection: close\r\n\r\n%s\n",
                       link->status == 403 ? "403 Forbidden" : "502 Bad Gateway",
                       strlen(why) + 1, why);

    return len < (int)room ? (size_t)len : room - 1;
}

/* What is unread when the socket is closed would turn the reply into a reset. */
static bool drain(int fd)
{
    char bytes[4096];
    ssize_t got = 1;

    for (int i = 0; i < ROUNDS && got > 0; i++)
        got = recv(fd, bytes, sizeof bytes, 0);
    return got > 0 || (got < 0 && errno == EAGAIN);
}

static void reply_refused(struct server *server, struct link *link, enum hello_kind kind)
{
    static const uint8_t denied[] = {21, 3, 3, 0, 2, 2, 49},
                         failed[] = {21, 3, 3, 0, 2, 2, 80};
    char text[1536];
    size_t len = format_refusal(link, text, sizeof text);

    if (kind == HELLO_OTHER) {
        end(server, link, true);
        return;
    }
    bool is_open = drain(link->client.fd);
    if (kind == HELLO_TLS)
        (void)!send(link->client.fd, link->status == 403 ? denied : failed, sizeof denied,
                    MSG_NOSIGNAL);
    else
        (void)!send(link->client.fd, text, len, MSG_NOSIGNAL);
    (void)shutdown(link->client.fd, SHUT_WR);
    link->state = DRAINING;
    set_deadline(server, link, DRAIN_MS);
    if (!is_open)
        end(server, link, false);
}

/* The form of the refusal depends on the client's first bytes, which may be taken
 * already; a request need not be complete for that. */
static void continue_refusal(struct server *server, struct link *link)
{
    uint8_t bytes[16];
    struct hello hello;
    ssize_t got = (ssize_t)link->first_len;

    if (link->is_proxied) {
        reply_refused(server, link, HELLO_HTTP);
        return;
    }

    if (link->first)
        memcpy(bytes, link->first, link->first_len < 16 ? link->first_len : 16);
    else
        got = recv(link->client.fd, bytes, sizeof bytes, MSG_PEEK);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN)
            end(server, link, true);
        return;
    }
    hello_read(bytes, got < 16 ? (size_t)got : 16, &hello);
    reply_refused(server, link,
                  hello.kind == HELLO_OTHER          ? HELLO_OTHER
                  : bytes[0] >= 20 && bytes[0] <= 24 ? HELLO_TLS
                                                     : HELLO_HTTP);
}

__attribute__((format(printf, 4, 5))) static void
refuse(struct server *server, struct link *link, int status, const char *format, ...)
{
    char why[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(why, sizeof why, format, values);
    va_end(values);
    link->why = strdup(why);
    link->status = status;
    report(server, link, RELAY_EVENT_OPEN, status == 403 ? NETWORK_DENY : NETWORK_ALLOW);
    server->counts.refused += status == 403;
    close_source(&link->server);
    link->state = REFUSING;
    set_deadline(server, link, FIRST_BYTES_MS);
    continue_refusal(server, link);
}

static void refuse_by_rule(struct server *server, struct link *link,
                           const struct network_answer *answer)
{
    cay_copy_text(link->rule, sizeof link->rule, answer->rule);
    if (answer->verdict == NETWORK_INSPECT)
        refuse(server, link, 403,
               "cay: the rule \"%.300s\" is for some requests only, and requests are not "
               "inspected",
               answer->rule);
    else
        refuse(server, link, 403, "cay: %s", answer->why);
}

/* --- Limits --- */

static void name_limit(const struct server *server, struct link *link,
                       enum network_limit limit)
{
    snprintf(link->rule, sizeof link->rule, "limit %s=%llu", network_limit_slug(limit),
             (unsigned long long)network_rules_limits(server->rules)->at[limit]);
}

static void refuse_by_limit(struct server *server, struct link *link,
                            enum network_limit limit)
{
    name_limit(server, link, limit);
    refuse(server, link, 403, "cay: the sandbox's network is at its limit (%s%s)",
           link->rule + sizeof "limit",
           limit == NETWORK_CONNECTIONS ? " at a time" : " in all");
}

/* True if the link is refused. */
static bool check_limits(struct server *server, struct link *link)
{
    const struct network_limits *limits = network_rules_limits(server->rules);
    uint64_t others = 0;

    for (const struct link *at = server->links; at; at = at->next)
        others += at != link && at->state <= RELAYING;
    if (limits->at[NETWORK_CONNECTIONS] && others >= limits->at[NETWORK_CONNECTIONS])
        refuse_by_limit(server, link, NETWORK_CONNECTIONS);
    else if (limit_is_over(&server->limiter, limits, 1))
        refuse_by_limit(server, link, NETWORK_BYTES);
    else
        return false;
    return true;
}

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
        name_limit(server, link, NETWORK_BYTES);
        link->is_limited = true;
        server->counts.refused++;
        return false;
    }
    flow->is_ended = got == 0;
    return got == 0 || errno == EAGAIN;
}

/* --- Relaying --- */

/* With is_inspected: the client's place is taken by cay-net-tls. */
static bool hand_over(struct server *server, struct link *link)
{
    int client = link->client.fd;

    if (link->hello != HELLO_TLS && link->hello != HELLO_HTTP && !link->is_http_only) {
        link->is_inspected = false; /* a secret is not sent over other protocols */
        return true;
    }
    if (link->hello != HELLO_TLS && link->hello != HELLO_HTTP) {
        refuse(server, link, 403, "cay: the rule \"%.300s\" is for requests of HTTP only",
               link->rule);
        return false;
    }
    int error = hand_over_client(server, link->named->name, link->port,
                                 link->hello == HELLO_TLS, link->owner_request, &client);
    if (error) {
        refuse(server, link, 502, "cay: requests to %s cannot be inspected now",
               link->named->name);
        return false;
    }
    /* Not only closed: cay-net-tls has the same socket, which epoll would still report.
     */
    (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, link->client.fd, NULL);
    close_source(&link->client);
    link->client.fd = client;
    link->hello = HELLO_MORE;
    if (server_watch(server, &link->client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) ==
        0)
        return true;
    end(server, link, true);
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
        put_pipe(server, flow);
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
        end(server, link, true);
        return;
    }
    if (link->up.is_shut && link->down.is_shut) {
        end(server, link, false);
        return;
    }
    server->has_waiting |= link->is_waiting;
    link->active_ms = clock_ms();
}

/* Behind the links that wait for their share already. */
static void relay_in_turn(struct server *server, struct link *link)
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

/* --- The connection outside --- */

static socklen_t fill_name(const struct network_address *address, uint16_t port,
                           struct sockaddr_storage *ret_name)
{
    memset(ret_name, 0, sizeof *ret_name);
    if (address->len == 4) {
        struct sockaddr_in *name = (struct sockaddr_in *)ret_name;
        name->sin_family = AF_INET;
        name->sin_port = htons(port);
        memcpy(&name->sin_addr, address->bytes, 4);
        return sizeof *name;
    }
    struct sockaddr_in6 *name = (struct sockaddr_in6 *)ret_name;
    name->sin6_family = AF_INET6;
    name->sin6_port = htons(port);
    memcpy(&name->sin6_addr, address->bytes, 16);
    return sizeof *name;
}

/* Whether the host has this address: the kernel then chooses it as the source, too.  True
 * if that is unknown, unless no route leads there. */
static bool is_own(const struct network_address *address)
{
    struct sockaddr_storage name, source;
    socklen_t len = fill_name(address, 1, &name), source_len = sizeof source;
    AUTO_FD fd = socket(name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return true;
    if (connect(fd, (struct sockaddr *)&name, len) != 0)
        return errno != ENETUNREACH && errno != EHOSTUNREACH;
    if (getsockname(fd, (struct sockaddr *)&source, &source_len) != 0)
        return true;
    return address->len == 4 ? memcmp(&((struct sockaddr_in *)&source)->sin_addr,
                                      address->bytes, 4) == 0
                             : memcmp(&((struct sockaddr_in6 *)&source)->sin6_addr,
                                      address->bytes, 16) == 0;
}

static void check(const struct server *server, const struct link *link,
                  const struct network_address *address, struct network_answer *answer)
{
    const struct network_addresses own = {address, is_own(address)};

    if (link->named)
        network_check_resolved(server->rules, link->named->name, address, link->port,
                               &own, answer);
    else
        network_check_address(server->rules, address, link->port, &own, answer);
}

static bool may_pass(const struct server *server, const struct network_answer *answer)
{
    return answer->verdict == NETWORK_ALLOW || hand_over_may_inspect(server, answer);
}

static void set_no_delay(int fd)
{
    const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* 0: it is connecting, or connected; otherwise a negative errno. */
static int begin_connection(struct server *server, struct link *link,
                            const struct network_address *address)
{
    struct sockaddr_storage name;
    socklen_t len = fill_name(address, link->port, &name);

    link->address = *address;
    link->server.fd =
        socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->server.fd < 0)
        return -errno;
    set_no_delay(link->server.fd);
    if (connect(link->server.fd, (struct sockaddr *)&name, len) != 0 &&
        errno != EINPROGRESS)
        return -errno;
    link->state = CONNECTING;
    set_deadline(server, link, CONNECT_MS);
    return server_watch(server, &link->server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

static void on_lookup(struct server *server, struct link *link);

/* After the last IPv4 address: the host's network may be of IPv6 only. */
static bool look_for_six(struct server *server, struct link *link)
{
    const struct dns_addresses *addresses = &link->named->addresses;

    if (!addresses->count || addresses->at[0].len != 4)
        return false;
    if (!link->lookup && !(link->lookup = malloc(sizeof *link->lookup)))
        return false;
    *link->lookup = (struct lookup){.is_second = true};
    link->state = LOOKING_UP;
    link->tried = 0;
    on_lookup(server, link);
    return true;
}

/* Tries the addresses that are left, in the nameserver's order. */
static void connect_next(struct server *server, struct link *link)
{
    const struct dns_addresses *addresses = &link->named->addresses;
    struct network_answer answer = {.verdict = NETWORK_ALLOW};
    int error = -EHOSTUNREACH;

    close_source(&link->server);
    while (link->tried < addresses->count) {
        const struct network_address *address = &addresses->at[link->tried++];
        check(server, link, address, &answer);
        if (!may_pass(server, &answer)) {
            link->address = *address;
            continue;
        }
        error = begin_connection(server, link, address);
        if (!error)
            return;
        close_source(&link->server);
    }
    if (!may_pass(server, &answer))
        refuse_by_rule(server, link, &answer);
    else if (!look_for_six(server, link))
        refuse(server, link, 502, "cay: cannot connect to %s:%d (%s)", link->named->name,
               link->port,
               link->address.len ? "no address answers" : "the name has no address");
}

static void fail_literal(struct server *server, struct link *link)
{
    char text[NETWORK_ADDRESS_TEXT];

    network_address_format(&link->destination, text);
    refuse(server, link, 502, "cay: cannot connect to %s, port %d", text, link->port);
}

static void fail_member(struct server *server, struct link *link)
{
    refuse(server, link, 502,
           "cay: cannot connect to %s, port %d (nothing listens there; servers on "
           "127.0.0.1 alone are not reached)",
           link->named->name, link->port);
}

static void connect_literal(struct server *server, struct link *link)
{
    int error = begin_connection(server, link, &link->destination);

    if (error)
        fail_literal(server, link);
}

static void fail_connection(struct server *server, struct link *link)
{
    if (link->member)
        fail_member(server, link);
    else if (link->named)
        connect_next(server, link);
    else
        fail_literal(server, link);
}

/* The reply to CONNECT, the first bytes on this connection. */
static bool confirm_tunnel(struct link *link)
{
    static const char text[] = "HTTP/1.1 200 Connection established\r\n\r\n";

    link->is_proxied = false;
    return !link->is_tunnel ||
           send(link->client.fd, text, strlen(text), MSG_NOSIGNAL) == sizeof text - 1;
}

static void finish_connection(struct server *server, struct link *link)
{
    int error = 0;
    socklen_t len = sizeof error;

    if (getsockopt(link->server.fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error) {
        fail_connection(server, link);
        return;
    }
    if (!confirm_tunnel(link)) {
        end(server, link, true);
        return;
    }
    link->state = RELAYING;
    link->is_reported = true;
    server->counts.allowed++;
    report(server, link, RELAY_EVENT_OPEN, NETWORK_ALLOW);
    set_deadline(server, link, link->has_begun && !link->is_checked ? HELLO_MS : IDLE_MS);
    relay_in_turn(server, link);
}

/* --- Lookups --- */

static void on_lookup(struct server *server, struct link *link)
{
    switch (lookup_continue(link->lookup, link->server.fd, &link->named->addresses)) {
    case LOOKUP_PENDING:
        return;
    case LOOKUP_AGAIN: /* another question */
        close_source(&link->server);
        link->server.fd = lookup_ask(link->lookup, server->nameservers,
                                     server->nameserver_count, link->named->name);
        if (link->server.fd >= 0 &&
            server_watch(server, &link->server, EPOLLIN | EPOLLOUT | EPOLLET) == 0) {
            set_deadline(server, link, LOOKUP_MS);
            return;
        }
        refuse(server, link, 502, "cay: no nameserver of the host answers for %s",
               link->named->name);
        return;
    case LOOKUP_DONE:
        link->named->known_until_ms =
            clock_ms() + lookup_keep_ms(&link->named->addresses);
        connect_next(server, link);
        return;
    }
}

static void begin_lookup(struct server *server, struct link *link)
{
    link->state = LOOKING_UP;
    if (link->named->known_until_ms > clock_ms()) {
        connect_next(server, link);
        return;
    }
    link->lookup = calloc(1, sizeof *link->lookup);
    if (!link->lookup) {
        end(server, link, true);
        return;
    }
    on_lookup(server, link);
}

/* --- Questions by TCP --- */

/* A message has its length before it.  The length of a whole one, with that; 0 if it has
 * not arrived yet, negative if none will. */
static ssize_t receive_question(int fd, uint8_t bytes[2 + DNS_MESSAGE_MAX])
{
    ssize_t got = recv(fd, bytes, 2 + DNS_MESSAGE_MAX, MSG_PEEK);

    if (got <= 0)
        return got < 0 && errno == EAGAIN ? 0 : -EPIPE;
    ssize_t need = got < 2 ? 2 : 2 + (bytes[0] << 8 | bytes[1]);
    if (need > 2 + DNS_MESSAGE_MAX)
        return -EMSGSIZE;
    return got < 2 || got < need ? 0 : recv(fd, bytes, (size_t)need, 0);
}

static void answer_questions(struct server *server, struct link *link)
{
    uint8_t bytes[2 + DNS_MESSAGE_MAX], reply[2 + DNS_MESSAGE_MAX];
    ssize_t got;

    while ((got = receive_question(link->client.fd, bytes)) > 0) {
        const struct owner_flow flow = {IPPROTO_TCP, link->peer, link->accepted};
        size_t len = server_answer(server, bytes + 2, (size_t)got - 2, &flow, reply + 2);
        reply[0] = (uint8_t)(len >> 8);
        reply[1] = (uint8_t)len;
        if (!len ||
            send(link->client.fd, reply, len + 2, MSG_NOSIGNAL) != (ssize_t)(len + 2)) {
            end(server, link, true);
            return;
        }
        set_deadline(server, link, HELLO_MS);
    }
    if (got < 0)
        end(server, link, got != -EPIPE);
}

/* --- The client's first bytes --- */

/* A client that sends pages of a file (sendfile(2), splice(2)) can change bytes that are
 * in the socket already.  The ones that were checked are copied and sent from here; false
 * if they are no longer the same. */
static bool take_first(struct link *link, const uint8_t *checked, size_t len)
{
    if (!len)
        return true;
    link->first = malloc(len);
    link->first_len = len;
    return link->first && recv(link->client.fd, link->first, len, 0) == (ssize_t)len &&
           memcmp(link->first, checked, len) == 0;
}

/* Those of an inspected link stay in the socket: cay-net-tls reads them. */
static void keep_first(struct server *server, struct link *link, const uint8_t *checked,
                       size_t len)
{
    if (limit_is_over(&server->limiter, network_rules_limits(server->rules), len))
        refuse_by_limit(server, link, NETWORK_BYTES);
    else if (!link->is_inspected && !take_first(link, checked, len))
        end(server, link, true);
    else if (!link->is_inspected)
        limit_take(&server->limiter, len);
}

/* True if they are checked, and not refused.  After the last bytes of the client
 * (`is_all`) an incomplete hello stays so, and no server understands it. */
static bool check_hello(struct server *server, struct link *link, bool is_all)
{
    uint8_t bytes[HELLO_MAX];
    struct hello hello;
    ssize_t got = recv(link->client.fd, bytes, sizeof bytes, MSG_PEEK);

    if (got < 0)
        return false;
    hello_read(bytes, (size_t)got, &hello);
    if (hello.kind == HELLO_MORE && got > 0 && !is_all) {
        if (link->state == RELAYING && !link->has_begun)
            set_deadline(server, link, HELLO_MS);
        link->has_begun = true;
        return false;
    }
    link->is_checked = true;
    link->hello = hello.kind;
    if (hello.kind == HELLO_BAD)
        refuse(server, link, 403,
               "cay: the first bytes of the connection to port %d do not name one host",
               link->port);
    else if (link->named && hello.host[0] && strcmp(hello.host, link->named->name) != 0)
        refuse(server, link, 403,
               "cay: a connection to %s names another host, %s (%s must match)",
               link->named->name, hello.host, hello.kind == HELLO_TLS ? "SNI" : "Host");
    else if (link->is_inspected && link->named && !hello.host[0] &&
             (link->is_http_only || hello.kind != HELLO_OTHER))
        refuse(server, link, 403,
               "cay: requests to %s are inspected, and this connection does not name it "
               "(SNI or Host)",
               link->named->name);
    else
        keep_first(server, link, bytes, (size_t)got);
    return link->state != REFUSING && link->state != DRAINING && link->state != DEAD;
}

static void continue_proxy(struct server *server, struct link *link);

static void on_client(struct server *server, struct source *source, uint32_t events)
{
    struct link *link = link_of_client(source);

    switch (link->state) {
    case DIALLING:
    case LOOKING_UP:
    case CONNECTING:
    case RELAYING:
        if (!link->is_checked && !check_hello(server, link, events & EPOLLRDHUP))
            break;
        if (link->state == RELAYING)
            relay_in_turn(server, link);
        break;
    case ANSWERING:
        answer_questions(server, link);
        break;
    case PROXYING:
        continue_proxy(server, link);
        break;
    case REFUSING:
        continue_refusal(server, link);
        break;
    case DRAINING:
        if (!drain(link->client.fd))
            end(server, link, false);
        break;
    case DEAD:
        break;
    }
}

static void on_server(struct server *server, struct source *source, uint32_t events)
{
    struct link *link = link_of_server(source);

    (void)events;
    if (source->fd < 0)
        return;
    if (link->state == LOOKING_UP)
        on_lookup(server, link);
    else if (link->state == CONNECTING)
        finish_connection(server, link);
    else if (link->state == RELAYING)
        relay_in_turn(server, link);
}

/* --- Members of a named network --- */

#define NOT_SENT UINT64_MAX

static int request_dial(struct server *server, struct link *link)
{
    int error = member_dial(link->member, link->port, &link->request);

    if (error && error != -EAGAIN)
        fail_member(server, link);
    return error;
}

static void dial(struct server *server, struct link *link)
{
    snprintf(link->rule, sizeof link->rule, "join %s", link->member->join.network);
    link->is_checked = true; /* a member serves under any name */
    link->state = DIALLING;
    link->request = NOT_SENT;
    set_deadline(server, link, CONNECT_MS);
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
        fail_member(server, link);
        return;
    }
    link->server.fd = fd;
    set_no_delay(fd);
    link->state = CONNECTING;
    set_deadline(server, link, CONNECT_MS);
    if (server_watch(server, &link->server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET))
        fail_member(server, link);
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
            end(server, link, true);
    }
}

/* --- Accepting --- */

/* 0 for one of IPv6. */
static uint32_t ipv4_of(const struct network_address *address)
{
    uint32_t four = 0;

    if (address->len == 4)
        memcpy(&four, address->bytes, sizeof four);
    return ntohl(four);
}

/* Begins the connection to the destination, unless the rules do not allow it. */
static void decide(struct server *server, struct link *link)
{
    struct network_answer answer;

    if (check_limits(server, link))
        return;
    link->named = hosts_find(&server->hosts, ipv4_of(&link->destination));
    link->member = link->named ? member_find(server, link->named->name) : NULL;
    if (link->member) {
        dial(server, link);
        return;
    }
    if (link->named)
        network_check_name(server->rules, link->named->name, link->port, &answer);
    else
        check(server, link, &link->destination, &answer);
    if (!may_pass(server, &answer) ||
        (answer.verdict == NETWORK_INSPECT && !link->named)) {
        refuse_by_rule(server, link, &answer); /* requests are checked by their host */
        return;
    }
    cay_copy_text(link->rule, sizeof link->rule, answer.rule);
    link->is_http_only = answer.verdict == NETWORK_INSPECT;
    link->is_inspected = link->is_http_only ||
                         (link->named && hand_over_is_opened(server, link->named->name));
    if (link->is_inspected && link->is_proxied && !link->is_tunnel) {
        refuse(server, link, 403,
               "cay: requests to this host are inspected, which the proxy cannot do: "
               "connect to it without the proxy");
        return;
    }
    link->is_checked |= !link->named; /* an address has no name to compare with */
    if (link->named)
        begin_lookup(server, link);
    else
        connect_literal(server, link);
}

/* Takes the destination from a request to the proxy; a name has an address as if it had
 * been looked up, also one that the rules do not allow. */
static bool take_target(struct server *server, struct link *link,
                        const struct proxy_request *request)
{
    link->port = request->port;
    link->destination = request->address;
    if (!request->name[0])
        return true;
    uint32_t address = htonl(hosts_address(&server->hosts, request->name));
    server->counts.names = (uint32_t)server->hosts.count;
    link->destination = (struct network_address){.len = 4};
    memcpy(link->destination.bytes, &address, sizeof address);
    return address != 0;
}

/* A forwarded request is sent from a copy, which names the host of its target. */
static bool take_request(struct server *server, struct link *link, const uint8_t *bytes,
                         size_t len, const struct proxy_request *request)
{
    AUTO_BUF copy = {.max = 2 * HELLO_MAX};

    if (!take_first(link, bytes, len) || !proxy_rewrite(bytes, len, request, &copy))
        return false;
    free(link->first);
    link->first_len = copy.len;
    link->first = (uint8_t *)TAKE_PTR(copy.data);
    limit_take(&server->limiter, len);
    link->is_checked = true;
    return true;
}

/* What follows a request for a tunnel is for the server. */
static bool drop_head(const struct link *link, const uint8_t *read, size_t len)
{
    uint8_t bytes[HELLO_MAX];

    return recv(link->client.fd, bytes, len, 0) == (ssize_t)len &&
           memcmp(bytes, read, len) == 0;
}

static void continue_proxy(struct server *server, struct link *link)
{
    uint8_t bytes[HELLO_MAX];
    struct proxy_request request;
    ssize_t got = recv(link->client.fd, bytes, sizeof bytes, MSG_PEEK);

    if (got <= 0) {
        if (got == 0 || errno != EAGAIN)
            end(server, link, true);
        return;
    }
    enum proxy_kind kind = proxy_read(bytes, (size_t)got, &request);
    if (kind == PROXY_MORE)
        return;
    link->is_proxied = true;
    link->is_tunnel = kind == PROXY_CONNECT;
    if (kind == PROXY_BAD || !take_target(server, link, &request)) {
        refuse(server, link, kind == PROXY_BAD ? 403 : 502,
               "cay: the proxy takes \"CONNECT host:port\" and requests with a target "
               "like http://host/path, for up to %d names",
               HOSTS_MAX);
        return;
    }
    if (!link->is_tunnel &&
        limit_is_over(&server->limiter, network_rules_limits(server->rules),
                      (size_t)got)) {
        refuse_by_limit(server, link, NETWORK_BYTES);
        return;
    }
    bool is_taken = link->is_tunnel
                        ? drop_head(link, bytes, request.head_len)
                        : take_request(server, link, bytes, (size_t)got, &request);
    if (!is_taken) {
        end(server, link, true);
        return;
    }
    decide(server, link);
    if (link->is_tunnel && !link->is_checked && link->state <= RELAYING)
        (void)check_hello(server, link, false);
}

/* Destinations that are cay-net itself. */
static void begin(struct server *server, struct link *link)
{
    static const uint8_t listener4[] = {127, 0, 0, 1}, listener6[16] = {[15] = 1};
    const struct network_address *destination = &link->destination;
    bool is_own = ipv4_of(destination) == COLLECT_NAMESERVER;

    if (memcmp(destination->bytes, destination->len == 4 ? listener4 : listener6,
               destination->len) == 0) { /* a loop */
        end(server, link, true);
    } else if (is_own && (link->port == 53 || link->port == PROXY_PORT)) {
        link->state = link->port == 53 ? ANSWERING : PROXYING;
        set_deadline(server, link, HELLO_MS);
    } else {
        decide(server, link);
    }
}

union name {
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

static bool read_end(const union name *name, struct owner_end *ret_end)
{
    bool is_six = name->six.sin6_family == AF_INET6;

    ret_end->port = ntohs(is_six ? name->six.sin6_port : name->four.sin_port);
    ret_end->address.len = is_six ? 16 : 4;
    memcpy(ret_end->address.bytes,
           is_six ? (const void *)&name->six.sin6_addr
                  : (const void *)&name->four.sin_addr,
           ret_end->address.len);
    return is_six || name->four.sin_family == AF_INET;
}

/* The destination of a connection that was collected. */
static bool read_destination(struct link *link, int client)
{
    union name name = {.six = {0}};
    socklen_t len = sizeof name;

    if (getsockname(client, (struct sockaddr *)&name, &len) != 0 ||
        !read_end(&name, &link->accepted))
        return false;
    link->port = link->accepted.port;
    link->destination = link->accepted.address;
    return true;
}

static void add_link(struct server *server, int client, const union name *peer)
{
    struct link *link = calloc(1, sizeof *link);

    if (!link || !read_end(peer, &link->peer) || !read_destination(link, client)) {
        (void)close(client);
        free(link);
        return;
    }
    link->client = (struct source){on_client, client};
    link->server = (struct source){on_server, -1};
    link->up.pipe[0] = link->up.pipe[1] = link->down.pipe[0] = link->down.pipe[1] = -1;
    link->began_ms = clock_ms();
    link->next = server->links;
    link->previous = &server->links;
    if (link->next)
        link->next->previous = &link->next;
    server->links = link;
    server->counts.links++;
    set_no_delay(client);
    if (server_watch(server, &link->client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET))
        end(server, link, true);
    else
        begin(server, link);
}

void link_accept(struct server *server, struct source *source, uint32_t events)
{
    (void)events;
    for (int i = 0; i < ACCEPTS && server_may_accept(server); i++) {
        union name peer = {.six = {0}};
        socklen_t len = sizeof peer;
        int client = accept4(source->fd, (struct sockaddr *)&peer, &len,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0) {
            if (errno != EAGAIN) /* a shortage: the socket stays readable */
                server->accept_at_ms = clock_ms() + SHORTAGE_MS;
            return;
        }
        server->accept_tokens--;
        add_link(server, client, &peer);
    }
}

/* --- Time --- */

static void on_deadline(struct server *server, struct link *link, uint64_t now_ms)
{
    uint64_t limit = link->up.is_shut || link->down.is_shut ? HALF_MS : IDLE_MS;

    switch (link->state) {
    case LOOKING_UP:
        lookup_time_out(link->lookup);
        on_lookup(server, link);
        return;
    case DIALLING:
    case CONNECTING:
        fail_connection(server, link);
        return;
    case RELAYING:
        if (link->has_begun && !link->is_checked)
            end(server, link, true);
        else if (link->active_ms + limit > now_ms)
            set_deadline(server, link, link->active_ms + limit - now_ms);
        else
            end(server, link, true);
        return;
    case ANSWERING:
    case PROXYING:
    case REFUSING:
    case DRAINING:
        end(server, link, link->state == REFUSING);
        return;
    case DEAD:
        return;
    }
}

void link_check_deadlines(struct server *server, uint64_t now_ms)
{
    uint64_t next = UINT64_MAX;

    if (now_ms < server->next_deadline_ms)
        return;
    for (struct link *link = server->links; link; link = link->next) {
        if (link->deadline_ms <= now_ms)
            on_deadline(server, link, now_ms);
        if (link->state != DEAD && link->deadline_ms < next)
            next = link->deadline_ms;
    }
    server->next_deadline_ms = next;
}

void link_count_bytes(const struct server *server, struct relay_counts *counts)
{
    for (const struct link *link = server->links; link; link = link->next)
        if (link->state != DEAD) {
            counts->up_bytes += link->up.bytes;
            counts->down_bytes += link->down.bytes;
        }
}

void link_cut_forbidden(struct server *server)
{
    struct network_answer answer;

    for (struct link *link = server->links; link; link = link->next) {
        if (link->state > RELAYING || link->member)
            continue;
        if (link->address.len)
            check(server, link, &link->address, &answer);
        else
            network_check_name(server->rules, link->named->name, link->port, &answer);
        if (answer.verdict == NETWORK_ALLOW ||
            (link->is_inspected && hand_over_may_inspect(server, &answer)))
            cay_copy_text(link->rule, sizeof link->rule, answer.rule);
        else
            end(server, link, true);
    }
}
