/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_SECRETS_H
#define SERVER_BROKER_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cay/error.h"

/* The server's key, which only the broker has.  The tokens of each sandbox are derived
 * from it, so they need not be stored and survive a restart. */

enum {
    SERVER_KEY = 32,
    TOKEN_MAX = 65 /* 64 hexadecimal digits */
};

struct secrets {
    unsigned char key[SERVER_KEY];
};

/* Reads the key from `directory`, or creates it with mode 0600. */
int secrets_open(const char *directory, struct secrets *ret_secrets,
                 struct cay_error *err);

enum token_kind { TOKEN_ENVD = 1, TOKEN_TRAFFIC = 2 };

void secrets_token(const struct secrets *secrets, enum token_kind kind, const char *id,
                   uint32_t version, char ret_token[TOKEN_MAX]);

/* In constant time. */
bool secrets_are_equal(const char *given, const char *right);

/* "v1_" and the digest that signs a URL. */
enum { SIGNATURE_MAX = 64 };
void secrets_signature(const char *path, const char *operation, const char *user,
                       const char *token, int64_t expires,
                       char ret_signature[SIGNATURE_MAX]);

/* --- Helpers --- */

int secrets_draw(void *bytes, size_t len, struct cay_error *err); /* random bytes */
void secrets_to_hex(const unsigned char *bytes, size_t len, char *text);

enum { HASH = 32 };
void secrets_hash(const char *text, unsigned char digest[HASH]);

/* Files with mode 0600.  Returns 1 if it was read, 0 if there is none, or an error code.
 */
int secrets_read_private(const char *path, const char *name, void *bytes, size_t len,
                         struct cay_error *err);

/* Atomic; keeps the file of another process that was faster. */
int secrets_write_private(const char *directory, const char *name, const void *bytes,
                          size_t len, struct cay_error *err);

#endif
