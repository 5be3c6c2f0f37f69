/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NETWORK_ADDRESS_H
#define NETWORK_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct network_address {
    uint8_t len;       /* 4 or 16 */
    uint8_t bytes[16]; /* network order; the rest is zero */
};

struct network_addresses {
    const struct network_address *at;
    size_t count;
};

#define NETWORK_ADDRESS_TEXT 48 /* an address as text, including the NUL */

/* "192.0.2.1", "2001:db8::1"; no other spelling of IPv4. */
bool network_address_parse(const char *text, struct network_address *ret_address);
void network_address_format(const struct network_address *address,
                            char ret_text[NETWORK_ADDRESS_TEXT]);
bool network_address_equal(const struct network_address *one,
                           const struct network_address *other);

/* Whether the first `bits` of both are the same; false for two families. */
bool network_address_within(const struct network_address *address,
                            const struct network_address *range, unsigned bits);

/* Clears all but the first `bits`. */
void network_address_mask(struct network_address *address, unsigned bits);

/* A range that leads to no public host. */
struct network_class {
    struct network_address range;
    uint8_t bits;
    uint8_t opens;    /* the shortest prefix of a rule that opens it; 255: none does */
    uint8_t embedded; /* the offset of an IPv4 address within, or 0 */
    const char *text; /* "10.0.0.0/8" */
    const char *what; /* "private" */
};

/* The first class that an address is in, or NULL: it is public. */
const struct network_class *network_class_find(const struct network_address *address);

#endif
