/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TLS_HTTP_H
#define TLS_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "network/rules.h"

/* Requests of HTTP/1.1 from a hostile sandbox.  Everything that two servers may read in
 * two ways is refused: a second request that only the server sees would go unchecked.
 * Pure. */

enum {
    HTTP_HEAD_MAX = 16 << 10, /* bytes within which a head must be complete */
    HTTP_HEADERS_MAX = 128
};

/* A part of the head; not terminated. */
struct http_text {
    const char *at;
    size_t len;
};

struct http_header {
    struct http_text name, value; /* the value without the blanks around it */
};

enum http_body { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED };

struct http_request {
    size_t head_len;
    struct http_text method, target; /* the target begins with "/" */
    char host[NETWORK_NAME_MAX];     /* of the header Host, in its clean form */
    unsigned port;                   /* of that header; 0: none */
    enum http_body body;
    uint64_t body_len; /* of HTTP_BODY_LENGTH */
    size_t header_count;
    struct http_header headers[HTTP_HEADERS_MAX];
};

enum http_result { HTTP_MORE, HTTP_DONE, HTTP_BAD };

/* The first request in `bytes`, into which it points.  HTTP_BAD sets *ret_fault, one
 * sentence without its end. */
enum http_result http_read_request(const char *bytes, size_t len,
                                   struct http_request *ret_request,
                                   const char **ret_fault);

/* Without regard to case. */
bool http_is_name(const struct http_text *name, const char *lower);

/* The same for servers that take "_" for "-", as CGI does. */
bool http_is_like(const struct http_text *name, const char *other);

/* --- Bodies --- */

/* How far the body of a request has come. */
struct http_framing {
    enum http_body body;
    int step;      /* of a chunked body */
    uint64_t left; /* bytes of the body, or of the chunk */
    unsigned digits;
    bool is_done;
};

void http_framing_init(const struct http_request *request,
                       struct http_framing *ret_framing);

/* How many of the bytes belong to the body; -1: they are not one.  To be repeated until
 * `is_done`. */
ssize_t http_framing_take(struct http_framing *framing, const char *bytes, size_t len);

#endif
