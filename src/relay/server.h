/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_SERVER_H
#define RELAY_SERVER_H

#include <stdbool.h>

#include "relay/hosts.h"
#include "relay/limit.h"
#include "relay/owner.h"
#include "relay/relay.h"

/* cay-net: one thread, one epoll.  Everything that comes from RELAY_... descriptors of
 * the sandbox is hostile. */

struct server;
struct member;

/* Something that epoll reports.  `ready` may free everything but sources of links, which
 * are freed after all events of the moment. */
struct source {
    void (*ready)(struct server *server, struct source *source, uint32_t events);
    int fd; /* -1: none */
};

struct pipes {
    int at[16][2];
    size_t count;
};

/* Events whose process is being looked up. */
enum { UNKNOWN_OWNERS = 64 };

struct unknown_owners {
    size_t count;
    struct unknown_owner {
        uint64_t request; /* of owner_ask() */
        uint64_t number;  /* of the event */
    } at[UNKNOWN_OWNERS];
};

struct server {
    int epoll;
    int events_file;
    struct source tcp, tcp6, dns, log, control, init;
    struct source opener; /* cay-net-tls; -1: not running */
    int diag;             /* for owner_ask() */
    struct source owners; /* PID 1; -1: processes stay unknown */
    uint64_t owners_sent, owners_received;
    bool is_accepting;
    uint32_t links_max, accept_tokens;
    uint64_t accept_refilled_ms, accept_at_ms; /* not before */
    struct network_rules *rules;
    char *header_hosts; /* the same of headers */
    char *opened;       /* names of hosts that have secrets, a line for each; or NULL */
    struct hosts hosts;
    struct network_address nameservers[RELAY_NAMESERVERS_MAX];
    size_t nameserver_count;
    struct link *links; /* a list */
    bool has_waiting;   /* a link has more to relay */
    bool has_dead;
    uint64_t next_deadline_ms; /* not after the first deadline of a link */
    struct pipes pipes;
    struct limiter limiter;
    struct member *members; /* a list: see member.h */
    size_t member_count;
    struct relay_counts counts;
    uint32_t event_lost;
    uint32_t event_tokens;
    uint64_t event_refilled_ms;
    struct unknown_owners unknown;
};

/* --- serve.c --- */

/* The server of these descriptors; 0 or a negative errno. */
int server_init(struct server *server, const int fds[RELAY_FDS],
                const struct relay_start *start);
_Noreturn void server_run(struct server *server);
int server_watch(struct server *server, struct source *source, uint32_t events);
bool server_may_accept(struct server *server);
void server_accept_again(struct server *server);

/* The reply to a question of DNS; its length, 0: there is none. */
size_t server_answer(struct server *server, const uint8_t *message, size_t len,
                     const struct owner_flow *flow, uint8_t ret_reply[DNS_MESSAGE_MAX]);

/* --- control.c --- */

void control_accept(struct server *server, struct source *source, uint32_t events);

/* --- link.c --- */

void link_accept(struct server *server, struct source *source, uint32_t events);
void link_relay_waiting(struct server *server);
void link_check_deadlines(struct server *server, uint64_t now_ms);
void link_free_dead(struct server *server);

/* Adds the bytes of the links that are open. */
void link_count_bytes(const struct server *server, struct relay_counts *counts);

/* Cuts the links that the rules no longer allow. */
void link_cut_forbidden(struct server *server);

/* The reply to a request of member_dial(): a socket that may still be connecting, which
 * is the link's from now on, or -1. */
void link_dialled(struct server *server, struct member *member, uint64_t request, int fd);

/* The reply to a request of owner_ask(), and what is known of it so far. */
void link_take_owner(struct server *server, uint64_t request,
                     const struct relay_owner *owner);

void link_get_owner(const struct server *server, uint64_t request,
                    struct relay_owner *ret_owner);

/* Cuts the links to a member that has ended. */
void link_lose_member(struct server *server, const struct member *member);

/* --- link-ask.c --- */

/* The destinations of links that wait for approval. */
void link_list_asking(const struct server *server, struct relay_asked *ret_asked);
void link_answer(struct server *server, const struct relay_answer *answer);

/* --- events.c --- */

/* Completes and writes an event; the caller sets kind, verdict and what it knows.  The
 * process follows with the reply to `request` of owner_ask(); 0: there is none. */
void events_write(struct server *server, struct relay_event *event, uint64_t request);
void events_take_owner(struct server *server, uint64_t request,
                       const struct relay_owner *owner);

bool events_may_write(struct server *server); /* not too many a second */

/* --- hand-over.c --- */

/* Whether the requests to a host that has this answer are read by cay-net-tls. */
bool hand_over_may_inspect(const struct server *server,
                           const struct network_answer *answer);

/* Whether the host has a secret. */
bool hand_over_is_opened(const struct server *server, const char *name);

/* `tag` comes back with its events: the number of owner_ask() for the link.
 * Sends a client to cay-net-tls and sets *client to the socket that it replies on: the
 * way to the server.  0 or a negative errno. */
int hand_over_client(const struct server *server, const char *name, uint16_t port,
                     bool is_tls, uint64_t tag, int *client);

/* Sends new headers of these hosts; false if they did not arrive. */
bool hand_over_headers(struct server *server, const char *hosts, size_t len, int fd);

/* Sends new rules; false if they did not arrive. */
bool hand_over_rules(const struct server *server, const char *text, size_t len);
/* Those in force, after others that were taken back. */
void hand_over_rules_again(const struct server *server);
void hand_over_events(struct server *server, struct source *source, uint32_t events);

#endif
