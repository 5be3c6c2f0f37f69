/* SPDX-License-Identifier: Apache-2.0 */

/* The life of a link: accepting, events of its two ends, time, and the end. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "relay/link.h"
#include "relay/proxy.h"

enum {
    ACCEPTS = 64,        /* at a time, before other sources have their turn */
    HALF_MS = 2 * 60000, /* as LINK_IDLE_MS if one side has closed */
    SHORTAGE_MS = 100
};

static struct link *link_of_client(struct source *source)
{
    return (struct link *)((char *)source - offsetof(struct link, client));
}

static struct link *link_of_server(struct source *source)
{
    return (struct link *)((char *)source - offsetof(struct link, server));
}

void link_set_deadline(struct server *server, struct link *link, uint64_t ms)
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

void link_report(struct server *server, struct link *link, enum relay_event_kind kind,
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

void link_close_source(struct source *source)
{
    auto_close(&source->fd);
    source->fd = -1;
}

static void reset(struct source *source)
{
    const struct linger now = {.l_onoff = 1};

    if (source->fd >= 0)
        (void)setsockopt(source->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    link_close_source(source);
}

/* Freed after all events of the moment, which may refer to it. */
void link_end(struct server *server, struct link *link, bool is_cut)
{
    if (link->state == DEAD)
        return;
    if (link->is_reported && link->state != REFUSING && link->state != DRAINING)
        link_report(server, link, RELAY_EVENT_END,
                    link->is_limited ? NETWORK_DENY : NETWORK_ALLOW);
    server->counts.up_bytes += link->up.bytes;
    server->counts.down_bytes += link->down.bytes;
    link->state = DEAD;
    if (is_cut) {
        reset(&link->client);
        reset(&link->server);
    }
    link_close_source(&link->client);
    link_close_source(&link->server);
    link_put_pipe(server, &link->up);
    link_put_pipe(server, &link->down);
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

/* --- What the ends report --- */

static void on_client(struct server *server, struct source *source, uint32_t events)
{
    struct link *link = link_of_client(source);

    switch (link->state) {
    case ASKING:
        link_check_asking(server, link);
        break;
    case DIALLING:
    case LOOKING_UP:
    case CONNECTING:
    case RELAYING:
        if (!link->is_checked && !link_check_hello(server, link, events & EPOLLRDHUP))
            break;
        if (link->state == RELAYING)
            link_relay_in_turn(server, link);
        break;
    case ANSWERING:
        link_answer_questions(server, link);
        break;
    case PROXYING:
        link_continue_proxy(server, link);
        break;
    case REFUSING:
        link_continue_refusal(server, link);
        break;
    case DRAINING:
        if (!link_drain(link->client.fd))
            link_end(server, link, false);
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
        link_on_lookup(server, link);
    else if (link->state == CONNECTING)
        link_finish_connection(server, link);
    else if (link->state == RELAYING)
        link_relay_in_turn(server, link);
}

/* --- Accepting --- */

/* Destinations that are cay-net itself. */
static void begin(struct server *server, struct link *link)
{
    static const uint8_t listener4[] = {127, 0, 0, 1}, listener6[16] = {[15] = 1};
    const struct network_address *destination = &link->destination;
    bool is_own = link_ipv4(destination) == COLLECT_NAMESERVER;

    if (memcmp(destination->bytes, destination->len == 4 ? listener4 : listener6,
               destination->len) == 0) { /* a loop */
        link_end(server, link, true);
    } else if (is_own && (link->port == 53 || link->port == PROXY_PORT)) {
        link->state = link->port == 53 ? ANSWERING : PROXYING;
        link_set_deadline(server, link, LINK_HELLO_MS);
    } else {
        link_decide(server, link);
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
    link_set_no_delay(client);
    if (server_watch(server, &link->client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET))
        link_end(server, link, true);
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
    uint64_t limit = link->up.is_shut || link->down.is_shut ? HALF_MS : LINK_IDLE_MS;

    switch (link->state) {
    case ASKING:
        link_refuse_asking(server, link, "was not approved in time");
        return;
    case LOOKING_UP:
        lookup_time_out(link->lookup);
        link_on_lookup(server, link);
        return;
    case DIALLING:
    case CONNECTING:
        link_fail_connection(server, link);
        return;
    case RELAYING:
        if (link->has_begun && !link->is_checked)
            link_end(server, link, true);
        else if (link->active_ms + limit > now_ms)
            link_set_deadline(server, link, link->active_ms + limit - now_ms);
        else
            link_end(server, link, true);
        return;
    case ANSWERING:
    case PROXYING:
    case REFUSING:
    case DRAINING:
        link_end(server, link, link->state == REFUSING);
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
        if (link->state == ASKING) {
            link_ask_again(server, link);
            continue;
        }
        if (link->address.len)
            link_check(server, link, &link->address, &answer);
        else
            network_check_name(server->rules, link->named->name, link->port, &answer);
        bool is_approved = link->is_approved && answer.may_ask;
        if (answer.verdict == NETWORK_ALLOW || is_approved ||
            (link->is_inspected && hand_over_may_inspect(server, &answer)))
            cay_copy_text(link->rule, sizeof link->rule, answer.rule);
        else
            link_end(server, link, true);
    }
}
