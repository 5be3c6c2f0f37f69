/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_KEEPER_S3_H
#define SERVER_KEEPER_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cay/error.h"
#include "server/wire/bucket.h"

/* Requests to an S3-compatible store, one after the other, on one connection. */

enum {
    S3_HEX = 64,        /* SHA-256 */
    S3_TIME = 16,       /* "20130524T000000Z" */
    S3_REASON_MAX = 48, /* "SignatureDoesNotMatch" */
    S3_LIST_MAX = 4 << 20
};

/* --- Signatures: s3-sign.c --- */

/* What AWS Signature Version 4 covers.  `path` and `query` are encoded, and the
 * parameters of the query in order. */
struct s3_head {
    const char *method, *host, *path, *query;
    const char *time;   /* S3_TIME */
    const char *region; /* "us-east-1" */
    const char *digest; /* of the body, S3_HEX */
};

enum { S3_AUTHORIZATION_MAX = 512 };

/* The value of the header Authorization.  The other headers that it covers are Host,
 * X-Amz-Content-Sha256, X-Amz-Date, and X-Amz-Security-Token if there is a token. */
void s3_sign(const struct s3_head *head, const struct bucket_access *access,
             char ret_value[S3_AUTHORIZATION_MAX]);

/* The SHA-256 of these bytes, in hexadecimal digits. */
void s3_digest(const void *data, size_t len, char ret_hex[S3_HEX + 1]);

/* Appends the text as a value in a query. */
void s3_encode(struct buf *query, const char *text);

/* --- Replies: s3-xml.c --- */

/* Calls `note` with the text of each element that has no other element, in order, and
 * its path: "ListBucketResult/Contents/Key".  Only what S3 sends is XML here: elements,
 * attributes, which are skipped, text and its five entities.  False: it is anything else,
 * or `note` returned false. */
bool s3_read_xml(const char *text, size_t len,
                 bool (*note)(void *cookie, const char *path, const char *value),
                 void *cookie);

/* --- Requests: s3.c --- */

struct s3 {
    struct bucket bucket;
    struct bucket_access access;
    void *easy; /* CURL */
};

struct s3_request {
    const char *method; /* GET, PUT, DELETE */
    const char *key;    /* below the prefix; NULL: the bucket */
    const char *query;  /* NULL: none */
    bool is_new;        /* PUT: only if there is none */
    /* The body of PUT: `len` bytes at `data`, or of the file from its beginning. */
    const char *data;
    int from;
    uint64_t len;
    const char *digest; /* NULL: of `data` */
    /* Where that of a reply goes: to `body`, or to a file from its beginning if that is
     * NULL. */
    struct buf *body;
    int to;
};

/* Loads libcurl, and finds the credentials. */
int s3_open(const struct serve_options *options, struct s3 *ret_s3,
            struct cay_error *err);
void s3_close(struct s3 *s3);

/* Repeats what failed for a moment, up to S3_TRIES times.  CAY_E_NOT_FOUND: there is no
 * such key; CAY_E_EXISTS: there is one, with is_new.  CAY_E_UNAVAILABLE: the message and
 * the hint are for the operator; sys_errno is EHOSTUNREACH if the store could not be
 * reached, EAGAIN if it failed, ENOSYS if it cannot do this, EACCES if it refused the
 * credentials, and ENODEV if there is no such bucket. */
enum { S3_TRIES = 4 };
int s3_call(struct s3 *s3, const struct s3_request *request, struct cay_error *err);

#endif
