/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_MEMBERS_H
#define NATIVE_RECORD_MEMBERS_H

#include "native/record/runtime.h"
#include "relay/relay.h"

/* Members of this user's named networks: symbolic links in the runtime directory from
 * "networks/NETWORK:NAME" to "ID", or to "ID+" until the member is connected with all
 * others.  A link is valid as long as the sandbox runs. */

struct members {
    struct relay_join *at;
    bool *is_pending; /* its creator has not connected it yet, or has died meanwhile */
    size_t count;
};

/* "NETWORK" or "NETWORK:NAME"; without a name it is that of the sandbox.  CAY_E_INVALID,
 * with what is allowed. */
int members_parse(const char *text, const char *sandbox, struct relay_join *ret_join,
                  struct cay_error *err);

/* The next word of a text with blanks between them, as in a record; false at the end. */
bool members_next(const char **text, char ret_word[CAY_NETWORKS_MAX]);

/* The directory, locked until the descriptor is closed, or a code. */
int members_lock(struct cay_error *err);

/* The members of a network; entries of ended sandboxes are removed.  To be freed also on
 * failure. */
int members_load(int dir, const char *network, struct members *ret_members,
                 struct cay_error *err);
void members_done(struct members *members);

/* CAY_E_EXISTS: another member has this name. */
int members_claim(int dir, const struct relay_join *join, struct cay_error *err);

/* The member is connected with all others. */
int members_confirm(int dir, const struct relay_join *join, struct cay_error *err);

/* The entries of the record. */
void members_release(const struct record *record);

/* Removes entries of ended sandboxes. */
void members_sweep(void);

#endif
