/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_MANAGER_H
#define SESSION_MANAGER_H

#include "session/store.h"

/* Theory of operation.
 *
 * Every change of a session's sandbox happens under the session's lock.  If two managers
 * start one session, the second waits, finds what the first has recorded, and connects to
 * it.
 *
 * The store is never ahead of reality, and no created sandbox is unknown to it.  A
 * sandbox is created under a mark that the ledger already has; then one transaction
 * records the sandbox and removes the mark; only then does the caller get it.  A mark
 * that is found under the lock was left by a crash: the caller never got that sandbox, so
 * it is removed.  A sandbox is removed first and its record afterwards; a record of a
 * missing sandbox means that there is none.  A pause or resume that was not recorded is
 * found by checking: the state in the store is what was last seen, and decides nothing.
 *
 * The no_wait calls run in a child (struct away), which never touches the store: SQLite
 * does not survive a fork.  The parent writes the mark, the child has the lock and
 * creates the sandbox, and the parent records it when the child reports.  If the parent
 * dies meanwhile, that is a crash during a start, as above. */

/* Work in a background process, which ends by itself, after ten minutes at the latest;
 * its parent may be gone by then. */
struct away {
    pid_t pid;
    int pidfd;
    int channel;
};
#define AWAY_NONE                                                                        \
    {                                                                                    \
        .pid = -1, .pidfd = -1, .channel = -1                                            \
    }

enum { AWAY_ID_MAX = 257 };

struct away_outcome {
    struct cay_error error; /* its code is CAY_OK if it went well */
    char id[AWAY_ID_MAX];   /* of the sandbox */
};

/* The child has one thread and a copy of the memory; it must not use its parent's
 * connections. */
int away_start(const char *op,
               void (*run)(void *cookie, struct away_outcome *ret_outcome), void *cookie,
               struct away *ret_away, struct cay_error *err);

/* Waits for its end, and fills in the outcome even if it was killed. */
void away_wait(struct away *away, const char *op, struct away_outcome *ret_outcome);

bool away_has_ended(const struct away *away);

struct asset {
    char *local, *inside;
};

struct cay_manager {
    cay_store *store; /* NULL: nothing is kept */
    char *user_id, *session_id;
    char *pool;               /* or NULL */
    const cay_config *config; /* the caller's, else own_config once it is known */
    cay_config *own_config;
    cay_sandbox *sandbox; /* a handle, or NULL */
    struct asset *assets;
    size_t asset_count;
    bool lacks_assets; /* the sandbox: to upload them has failed */
    enum { AWAY_NOTHING, AWAY_START, AWAY_PAUSE } pending;
    struct away
        away; /* the background process; none: the work is done when it is waited for */
    char away_mark[MARK_MAX]; /* AWAY_START: in the ledger, or "" */
};

enum { MANAGER_LOCK_MS = 600000 };

static inline void manager_unlock(cay_session_lock *const *lock)
{
    cay_session_lock_free(*lock);
}
#define AUTO_LOCK __attribute__((cleanup(manager_unlock))) cay_session_lock *

/* For calls whose failure may be ignored: `err` is unchanged on success. */
static inline int manager_report(const struct cay_error *own, struct cay_error *err)
{
    if (err)
        *err = *own;
    return own->code;
}

/* The stored session, NULL if there is none; free it with cay_free(). */
int manager_read(cay_manager *manager, struct cay_session **ret_stored,
                 struct cay_error *err);

/* Ensures that there is a configuration.  A stored one may lack values that are not known
 * here, which is enough for an existing sandbox; manager_complete() requires all values,
 * as a new sandbox does. */
int manager_configure(cay_manager *manager, const struct cay_session *stored,
                      struct cay_error *err);
int manager_complete(cay_manager *manager, struct cay_error *err);

/* The sandbox_id of the caller's configuration, or NULL.  That of a stored configuration
 * is ignored: the record has the current sandbox. */
const char *manager_configured_id(const cay_manager *manager);

/* Connects to the sandbox of a record, without resuming it if the backend can.
 * CAY_E_NOT_FOUND: it is gone; CAY_E_UNAVAILABLE: unknown. */
int manager_connect(const cay_manager *manager, const struct cay_session *stored,
                    cay_sandbox **ret_sandbox, struct cay_error *err);

void manager_drop(cay_manager *manager); /* the handle */
int manager_upload(const cay_manager *manager, cay_sandbox *sandbox,
                   struct cay_error *err);
int manager_supply(cay_manager *manager, struct cay_error *err); /* the handle's */

/* With the lock held: starts the sandbox and records it. */
int manager_start(cay_manager *manager, struct cay_error *err);
int manager_send_start(cay_manager *manager, cay_session_lock *lock,
                       struct cay_error *err);
int manager_finish_start(cay_manager *manager, const struct away_outcome *outcome,
                         struct cay_error *err);

/* With the lock held: removes sandboxes of this session that crashed starts have left. */
void manager_sweep(const cay_manager *manager);

#endif
