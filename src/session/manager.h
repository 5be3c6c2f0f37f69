/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_MANAGER_H
#define SESSION_MANAGER_H

#include "session/away.h"
#include "session/ledger.h"

/* Theory of operation.
 *
 * Whatever changes a session's sandbox happens under the session's lock.  Of two managers
 * that start one session the second waits, finds what the first has recorded, and
 * connects to it.
 *
 * What the store says is never ahead of what is there, and what a manager has made is
 * never unknown to it.  A sandbox is made under a mark that the ledger has already; it is
 * recorded, and the mark struck out, in one transaction; only then is the caller told.
 * A mark that is found under the lock was left by a crash: nobody was told of that
 * sandbox, so it is removed.  A sandbox is removed first and forgotten then; a record of
 * one that is gone means that there is none.  A pause or resume that was not recorded is
 * found by looking: the state in the store is what was last seen, and decides nothing.
 *
 * What is done without waiting is done by a child (away.h), which never touches the
 * store: SQLite does not survive a fork.  The parent writes the mark, the child holds the
 * lock and makes the sandbox, and the parent records it when it hears of it.  A parent
 * that dies meanwhile has crashed in the middle of a start, as above. */

struct asset {
    char *local, *inside;
};

struct cay_manager {
    cay_store *store; /* NULL: nothing is kept */
    char *user_id, *session_id;
    const cay_config *config; /* the caller's, else own_config once it is known */
    cay_config *own_config;
    cay_sandbox *sandbox; /* a handle, or NULL */
    struct asset *assets;
    size_t asset_count;
    bool lacks_assets; /* the sandbox: to upload them has failed */
    enum { AWAY_NOTHING, AWAY_START, AWAY_PAUSE } errand;
    struct away away; /* on that errand; none: it is left to be done when asked for */
    char away_mark[MARK_MAX]; /* AWAY_START: in the ledger, or "" */
};

enum { MANAGER_LOCK_MS = 600000 };

static inline void manager_unlock(cay_session_lock *const *lock)
{
    cay_session_lock_free(*lock);
}
#define AUTO_LOCK __attribute__((cleanup(manager_unlock))) cay_session_lock *

/* For calls whose failure may be none of ours: `err` is left alone on success. */
static inline int manager_tell(const struct cay_error *own, struct cay_error *err)
{
    if (err)
        *err = *own;
    return own->code;
}

/* The session as it is stored, NULL if it is not; cay_free() it. */
int manager_read(cay_manager *manager, struct cay_session **ret_stored,
                 struct cay_error *err);

/* Sees to it that there is a configuration: a stored one may lack values that are not
 * known here, which does for a sandbox that exists.  With the other it has them all, as a
 * new one needs it. */
int manager_configure(cay_manager *manager, const struct cay_session *stored,
                      struct cay_error *err);
int manager_complete(cay_manager *manager, struct cay_error *err);

/* The id of the sandbox that the caller's configuration names, or NULL.  What a stored
 * one names was the wish of another day: the record says which sandbox it is now. */
const char *manager_wish(const cay_manager *manager);

/* Reaches the sandbox of a record, without letting it run where that can be had.
 * CAY_E_NOT_FOUND: it is gone; CAY_E_UNAVAILABLE: nobody here knows. */
int manager_look(const cay_manager *manager, const struct cay_session *stored,
                 cay_sandbox **ret_sandbox, struct cay_error *err);

void manager_drop(cay_manager *manager); /* the handle */
int manager_upload(const cay_manager *manager, cay_sandbox *sandbox,
                   struct cay_error *err);
int manager_supply(cay_manager *manager, struct cay_error *err); /* the handle's */

/* With the lock held: makes it run, and record it. */
int manager_start(cay_manager *manager, struct cay_error *err);
int manager_send_start(cay_manager *manager, cay_session_lock *lock,
                       struct cay_error *err);
int manager_finish_start(cay_manager *manager, const struct away_outcome *outcome,
                         struct cay_error *err);

/* With the lock held: removes what starts of this session that crashed have left. */
void manager_sweep(const cay_manager *manager);

#endif
