/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_LINK_H
#define RELAY_LINK_H

#include "relay/hello.h"
#include "relay/lookup.h"
#include "relay/member.h"

/* A link is one connection of the sandbox.  It is decided when it is accepted, by the
 * name that its destination stands for; the lookup and the connection outside begin at
 * once, but no byte leaves before the client's first bytes are checked: if they name a
 * host, it must be the same.  The files link*.c share this header. */

enum {
    LINK_CONNECT_MS = 10000,  /* for each address */
    LINK_HELLO_MS = 10000,    /* from the first bytes to the end of the hello */
    LINK_IDLE_MS = 15 * 60000 /* without a byte */
};

enum link_state {
    ASKING, /* until it is approved */
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
    enum link_state state;
    bool has_begun;    /* the client has sent some of its first bytes */
    bool is_checked;   /* all of them */
    bool is_waiting;   /* more to relay */
    bool is_inspected; /* its requests are read by cay-net-tls */
    bool is_http_only; /* and nothing else may pass */
    enum hello_kind hello;
    bool is_reported;
    bool is_limited;  /* cut by a limit */
    bool is_proxied;  /* a client of the proxy that has no reply yet */
    bool is_held;     /* it waits for approval, or has */
    bool is_asked;    /* there is a request for approval */
    bool is_approved; /* this connection, which no rule allows */
    bool is_tunnel;   /* it waits for the reply to CONNECT */
    int status;       /* of a refusal, as HTTP has it */
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

#define NOT_SENT UINT64_MAX

/* --- link.c --- */

void link_set_deadline(struct server *server, struct link *link, uint64_t ms);
void link_report(struct server *server, struct link *link, enum relay_event_kind kind,
                 enum network_verdict verdict);

void link_close_source(struct source *source);

/* Freed after all events of the moment, which may refer to it. */
void link_end(struct server *server, struct link *link, bool is_cut);

/* --- link-refuse.c --- */

/* Refuses with this status of HTTP and a sentence. */
__attribute__((format(printf, 4, 5))) void link_refuse(struct server *server,
                                                       struct link *link, int status,
                                                       const char *format, ...);
void link_refuse_by_rule(struct server *server, struct link *link,
                         const struct network_answer *answer);
void link_refuse_by_limit(struct server *server, struct link *link,
                          enum network_limit limit);
void link_name_limit(const struct server *server, struct link *link,
                     enum network_limit limit);

/* True if the link is refused. */
bool link_check_limits(struct server *server, struct link *link);

/* After more bytes of the client. */
void link_continue_refusal(struct server *server, struct link *link);

/* Drops what the client has sent; false after its end. */
bool link_drain(int fd);

/* --- link-relay.c --- */

/* Keeps an empty pipe for the next flow. */
void link_put_pipe(struct server *server, struct flow *flow);

/* Behind the links that wait for their share already. */
void link_relay_in_turn(struct server *server, struct link *link);

/* --- link-ask.c --- */

/* Lets a link wait for approval, or refuses it. */
void link_ask(struct server *server, struct link *link);

/* After new rules, or the reply. */
void link_ask_again(struct server *server, struct link *link);

/* After an event of the client: it may have given up. */
void link_check_asking(struct server *server, struct link *link);
void link_refuse_asking(struct server *server, struct link *link, const char *why);

/* The rules for an address of a link that is approved: it must still be public, and no
 * rule may deny it. */
void link_check_approved(const struct server *server, const struct link *link,
                         const struct network_address *address,
                         const struct network_addresses *own,
                         struct network_answer *answer);

/* --- link-connect.c --- */

/* Begins the connection to the destination, unless the rules do not allow it. */
void link_decide(struct server *server, struct link *link);

/* The rules for an address that the link has, or is to have. */
void link_check(const struct server *server, const struct link *link,
                const struct network_address *address, struct network_answer *answer);

/* The reply of a nameserver, or the end of the time for it. */
void link_on_lookup(struct server *server, struct link *link);

/* The socket outside is writable, or broken. */
void link_finish_connection(struct server *server, struct link *link);
void link_fail_connection(struct server *server, struct link *link);
void link_fail_member(struct server *server, struct link *link);
void link_set_no_delay(int fd);

/* 0 for one of IPv6. */
uint32_t link_ipv4(const struct network_address *address);

/* --- link-member.c --- */

/* Begins a connection to the member of a named network. */
void link_dial(struct server *server, struct link *link);

/* --- link-first.c --- */

/* True if they are checked, and not refused.  After the last bytes of the client
 * (`is_all`) an incomplete hello stays so, and no server understands it. */
bool link_check_hello(struct server *server, struct link *link, bool is_all);
void link_answer_questions(struct server *server, struct link *link);
void link_continue_proxy(struct server *server, struct link *link);

#endif
