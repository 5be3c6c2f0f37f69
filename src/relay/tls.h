/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_TLS_H
#define RELAY_TLS_H

#include <stdint.h>

#include "network/rules.h"

/* Between the library, cay-net and cay-net-tls, the process that reads the requests of
 * one sandbox: those of plain HTTP, and of TLS that it opens with a certificate of its
 * own.  It starts with TLS_FD, a SOCK_SEQPACKET socket, receives one tls_start and
 * replies when it is confined.  After that cay-net sends it connections, and it ends with
 * cay-net.  It has no network of its own: the way to the server leads through cay-net. */

enum {
    TLS_VERSION = 1,
    TLS_FD = 3,
    TLS_AUTHORITY_MAX = 8 << 10, /* a certificate as text */
};

/* The descriptors of tls_start. */
enum {
    TLS_LINKS, /* a SOCK_SEQPACKET socket, to cay-net */
    TLS_ROOTS, /* the certificates that the host trusts, as text */
    TLS_FDS
};

/* Followed by the rules as network_rules_write() writes them, and by the secrets in the
 * form of tls/secret.h. */
struct tls_start {
    uint32_t version;
    uint32_t uid; /* that it runs as, and its gid; 0: unchanged */
    uint32_t rules_len, secrets_len;
    uint32_t opens_any; /* the hosts are not known yet: those of headers */
};

struct tls_reply {
    uint32_t version;
    int32_t code;                      /* 0 or a negative errno */
    char authority[TLS_AUTHORITY_MAX]; /* the certificate that signs those of hosts */
};

/* --- From cay-net --- */

enum tls_order {
    TLS_ORDER_LINK = 1,   /* a connection: the descriptors of the client and of the way to
                             the server */
    TLS_ORDER_RULES = 2,  /* followed by new rules, for the next requests */
    TLS_ORDER_HEADERS = 3 /* a descriptor of a file with new headers: tls/secret.h */
};

struct tls_order_head {
    uint32_t version;
    uint32_t order;
    uint16_t port;
    uint8_t is_tls; /* the client has sent a ClientHello with this name */
    char name[NETWORK_NAME_MAX];
    uint64_t tag; /* of TLS_ORDER_LINK, for its events */
};

/* --- To cay-net --- */

/* A request that was refused, or that got a secret: its rule then is "secret NAME". */
struct tls_event {
    uint32_t version;
    uint16_t port;
    uint8_t verdict; /* enum network_verdict */
    uint64_t tag;    /* of the connection */
    char name[NETWORK_NAME_MAX];
    char rule[192];
};

#endif
