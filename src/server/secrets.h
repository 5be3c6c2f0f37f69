/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_SECRETS_H
#define SERVER_SECRETS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/registry.h"

/* What nobody but the broker has: the server's own key, of which each sandbox's tokens
 * are made, so that they need not be kept anywhere and outlive a restart. */

enum {
    SERVER_KEY = 32,
    TOKEN_MAX = 65, /* 64 hexadecimal digits */
    API_KEY_MAX = 64
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

/* --- API keys --- */

/* "e2b_" and 40 hexadecimal digits. */
int api_key_new(struct registry *registry, const char *tenant, char ret_key[API_KEY_MAX],
                struct cay_error *err);

/* One of that shape, of 20 to 59 digits, that is there after this. */
int api_key_add(struct registry *registry, const char *tenant, const char *key,
                struct cay_error *err);

/* Whose it is. */
int api_key_tenant(struct registry *registry, const char *key,
                   char ret_tenant[TENANT_MAX], struct cay_error *err);

/* The one that was made at the first start; `cay env` shows it. */
int api_key_default(struct registry *registry, const char *directory,
                    char ret_key[API_KEY_MAX], struct cay_error *err);

#endif
