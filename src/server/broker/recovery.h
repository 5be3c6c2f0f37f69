/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_RECOVERY_H
#define SERVER_BROKER_RECOVERY_H

#include <limits.h>

#include "cay/sandbox.h"
#include "server/broker/registry.h"

/* A copy of the row that a sandbox carries as its note (cay_sandbox_set_note()): store,
 * tenant, template, start, flags and metadata, but no key, token or environment.  With it
 * a lost store can be rebuilt, and the owner of a sandbox can be found. */

struct recovery {
    char store[STORE_ID_MAX]; /* registry_identity() */
    char path[PATH_MAX];      /* path of the store */
    struct record_row row;    /* without state and end */
};

#define AUTO_RECOVERY __attribute__((cleanup(recovery_done))) struct recovery
void recovery_done(struct recovery *recovery);

/* Writes the strings of the note, and returns their number. */
uint32_t recovery_write(struct registry *registry, const struct record_row *row,
                        struct buf *strings);

/* Reads the note of a sandbox; state and end of the row come from the sandbox.  False if
 * it has no note of a server. */
bool recovery_read(const struct cay_sandbox_info *info, uint32_t max_timeout_s,
                   struct recovery *ret_recovery);

/* Time until a running sandbox ends.  PID 1 of the sandbox reports it and is not trusted,
 * so it is at most the longest timeout.  A sandbox without a TTL gets a default. */
int64_t recovery_left_ms(const struct cay_sandbox_info *info, uint32_t max_timeout_s);

/* Whether a sandbox belongs to this store, or to an earlier one at the same path. */
enum recovery_origin { RECOVERY_FOREIGN, RECOVERY_OF_STORE, RECOVERY_OF_PATH };
enum recovery_origin recovery_origin(struct registry *registry,
                                     const struct recovery *recovery);

/* Prints problems of the store at `path`: of its file, rows without a sandbox, and
 * sandboxes without a row.  Fails if there are any; changes nothing. */
int recovery_check_store(const char *path, struct cay_error *err);

/* Renames a damaged store to `ret_old`; "" if there is none or it is intact. CAY_E_BUSY:
 * a server is using it. */
int recovery_set_aside(const char *path, char ret_old[PATH_MAX], struct cay_error *err);

/* Adds missing rows for the sandboxes of this store or of an earlier one at its path, and
 * the keys of the old store as far as they can be read.  Prints how many. */
int recovery_rebuild_store(struct registry *registry, const char *old,
                           uint32_t max_timeout_s, struct cay_error *err);

#endif
