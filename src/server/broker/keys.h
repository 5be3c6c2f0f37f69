/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_KEYS_H
#define SERVER_BROKER_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "cay/error.h"
#include "server/broker/registry.h"

/* What the store has of API keys besides their tenants: names, and which of them are
 * admin keys.  An admin key may manage the keys of all tenants over HTTP; only `cay key`
 * creates one. */

enum { KEY_ID_MAX = 37 /* includes the NUL */ };

/* The id for clients: the first half of the hash, in the form of a UUID.  Unlike a number
 * it is never that of another key. */
void keys_id(const unsigned char hash[KEY_HASH], char ret_id[KEY_ID_MAX]);

bool keys_is_admin(struct registry *registry, const unsigned char hash[KEY_HASH]);

/* Adds or changes the facts of a key.  Valid UTF-8 without control characters. */
int keys_describe(struct registry *registry, const unsigned char hash[KEY_HASH],
                  const char *name, bool is_admin, struct cay_error *err);

/* CAY_E_NOT_FOUND: the tenant has no key with this id. */
int keys_find(struct registry *registry, const char *tenant, const char *id,
              struct key_row *ret_row, struct cay_error *err);

int keys_remove(struct registry *registry, const unsigned char hash[KEY_HASH],
                struct cay_error *err);

struct tenant_row {
    char name[TENANT_MAX];
    int64_t keys, running, paused;
};

/* Tenants with keys or sandboxes, by name; `visit` returns false to stop. */
int keys_visit_tenants(struct registry *registry,
                       bool (*visit)(const struct tenant_row *row, void *cookie),
                       void *cookie, struct cay_error *err);

#endif
