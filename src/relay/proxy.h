/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_PROXY_H
#define RELAY_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "network/rules.h"

/* Requests to cay-net as a proxy of HTTP, for programs with HTTP_PROXY: "CONNECT
 * host:443" and "GET http://host/path".  They come from a hostile sandbox.  Pure. */

enum { PROXY_PORT = 3128 }; /* on the address of the nameserver inside */

enum proxy_kind {
    PROXY_MORE,    /* more bytes are needed */
    PROXY_CONNECT, /* bytes follow in both directions */
    PROXY_FORWARD, /* one request */
    PROXY_BAD
};

struct proxy_request {
    char name[NETWORK_NAME_MAX];    /* in its clean form; "": it is an address */
    struct network_address address; /* len 0: it is a name */
    uint16_t port;
    size_t head_len;
};

enum proxy_kind proxy_read(const uint8_t *bytes, size_t len,
                           struct proxy_request *ret_request);

/* The bytes of a PROXY_FORWARD as the server gets them: the path alone, Host from the
 * target, and no connection that outlives the reply, since the client could send requests
 * for other hosts on it. */
bool proxy_rewrite(const uint8_t *bytes, size_t len, const struct proxy_request *request,
                   struct buf *ret_bytes);

#endif
