/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_DNS_H
#define RELAY_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "network/rules.h"

/* Messages of DNS, which come from a hostile sandbox or from a nameserver.  Pure. */

enum {
    DNS_MESSAGE_MAX = 1232, /* what is sent and accepted: one packet on every path */
    DNS_TYPE_A = 1,
    DNS_TYPE_PTR = 12,
    DNS_TYPE_AAAA = 28,
    DNS_ADDRESSES_MAX = 8
};

enum dns_code {
    DNS_OK = 0,
    DNS_MALFORMED = 1,
    DNS_FAILED = 2,
    DNS_NO_NAME = 3,
    DNS_UNSUPPORTED = 4
};

struct dns_question {
    uint16_t type;
    bool is_internet;            /* its class */
    bool has_extensions;         /* EDNS */
    size_t end;                  /* where the question ends in the message */
    char name[NETWORK_NAME_MAX]; /* as written; "" is the root, "?" no text */
};

/* What a question gets.  With an address or a name, one record; otherwise none. */
struct dns_answer {
    enum dns_code code;
    uint32_t address;  /* of an A record; 0: none */
    const char *name;  /* of a PTR record, or NULL */
    bool is_forbidden; /* reported to clients that understand extended errors */
};

/* False if it is no question, and gets no reply. */
bool dns_read_question(const uint8_t *message, size_t len,
                       struct dns_question *ret_question);

/* The reply to this question; its length. */
size_t dns_write_reply(const uint8_t *message, const struct dns_question *question,
                       const struct dns_answer *answer,
                       uint8_t ret_reply[DNS_MESSAGE_MAX]);

/* A question to a nameserver, with extensions or for one that does not understand them;
 * its length. */
size_t dns_write_question(uint16_t id, const char *name, uint16_t type,
                          bool has_extensions, uint8_t ret_message[DNS_MESSAGE_MAX]);

struct dns_addresses {
    enum dns_code code;
    bool is_truncated;
    uint32_t ttl_s; /* the shortest */
    size_t count;
    struct network_address at[DNS_ADDRESSES_MAX];
};

/* False if it is not the reply to `question`, as dns_write_question() wrote it. */
bool dns_read_reply(const uint8_t *message, size_t len, const uint8_t *question,
                    size_t question_len, struct dns_addresses *ret_addresses);

/* The IPv4 address in a name for a PTR record ("4.3.2.1.in-addr.arpa"); 0: none. */
uint32_t dns_reverse_address(const char *name);

#endif
