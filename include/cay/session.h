/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_SESSION_H
#define CAY_SESSION_H

#include "cay/agent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* State that outlives the process: which sandbox belongs to which session, and the
 * manager that starts, pauses, restores and stops it. */

/* --- The store ------------------------------------------------------------------------
 */

typedef struct cay_store cay_store;

/* A SQLite database, for several processes at once.  NULL: cay.db below $CAY_HOME, else
 * /var/lib/cay for root, $XDG_STATE_HOME/cay otherwise.  ":memory:" is this process's
 * own.  Made if it is not there, mode 0600, in a directory that only this user may write
 * to; an older one is migrated; a newer one is CAY_E_UNSUPPORTED, a damaged one CAY_E_IO.
 * A handle may be used from several threads, but not after a fork: CAY_E_INVALID. */
CAY_PUBLIC CAY_NODISC int cay_store_open(const char *path, cay_store **ret_store,
                                         struct cay_error *err);
CAY_PUBLIC void cay_store_free(cay_store *store); /* NULL is fine */

/* One session.  In a record to be stored, NULL texts are "".  Ids are any UTF-8 text of
 * 1 to 256 bytes. */
struct cay_session {
    size_t size;
    const char *user_id, *session_id;
    const char *backend;            /* "native"; "" if it has no sandbox */
    const char *sandbox_id;         /* "" if it has none */
    enum cay_state state;           /* as last seen; 0: no sandbox */
    const char *config;             /* cay_config_json(): no secrets */
    const char *data;               /* JSON of the caller's own, at most 16 MiB */
    int64_t created_ms, updated_ms; /* set by the store */
    uint64_t revision;              /* set by the store: one more with each change */
};

/* Durable when it returns.  A `revision` other than 0 must be the stored one:
 * CAY_E_CHANGED if somebody else was faster. */
CAY_PUBLIC CAY_NODISC int
cay_store_put(cay_store *store, const struct cay_session *session, struct cay_error *err);
/* CAY_E_NOT_FOUND.  One block to cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_store_get(cay_store *store, const char *user_id,
                                        const char *session_id,
                                        struct cay_session **ret_session,
                                        struct cay_error *err);
/* All, or of one user, by last change, newest first; one block to cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_store_list(cay_store *store, const char *user_id,
                                         struct cay_session **ret_sessions,
                                         size_t *ret_count, struct cay_error *err);
/* The record only: stop its sandbox first. */
CAY_PUBLIC CAY_NODISC int cay_store_remove(cay_store *store, const char *user_id,
                                           const char *session_id, struct cay_error *err);

/* Removes what managers that crashed have left: sandboxes that were made and that no
 * session has.  *ret_count tells how many starts there were. */
CAY_PUBLIC CAY_NODISC int cay_store_collect(cay_store *store, size_t *ret_count,
                                            struct cay_error *err);

/* Holds off everybody else who asks for the lock of the same session, in this process
 * and others; gone with the process.  CAY_E_TIMEOUT (UINT64_MAX: waits for ever). */
typedef struct cay_session_lock cay_session_lock;
CAY_PUBLIC CAY_NODISC int cay_session_lock_take(cay_store *store, const char *user_id,
                                                const char *session_id,
                                                uint64_t timeout_ms,
                                                cay_session_lock **ret_lock,
                                                struct cay_error *err);
CAY_PUBLIC void cay_session_lock_free(cay_session_lock *lock); /* NULL is fine */

/* --- The manager ----------------------------------------------------------------------
 */

/* One session's sandbox.  Which one: that of the sandbox_id of the configuration that is
 * given (an error if it is gone), else the stored one (if it is gone, a new one), else a
 * new one.  It is then the session's; one that the session had before and that is not the
 * configured one is left as it is. */
typedef struct cay_manager cay_manager;

struct cay_manager_options {
    size_t size;
    cay_store *store; /* NULL: nothing is kept */
    const char *user_id, *session_id;
    const cay_config *config; /* NULL: the stored one, else native with its defaults */
};

/* Of a stored configuration the variables must be set only when a new sandbox is made.
 * CAY_E_UNAVAILABLE: the stored sandbox is of a backend that this program does not have,
 * or cannot load; nothing has become of it, and its record stays. */

/* Store and configuration must outlive it.  One thread at a time uses it. */
CAY_PUBLIC CAY_NODISC int cay_manager_new(const struct cay_manager_options *options,
                                          cay_manager **ret_manager,
                                          struct cay_error *err);
CAY_PUBLIC void cay_manager_free(cay_manager *manager); /* the sandbox lives on */

/* Uploaded now if the sandbox runs, and again on every start. */
CAY_PUBLIC CAY_NODISC int cay_manager_add_asset(cay_manager *manager, const char *local,
                                                const char *inside,
                                                struct cay_error *err);

/* Two that race for one session get one sandbox.  It is recorded before it is given.
 * CAY_E_EXISTS if the session has a sandbox of another backend that lives, and the
 * configuration names none. */
CAY_PUBLIC CAY_NODISC int cay_manager_start(cay_manager *manager, struct cay_error *err);

/* The sandbox, started or resumed if need be.  The handle is the manager's, and good
 * until the sandbox is stopped or gone, or the manager freed. */
CAY_PUBLIC CAY_NODISC int cay_manager_sandbox(cay_manager *manager,
                                              cay_sandbox **ret_sandbox,
                                              struct cay_error *err);
CAY_PUBLIC bool cay_manager_is_running(cay_manager *manager);

/* CAY_E_NOT_FOUND if there is none.  Where a sandbox cannot be paused it goes on running,
 * and that is fine.  stop leaves nothing of the sandbox, and forgets it.
 *
 * Starts and stops are durable when they return.  The state that pausing and resuming
 * leave behind is what was last seen: it survives the death of any process, but a loss of
 * power may bring the one before back. */
CAY_PUBLIC CAY_NODISC int cay_manager_pause(cay_manager *manager, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_manager_stop(cay_manager *manager, struct cay_error *err);

/* What the configuration says is to happen after a run, if there is a sandbox: by
 * status_after_run, else by persist_sandbox. */
CAY_PUBLIC CAY_NODISC int cay_manager_run_done(cay_manager *manager,
                                               struct cay_error *err);

/* Nobody waits: goes on in a process of its own, and cay_manager_sandbox() or
 * cay_manager_wait() see the outcome; so does the next of the others, and
 * cay_manager_free() waits for it.  The process is forked from this one: backends that
 * need other threads of the program cannot be used so. */
CAY_PUBLIC CAY_NODISC int cay_manager_start_no_wait(cay_manager *manager,
                                                    struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_manager_pause_no_wait(cay_manager *manager,
                                                    struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_manager_wait(cay_manager *manager, struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
