/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_STORE_H
#define SERVER_BROKER_STORE_H

#include <limits.h>

#include "server/broker/registry.h"

/* Prints what is wrong with the store at `path`: its file, rows without sandboxes and
 * sandboxes without rows.  Fails if there is something; changes nothing. */
int store_check(const char *path, struct cay_error *err);

/* Moves a damaged store out of the way, to `ret_old`; "" if there is none, or it is
 * whole. CAY_E_BUSY: a server uses it. */
int store_set_aside(const char *path, char ret_old[PATH_MAX], struct cay_error *err);

/* Rows for the sandboxes of this store, or of one that was in its place, that have none;
 * and the keys of the old one, as far as it can be read.  Prints how many. */
int store_rebuild(struct registry *registry, const char *old, uint32_t max_timeout_s,
                  struct cay_error *err);

#endif
