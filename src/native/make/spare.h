/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_SPARE_H
#define NATIVE_MAKE_SPARE_H

#include "native/make/create.h"
#include "native/make/root-plan.h"

/* A spare is a sandbox of a pool that is ready before it is requested.  Its PID 1 serves
 * no request until it is claimed, and ends with the pool until then.
 *
 * It is offered by an empty file in the runtime directory, "spares/KEY-ID".  KEY is a
 * hash of the pool's name and of everything that cannot be changed in a running sandbox:
 * the root, the mounts, the kind of network, the isolation level, the disk limit, and
 * what a sandbox inherits from its creator.  A process that removes the offer has claimed
 * the spare: unlink(2) succeeds for one process only.  All else comes with the claim:
 * limits, name, environment, user, working directory, time to live, network rules.
 *
 *   claim                               if the claiming process is killed after it
 *   unlink the offer                    the pool ends the spare, see pool.c
 *   set limits, claim the name, save    the same
 *   send the network rules to cay-net   the same
 *   send CLAIM to PID 1                 it is a sandbox like any other; an ephemeral one
 *                                       ends, since its leash is closed
 *
 * No reply to CLAIM is awaited if the pool still runs after it was sent: PID 1 ends one
 * second after the pool, so it gets it.
 *
 * A claimed sandbox is killed by its owner, and the pool removes its mounts, its cgroups
 * and its record a few milliseconds later; if the pool has ended, the owner does that.
 */

struct spare_key {
    char text[17];
};

enum { SPARE_OFFER_MAX = sizeof((struct spare_key *)0)->text + CAY_ID_MAX };

/* The offers, while they are read: without opendir(3), which allocates 32 KiB. */
struct spare_offers {
    int fd;
    long at, len; /* of the entries */
    char next[SPARE_OFFER_MAX];
    uint64_t entries[256];
};

/* False if sandboxes with these options cannot be made ahead: on disk, without
 * namespaces, with a policy.  The options are complete, see preflight_options(). */
bool spare_key(const struct cay_sandbox_options *options,
               const struct root_sources *sources, struct spare_key *ret_key);

int spare_offer(const struct spare_key *key, const char *id, struct cay_error *err);

/* False if it is claimed already. */
bool spare_withdraw(const struct spare_key *key, const char *id);
bool spare_is_offered(const struct spare_key *key, const char *id);

/* False if there is no offer at all, which takes less time to find out than a key. */
bool spare_open_offers(struct spare_offers *ret_offers);
void spare_close_offers(struct spare_offers *offers);

/* Claims a spare with this key; false if there is none. */
bool spare_take(struct spare_offers *offers, const struct spare_key *key,
                char ret_id[CAY_ID_MAX]);

/* Whether the pool that made this sandbox runs.  It has removed its status file before it
 * ends its spares and removes for the last time what is left of its sandboxes. */
#define SPARE_POOLS "pools"
bool spare_has_pool(const struct record *record);

/* Removes offers of sandboxes without a record, and the files of pools that were killed.
 */
void spare_sweep(void);

#endif
