/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_ORIGIN_H
#define E2B_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "cay/error.h"

/* Where requests go: "https://api.example.com:8443/prefix", with no slash at its end. */
struct e2b_origin {
    char url[512];
    char host[256]; /* without the brackets of an IPv6 address */
    uint16_t port;
    bool is_tls;
    bool is_address; /* no name to look up */
};

/* CAY_E_INVALID for all but plain http and https addresses: a user name, query or
 * fragment, or odd characters, could send secrets elsewhere. */
int e2b_origin_parse(const char *url, const char *op, const char *field,
                     struct e2b_origin *ret_origin, struct cay_error *err);

/* Whether this is a host name with at most a port: what a URL can be made of. */
bool e2b_origin_is_domain(const char *text);

/* The name's addresses, as CURLOPT_RESOLVE wants them.  libcurl would start a thread for
 * this.  0 or a code of getaddrinfo(3). */
int e2b_origin_resolve(const struct e2b_origin *origin, char *ret_entry, size_t room);

#endif
