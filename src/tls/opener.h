/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TLS_OPENER_H
#define TLS_OPENER_H

#include "base/buf.h"
#include "relay/tls.h"
#include "tls/authority.h"
#include "tls/secret.h"

/* cay-net-tls: one thread, one epoll.  What clients send is hostile, and so is what
 * servers reply. */

struct exchange;

struct opener {
    int epoll;
    int links; /* from cay-net */
    int roots; /* see TLS_ROOTS; -1: read */
    struct network_rules *rules;
    struct secrets *secrets;
    struct secrets *headers; /* those of TLS_ORDER_HEADERS, or NULL */
    struct authority authority;
    gnutls_datum_t ticket_key;              /* of clients that resume a session */
    gnutls_certificate_credentials_t trust; /* for servers */
    gnutls_priority_t priorities;
    struct exchange *exchanges; /* a list */
    bool has_waiting;           /* an exchange has more to do */
};

/* --- exchange.c --- */

/* Takes the descriptors: the client's, and that of the way to the server. */
void exchange_new(struct opener *opener, const struct tls_order_head *head,
                  const int fds[2]);

/* Continues after an event of epoll, whose pointer is the exchange. */
void exchange_continue(struct opener *opener, struct exchange *exchange);
void exchange_continue_waiting(struct opener *opener, uint64_t now_ms);

/* Until the next deadline, in milliseconds, for epoll_wait(). */
int exchange_timeout(const struct opener *opener, uint64_t now_ms);
void exchange_free_dead(struct opener *opener);

/* --- end.c --- */

/* One end of an exchange: a socket, and the session of TLS on it unless that is NULL. */
struct end {
    int fd;
    gnutls_session_t session;
    gnutls_certificate_credentials_t own; /* to be freed with it, or NULL */
    bool is_empty;                        /* the socket has no more bytes */
    bool sends_ticket;                    /* for the next session, after the handshake */
    bool is_shaken;                       /* after the handshake */
    bool is_ready;                        /* after the ticket, too */
    bool has_ended;                       /* the peer has closed its side */
    bool is_shut;                         /* ours is closed */
};

int end_init_client(struct opener *opener, const char *name, struct end *end);
int end_init_server(struct opener *opener, const char *name, struct end *end);
void end_done(struct end *end);

/* 0: it is done; -EAGAIN; else an error, which end_fault() describes. */
int end_handshake(struct end *end, int *ret_code);
const char *end_fault(const struct end *end, int code, char *text, size_t room);

/* As recv() and send(), but with a negative errno. */
ssize_t end_receive(struct end *end, void *bytes, size_t len);
ssize_t end_send(struct end *end, const void *bytes, size_t len);
void end_shut(struct end *end);

#endif
