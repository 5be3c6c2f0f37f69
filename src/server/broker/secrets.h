/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_SECRETS_H
#define SERVER_BROKER_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cay/error.h"

/* What nobody but the broker has: the server's own key, of which each sandbox's tokens
 * are made, so that they need not be kept anywhere and outlive a restart. */

enum {
    SERVER_KEY = 32,
    TOKEN_MAX = 65 /* 64 hexadecimal digits */
};

struct secrets {
    unsigned char key[SERVER_KEY];
};

/* Reads it from `directory`, or makes it, 0600. */
int secrets_open(const char *directory, struct secrets *ret_secrets,
                 struct cay_error *err);

enum token_kind { TOKEN_ENVD = 1, TOKEN_TRAFFIC = 2 };

void secrets_token(const struct secrets *secrets, enum token_kind kind, const char *id,
                   uint32_t version, char ret_token[TOKEN_MAX]);

/* In a time that does not tell how much of it is right. */
bool secrets_are_equal(const char *given, const char *right);

/* "v1_" and the digest of what a signed URL is for. */
enum { SIGNATURE_MAX = 64 };
void secrets_signature(const char *path, const char *operation, const char *user,
                       const char *token, int64_t expires,
                       char ret_signature[SIGNATURE_MAX]);

/* --- What is made of them --- */

int secrets_draw(void *bytes, size_t len, struct cay_error *err); /* at random */
void secrets_to_hex(const unsigned char *bytes, size_t len, char *text);

enum { HASH = 32 };
void secrets_hash(const char *text, unsigned char digest[HASH]);

/* Files that only we read.  1 if it was read, 0 if there is none, or a code. */
int secrets_read_private(const char *path, const char *name, void *bytes, size_t len,
                         struct cay_error *err);

/* Whole or not at all; who is second takes what the first has made. */
int secrets_write_private(const char *directory, const char *name, const void *bytes,
                          size_t len, struct cay_error *err);

#endif
