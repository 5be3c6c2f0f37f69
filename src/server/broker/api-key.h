/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_API_KEY_H
#define SERVER_BROKER_API_KEY_H

#include "server/broker/registry.h"

enum { API_KEY_MAX = 64 };

/* "e2b_" and 40 hexadecimal digits. */
int api_key_new(struct registry *registry, const char *tenant, char ret_key[API_KEY_MAX],
                struct cay_error *err);

/* Adds a key of that form, with 20 to 59 digits, unless it exists. */
int api_key_add(struct registry *registry, const char *tenant, const char *key,
                struct cay_error *err);

/* The tenant that a key belongs to. */
int api_key_tenant(struct registry *registry, const char *key,
                   char ret_tenant[TENANT_MAX], struct cay_error *err);

/* Adds the existing default key, if there is one, to a new store. */
int api_key_adopt(struct registry *registry, const char *directory,
                  struct cay_error *err);

/* The default key, which the first start of the server created; for `cay env`. */
int api_key_find(struct registry *registry, const char *directory,
                 char ret_key[API_KEY_MAX], struct cay_error *err);

/* The same, but creates it if there is none. */
int api_key_default(struct registry *registry, const char *directory,
                    char ret_key[API_KEY_MAX], struct cay_error *err);

#endif
