/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_RECOVERY_H
#define SERVER_BROKER_RECOVERY_H

#include <limits.h>

#include "cay/sandbox.h"
#include "server/broker/registry.h"

/* A sandbox carries what its row says, as a note of the runtime (cay_sandbox_set_note()):
 * the store, the tenant, the template, when it was started, flags and metadata; no key,
 * no token, no environment.  So a store that was lost can be made again, and a sandbox
 * tells whose it is. */

struct recovery {
    char store[STORE_ID_MAX]; /* registry_identity() */
    char path[PATH_MAX];      /* of the store */
    struct record_row row;    /* without state and end */
};

#define AUTO_RECOVERY __attribute__((cleanup(recovery_done))) struct recovery
void recovery_done(struct recovery *recovery);

/* The strings of it; how many. */
uint32_t recovery_write(struct registry *registry, const struct record_row *row,
                        struct buf *strings);

/* That of a sandbox, of which the row gets its state and its end.  False if it has none,
 * or none of a server. */
bool recovery_read(const struct cay_sandbox_info *info, uint32_t max_timeout_s,
                   struct recovery *ret_recovery);

/* The time until a running sandbox ends.  PID 1 of the sandbox reports it, and is not
 * trusted: it is at most the largest timeout.  A sandbox without an end gets one. */
int64_t recovery_left_ms(const struct cay_sandbox_info *info, uint32_t max_timeout_s);

/* Whether a sandbox is of this store: of this file, or of one that was in its place. */
enum recovery_origin { RECOVERY_FOREIGN, RECOVERY_OF_STORE, RECOVERY_OF_PATH };
enum recovery_origin recovery_origin(struct registry *registry,
                                     const struct recovery *recovery);

/* Prints what is wrong with the store at `path`: its file, rows without sandboxes and
 * sandboxes without rows.  Fails if there is something; changes nothing. */
int recovery_check_store(const char *path, struct cay_error *err);

/* Moves a damaged store out of the way, to `ret_old`; "" if there is none, or it is
 * whole. CAY_E_BUSY: a server uses it. */
int recovery_set_aside(const char *path, char ret_old[PATH_MAX], struct cay_error *err);

/* Rows for the sandboxes of this store, or of one that was in its place, that have none;
 * and the keys of the old one, as far as it can be read.  Prints how many. */
int recovery_rebuild_store(struct registry *registry, const char *old,
                           uint32_t max_timeout_s, struct cay_error *err);

#endif
