/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_SECRETS_H
#define SERVER_BROKER_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/broker/registry.h"

/* The server's key, which only the broker has.  The tokens of each sandbox are derived
 * from it, so they need not be stored and survive a restart. */

enum {
    SERVER_KEY = 32,
    TOKEN_MAX = 65 /* 64 hexadecimal digits */
};

/* Tokens are made with the first key and accepted with each of them, so that a key can be
 * replaced.  Several servers may share these keys; `seal`, for values in the store, is
 * always the server's own. */
enum { SERVER_KEYS = 2 };
struct secrets {
    unsigned char keys[SERVER_KEYS][SERVER_KEY];
    unsigned count;
    unsigned char seal[SERVER_KEY];
};

/* Reads serve.key from `directory`, or creates it with mode 0600. */
int secrets_open(const char *directory, struct secrets *ret_secrets,
                 struct cay_error *err);

/* Replaces the keys by those of a file: the 32 bytes of a serve.key, or one or two lines
 * of 64 hexadecimal digits, the present key and the one before.  It may be a symbolic
 * link. */
int secrets_read_keys(const char *path, struct secrets *secrets, struct cay_error *err);

enum token_kind {
    TOKEN_ENVD = 1,
    TOKEN_TRAFFIC = 2,
    TOKEN_VOLUME = 3,
    TOKEN_UPLOAD = 4,
    TOKEN_SESSION = 5
};

void secrets_token(const struct secrets *secrets, enum token_kind kind, const char *id,
                   uint32_t version, char ret_token[TOKEN_MAX]);

/* The same with key number `i`. */
void secrets_token_by(const struct secrets *secrets, unsigned i, enum token_kind kind,
                      const char *id, uint32_t version, char ret_token[TOKEN_MAX]);
/* Whether it is the token by one of the keys. */
bool secrets_is_token(const struct secrets *secrets, enum token_kind kind, const char *id,
                      uint32_t version, const char *given);

/* In constant time. */
bool secrets_are_equal(const char *given, const char *right);

/* "v1_" and the digest that signs a URL. */
enum { SIGNATURE_MAX = 64 };
void secrets_signature(const char *path, const char *operation, const char *user,
                       const char *token, int64_t expires,
                       char ret_signature[SIGNATURE_MAX]);

/* --- API keys --- */

enum { API_KEY_MAX = 64 };

/* "e2b_" and 40 random hexadecimal digits. */
int secrets_draw_key(char ret_key[API_KEY_MAX], struct cay_error *err);

/* The same, and adds it. */
int secrets_new_key(struct registry *registry, const char *tenant,
                    char ret_key[API_KEY_MAX], struct cay_error *err);

/* Adds a key of that form, with 20 to 59 digits, unless it exists. */
int secrets_add_key(struct registry *registry, const char *tenant, const char *key,
                    struct cay_error *err);

/* What the store has of a key. */
void secrets_hash_key(const char *key, unsigned char ret_hash[KEY_HASH]);
/* As hexadecimal digits. */
void secrets_hash_text(const unsigned char hash[KEY_HASH],
                       char ret_text[2 * KEY_HASH + 1]);

/* The tenant that a key belongs to. */
int secrets_key_tenant(struct registry *registry, const char *key,
                       char ret_tenant[TENANT_MAX], struct cay_error *err);

/* Adds the existing default key, if there is one, to a new store. */
int secrets_adopt_key(struct registry *registry, const char *directory,
                      struct cay_error *err);

/* The default key, which the first start of the server created; for `cay env`. */
int secrets_find_key(struct registry *registry, const char *directory,
                     char ret_key[API_KEY_MAX], struct cay_error *err);

/* The same, but creates it if there is none. */
int secrets_default_key(struct registry *registry, const char *directory,
                        char ret_key[API_KEY_MAX], struct cay_error *err);

#endif
