/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TLS_SECRET_H
#define TLS_SECRET_H

#include "base/buf.h"
#include "tls/http.h"

/* Secrets: inside there is a placeholder, which is replaced in requests to the hosts of
 * the secret, over verified TLS, in the places that it names.  Pure.
 *
 * The serialised form is text, and its reader the only parser:
 *     NAME<tab>PLACEHOLDER<tab>VALUE
 *     <tab>HOST[:WAY[,WAY]...]
 * WAY is bearer, basic, query or header=NAME; without one it is bearer and basic.
 * Headers that are set in every request to a host, and secret parts of their values:
 *     +HOST<tab>NAME<tab>VALUE
 *     *PART */

enum {
    SECRETS_MAX = 32,
    SECRET_USES_MAX = 128, /* of all secrets */
    SECRET_NAME_MAX = 128, /* including the NUL */
    SECRET_VALUE_MIN = 8,  /* a shorter one is in every reply */
    SECRET_VALUE_MAX = 4096,
    SECRETS_TEXT_MAX = 64 << 10,
    SECRET_HEADERS_MAX = 256,
    SECRET_PARTS_MAX = 64, /* of all headers */
    SECRET_HEADER_VALUE_MAX = 8 << 10
};

enum secret_way {
    SECRET_BEARER =
        1 << 0, /* "Authorization: Bearer ..." and "Authorization: token ..." */
    SECRET_BASIC = 1 << 1,
    SECRET_QUERY = 1 << 2,
    SECRET_HEADER = 1 << 3
};

struct secret_use {
    char host[NETWORK_NAME_MAX];
    unsigned ways;
    const char *header; /* of SECRET_HEADER */
};

struct secret {
    const char *name, *placeholder, *value;
    size_t use_count;
    const struct secret_use *uses;
};

struct secret_header {
    char host[NETWORK_NAME_MAX];
    const char *name, *value;
    size_t part_count;
    const char *const *parts;
};

struct secrets {
    char *text; /* what the others point into */
    size_t count, use_count, header_count, part_count;
    struct secret at[SECRETS_MAX];
    struct secret_use uses[SECRET_USES_MAX];
    struct secret_header headers[SECRET_HEADERS_MAX];
    const char *parts[SECRET_PARTS_MAX];
};

/* CAY_E_INVALID names the secret and what is allowed instead, never a value. */
int secrets_read(const char *text, size_t len, struct secrets **ret_secrets,
                 struct cay_error *err);
void secrets_free(struct secrets *secrets); /* NULL is allowed */

/* Whether some secret is for this host. */
bool secrets_has_host(const struct secrets *secrets, const char *host);

/* --- Masks --- */

enum {
    SECRET_MASK_FORMS = 4, /* of one text: see secret_mask_add() */
    SECRET_MASKS_MAX = SECRET_MASK_FORMS * (SECRETS_MAX + SECRET_PARTS_MAX + 16),
    SECRET_TAIL_LONG = 4 /* bytes of a value that are no accident */
};

/* What must not be in replies: values, and the encoded forms that were sent. */
struct secret_mask {
    size_t count;
    char *at[SECRET_MASKS_MAX];
};

/* Adds the text, and how it looks percent-encoded or in JSON. */
bool secret_mask_add(struct secret_mask *mask, const char *text, size_t len);
void secret_mask_done(struct secret_mask *mask);

/* The end of the bytes so far, if it may be the beginning of a value. */
struct secret_tail {
    struct buf bytes;
    struct buf stars; /* one byte for each: whether it belongs to a value */
    size_t sent;      /* the first ones, which have left and still count */
};

void secret_tail_init(struct secret_tail *ret_tail);
void secret_tail_done(struct secret_tail *tail);

/* Appends bytes of a reply to `out`, with each value replaced by as many "*", except
 * those that stay in `tail`.  False if memory is exhausted. */
bool secret_mask_feed(const struct secret_mask *mask, const char *bytes, size_t len,
                      struct secret_tail *tail, struct buf *out);

/* Appends those, too: now, or after the last byte of the reply, when a part of a value
 * that is as long as the shortest value is masked. */
void secret_tail_release(struct secret_tail *tail, bool is_last, struct buf *out);
size_t secret_tail_waiting(const struct secret_tail *tail);

/* --- Requests --- */

/* One request that is being written. */
struct secret_edit {
    const struct secrets *secrets, *headers;
    const char *host;
    bool is_tls;
    struct secret_mask *mask;
    const struct secret *used; /* NULL: none so far */
    char fault[256];           /* why it must be refused; "": it need not */
};

/* Before the others: adds the masks of the headers that are set. */
bool secret_begin(struct secret_edit *edit);

/* Whether such a header takes the place of this one. */
bool secret_is_replaced(const struct secret_edit *edit, const struct http_header *header);
void secret_put_headers(const struct secret_edit *edit, struct buf *out);

/* Both append the text as it leaves; false if it must be refused. */
bool secret_put_target(struct secret_edit *edit, const struct http_text *target,
                       struct buf *out);
bool secret_put_value(struct secret_edit *edit, const struct http_header *header,
                      struct buf *out);

#endif
