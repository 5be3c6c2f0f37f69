/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_LOOKUP_H
#define RELAY_LOOKUP_H

#include "relay/dns.h"

/* Looks a name up with the host's nameservers: A, and AAAA if there is none; by TCP if a
 * reply is truncated. */

enum { LOOKUP_MS = 2000 /* for each question */, LOOKUP_STREAM_MAX = 4096 };

enum lookup_result {
    LOOKUP_PENDING, /* the reply has not come yet */
    LOOKUP_AGAIN,   /* call lookup_ask(), and wait for its socket */
    LOOKUP_DONE
};

/* Zeroed at first. */
struct lookup {
    unsigned asked; /* questions so far */
    bool is_second; /* AAAA */
    bool is_over;   /* the last question timed out */
    bool is_plain;  /* without extensions: a nameserver has refused them */
    bool is_stream; /* by TCP, where a message has its length before it */
    bool is_sent;
    size_t len, got;
    uint8_t question[DNS_MESSAGE_MAX];
    uint8_t stream[LOOKUP_STREAM_MAX]; /* the reply so far */
};

/* A socket with the next question on its way, or a negative errno: no nameserver is left
 * to ask. */
int lookup_ask(struct lookup *lookup, const struct network_address *nameservers,
               size_t count, const char *name);

/* The first call needs no socket. */
enum lookup_result lookup_continue(struct lookup *lookup, int fd,
                                   struct dns_addresses *ret_addresses);

void lookup_time_out(struct lookup *lookup);

/* How long the addresses may be used. */
uint64_t lookup_keep_ms(const struct dns_addresses *addresses);

#endif
