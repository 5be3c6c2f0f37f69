/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_HOSTS_H
#define RELAY_HOSTS_H

#include <stdint.h>

#include "relay/dns.h"

/* Each name that a sandbox may ask for has an address of its own, from 198.18.0.0/15,
 * which is never given to another name: the destination of a connection is a name. */

enum {
    HOSTS_MAX = 4096,
    HOSTS_FIRST = 0xC6120001 /* 198.18.0.1 */
};

struct named {
    char *name;
    uint64_t known_until_ms; /* how long `addresses` are valid; 0: not looked up yet */
    struct dns_addresses addresses;
};

struct hosts {
    struct named **at;
    size_t count, room;
    uint16_t *slots; /* 1 + an index into `at`, by the hash of the name */
    size_t slot_count;
};

/* The address of a clean name, which is added if it is new; 0: there are too many, or
 * memory is exhausted. */
uint32_t hosts_address(struct hosts *hosts, const char *name);

/* NULL: no name has this address. */
struct named *hosts_find(const struct hosts *hosts, uint32_t address);

#endif
