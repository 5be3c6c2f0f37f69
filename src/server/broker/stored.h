/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_STORED_H
#define SERVER_BROKER_STORED_H

#include "server/broker/secrets.h"

/* Stored secrets: values in the store, sealed with a key that is derived from the
 * server's key, each for one tenant.  A sealed value is valid for its tenant, id and
 * version only. */

enum {
    STORED_TEXT_MIN = 8,
    STORED_TEXT_MAX = 4096,
    STORED_OPEN_MAX = STORED_TEXT_MAX + 1
};

enum stored_mode { STORED_NEW = 1, STORED_CHANGE = 2, STORED_EITHER = 3 };

/* Names are stored in lower case.  `metadata`: key, value, ... as in the row, or NULL: as
 * before.  No error contains the value. */
struct stored_change {
    const char *tenant, *name; /* for STORED_CHANGE, or an id */
    const char *value;
    const struct buf *metadata;
    enum stored_mode mode;
};

int stored_set(struct registry *registry, const struct secrets *secrets,
               const struct stored_change *change, struct stored_row *ret_row,
               struct cay_error *err);

/* Seals bytes with a key for this label, which says what they are; replaces the content
 * of *ret_sealed. */
int stored_seal(const struct secrets *secrets, const char *label, const void *data,
                size_t len, struct buf *ret_sealed, struct cay_error *err);
/* Replaces sealed bytes by what they were; false if they were sealed with another key or
 * for another label. */
bool stored_unseal(const struct secrets *secrets, const char *label, struct buf *sealed);

/* The value of a secret; the caller wipes it. */
int stored_open(struct registry *registry, const struct secrets *secrets,
                const char *tenant, const char *which, char ret_value[STORED_OPEN_MAX],
                struct cay_error *err);

#endif
