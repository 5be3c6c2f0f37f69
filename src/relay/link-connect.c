/* SPDX-License-Identifier: Apache-2.0 */

/* The decision about a link, the lookup of its name and the connection outside. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "relay/link.h"

/* --- Addresses --- */

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

void link_check(const struct server *server, const struct link *link,
                const struct network_address *address, struct network_answer *answer)
{
    const struct network_addresses own = {address, is_own(address)};

    if (link->named)
        network_check_resolved(server->rules, link->named->name, address, link->port,
                               &own, answer);
    else
        network_check_address(server->rules, address, link->port, &own, answer);
    if (link->is_approved && answer->verdict == NETWORK_DENY && answer->may_ask)
        link_check_approved(server, link, address, &own, answer);
}

static bool may_pass(const struct server *server, const struct network_answer *answer)
{
    return answer->verdict == NETWORK_ALLOW || hand_over_may_inspect(server, answer);
}

void link_set_no_delay(int fd)
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
    link_set_no_delay(link->server.fd);
    if (connect(link->server.fd, (struct sockaddr *)&name, len) != 0 &&
        errno != EINPROGRESS)
        return -errno;
    link->state = CONNECTING;
    link_set_deadline(server, link, LINK_CONNECT_MS);
    return server_watch(server, &link->server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

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
    link_on_lookup(server, link);
    return true;
}

/* Tries the addresses that are left, in the nameserver's order. */
static void connect_next(struct server *server, struct link *link)
{
    const struct dns_addresses *addresses = &link->named->addresses;
    struct network_answer answer = {.verdict = NETWORK_ALLOW};
    int error = -EHOSTUNREACH;

    link_close_source(&link->server);
    while (link->tried < addresses->count) {
        const struct network_address *address = &addresses->at[link->tried++];
        link_check(server, link, address, &answer);
        if (!may_pass(server, &answer)) {
            link->address = *address;
            continue;
        }
        error = begin_connection(server, link, address);
        if (!error)
            return;
        link_close_source(&link->server);
    }
    if (!may_pass(server, &answer))
        link_refuse_by_rule(server, link, &answer);
    else if (!look_for_six(server, link))
        link_refuse(server, link, 502, "cay: cannot connect to %s:%d (%s)",
                    link->named->name, link->port,
                    link->address.len ? "no address answers" : "the name has no address");
}

static void fail_literal(struct server *server, struct link *link)
{
    char text[NETWORK_ADDRESS_TEXT];

    network_address_format(&link->destination, text);
    link_refuse(server, link, 502, "cay: cannot connect to %s, port %d", text,
                link->port);
}

void link_fail_member(struct server *server, struct link *link)
{
    link_refuse(server, link, 502,
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

void link_fail_connection(struct server *server, struct link *link)
{
    if (link->member)
        link_fail_member(server, link);
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

void link_finish_connection(struct server *server, struct link *link)
{
    int error = 0;
    socklen_t len = sizeof error;

    if (getsockopt(link->server.fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error) {
        link_fail_connection(server, link);
        return;
    }
    if (!confirm_tunnel(link)) {
        link_end(server, link, true);
        return;
    }
    link->state = RELAYING;
    link->is_reported = true;
    server->counts.allowed++;
    link_report(server, link, RELAY_EVENT_OPEN, NETWORK_ALLOW);
    link_set_deadline(server, link,
                      link->has_begun && !link->is_checked ? LINK_HELLO_MS
                                                           : LINK_IDLE_MS);
    link_relay_in_turn(server, link);
}

/* --- Lookups --- */

void link_on_lookup(struct server *server, struct link *link)
{
    switch (lookup_continue(link->lookup, link->server.fd, &link->named->addresses)) {
    case LOOKUP_PENDING:
        return;
    case LOOKUP_AGAIN: /* another question */
        link_close_source(&link->server);
        link->server.fd = lookup_ask(link->lookup, server->nameservers,
                                     server->nameserver_count, link->named->name);
        if (link->server.fd >= 0 &&
            server_watch(server, &link->server, EPOLLIN | EPOLLOUT | EPOLLET) == 0) {
            link_set_deadline(server, link, LOOKUP_MS);
            return;
        }
        link_refuse(server, link, 502, "cay: no nameserver of the host answers for %s",
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
        link_end(server, link, true);
        return;
    }
    link_on_lookup(server, link);
}

/* --- Destinations --- */

/* 0 for one of IPv6. */
uint32_t link_ipv4(const struct network_address *address)
{
    uint32_t four = 0;

    if (address->len == 4)
        memcpy(&four, address->bytes, sizeof four);
    return ntohl(four);
}

void link_decide(struct server *server, struct link *link)
{
    struct network_answer answer;

    if (link_check_limits(server, link))
        return;
    link->named = hosts_find(&server->hosts, link_ipv4(&link->destination));
    link->member = link->named ? member_find(server, link->named->name) : NULL;
    if (link->member) {
        link_dial(server, link);
        return;
    }
    if (link->named)
        network_check_name(server->rules, link->named->name, link->port, &answer);
    else
        link_check(server, link, &link->destination, &answer);
    if (answer.verdict == NETWORK_DENY && answer.may_ask && !link->is_approved) {
        link_ask(server, link);
        return;
    }
    if (answer.verdict == NETWORK_DENY && answer.may_ask) { /* addresses are checked */
        answer.verdict = NETWORK_ALLOW;
        cay_copy_text(answer.rule, sizeof answer.rule, "approved");
    }
    if (!may_pass(server, &answer) ||
        (answer.verdict == NETWORK_INSPECT && !link->named)) {
        link_refuse_by_rule(server, link,
                            &answer); /* requests are checked by their host */
        return;
    }
    cay_copy_text(link->rule, sizeof link->rule, answer.rule);
    link->is_http_only = answer.verdict == NETWORK_INSPECT;
    link->is_inspected = link->is_http_only ||
                         (link->named && hand_over_is_opened(server, link->named->name));
    if (link->is_inspected && link->is_proxied && !link->is_tunnel) {
        link_refuse(
            server, link, 403,
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
