/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_BUCKET_H
#define SERVER_WIRE_BUCKET_H

#include <stdbool.h>

#include "server/wire/options.h"

/* --shared s3://BUCKET[/PREFIX]: where the store is, and who may use it. */

bool bucket_is(const char *shared);

struct bucket {
    char endpoint[320]; /* "https://s3.eu-west-1.amazonaws.com" */
    const char *host; /* in it: "s3.eu-west-1.amazonaws.com", with a port that is given */
    char path[64 + 264]; /* "/BUCKET" */
    char prefix[264];    /* of all keys: "", or "PREFIX/" */
    char region[64];
    bool is_plain;  /* http */
    bool is_remote; /* not on loopback */
};

/* CAY_E_INVALID unless the options name a valid place. */
int bucket_parse(const struct serve_options *options, struct bucket *ret_bucket,
                 struct cay_error *err);

/* What requests are signed with: of the file, else of the environment (AWS_ACCESS_KEY_ID,
 * AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN).  Erase it after use. */
struct bucket_access {
    char key[160], secret[256], token[4096]; /* token "": none */
};
int bucket_find_access(const struct serve_options *options,
                       struct bucket_access *ret_access, struct cay_error *err);

/* Moves the variables of the environment to memory that bucket_drop_access() unmaps in a
 * process that has sandboxes or clients; a file stays closed until it is needed. */
int bucket_take_access(const struct serve_options *options, struct cay_error *err);
void bucket_drop_access(void);

#endif
