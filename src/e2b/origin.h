/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_ORIGIN_H
#define E2B_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "cay/error.h"

/* The start of a URL: "https://api.example.com:8443/prefix", without a final slash. */
struct e2b_origin {
    char url[512];
    char host[256]; /* without the brackets of an IPv6 address */
    uint16_t port;
    bool is_tls;
    bool is_address; /* the host is an IP address: no lookup */
};

/* CAY_E_INVALID if the URL is not plain http or https.  A user name, query, fragment or
 * unusual character could send secrets to another host. */
int e2b_origin_parse(const char *url, const char *op, const char *field,
                     struct e2b_origin *ret_origin, struct cay_error *err);

/* True for a host name with an optional port. */
bool e2b_origin_is_domain(const char *text);

/* Looks up the host and writes its addresses in the format of CURLOPT_RESOLVE: libcurl
 * itself would start a thread.  Returns 0 or an error of getaddrinfo(3). */
int e2b_origin_resolve(const struct e2b_origin *origin, char *ret_entry, size_t room);

#endif
