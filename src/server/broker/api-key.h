/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_API_KEY_H
#define SERVER_BROKER_API_KEY_H

#include "server/broker/registry.h"

enum { API_KEY_MAX = 64 };

/* "e2b_" and 40 hexadecimal digits. */
int api_key_new(struct registry *registry, const char *tenant, char ret_key[API_KEY_MAX],
                struct cay_error *err);

/* One of that shape, of 20 to 59 digits, that is there after this. */
int api_key_add(struct registry *registry, const char *tenant, const char *key,
                struct cay_error *err);

/* Whose it is. */
int api_key_tenant(struct registry *registry, const char *key,
                   char ret_tenant[TENANT_MAX], struct cay_error *err);

/* Makes the default key, if there is one, known to a store that is new. */
int api_key_adopt(struct registry *registry, const char *directory,
                  struct cay_error *err);

/* The one that was made at the first start, for `cay env`: none is made. */
int api_key_find(struct registry *registry, const char *directory,
                 char ret_key[API_KEY_MAX], struct cay_error *err);

/* The same; it is made if there is none. */
int api_key_default(struct registry *registry, const char *directory,
                    char ret_key[API_KEY_MAX], struct cay_error *err);

#endif
