/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_HELLO_H
#define RELAY_HELLO_H

#include <stddef.h>
#include <stdint.h>

#include "network/rules.h"

/* The host that a client names in its first bytes.  They come from a hostile sandbox.
 * Pure. */

enum { HELLO_MAX = 16 << 10 }; /* bytes within which it must be complete */

enum hello_kind {
    HELLO_MORE,  /* more bytes are needed */
    HELLO_TLS,   /* a ClientHello */
    HELLO_HTTP,  /* the head of a request of HTTP/1 */
    HELLO_OTHER, /* another protocol */
    HELLO_BAD    /* TLS or HTTP that peers may understand in different ways */
};

struct hello {
    enum hello_kind kind;
    char host[NETWORK_NAME_MAX]; /* in its clean form; "": it names none */
};

/* `host` is set for HELLO_TLS and HELLO_HTTP only. */
void hello_read(const uint8_t *bytes, size_t len, struct hello *ret_hello);

#endif
