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

/* A SQLite database for several processes at once.  NULL: cay.db below $CAY_HOME, else
 * /var/lib/cay for root, $XDG_STATE_HOME/cay otherwise.  ":memory:" is private to this
 * process.  A missing file is created with mode 0600, in a directory that only this user
 * may write to.  An older version is migrated; a newer one is CAY_E_UNSUPPORTED, a
 * damaged one CAY_E_IO.  Several threads may use a handle.  After a fork it is
 * CAY_E_INVALID. */
CAY_PUBLIC CAY_NODISC int cay_store_open(const char *path, cay_store **ret_store,
                                         struct cay_error *err);
CAY_PUBLIC void cay_store_free(cay_store *store); /* NULL is allowed */

/* One session.  When a record is stored, NULL texts count as "".  Ids are any UTF-8 text
 * of 1 to 256 bytes. */
struct cay_session {
    size_t size;
    const char *user_id, *session_id;
    const char *backend;            /* "native"; "" if it has no sandbox */
    const char *sandbox_id;         /* "" if there is none */
    enum cay_state state;           /* as last seen; 0: no sandbox */
    const char *config;             /* cay_config_json(): no secrets */
    const char *data;               /* the caller's own JSON, at most 16 MiB */
    int64_t created_ms, updated_ms; /* set by the store */
    uint64_t revision;              /* set by the store: incremented with each change */
};

/* Durable when it returns.  A `revision` other than 0 must be the stored one:
 * CAY_E_CHANGED if another writer was faster. */
CAY_PUBLIC CAY_NODISC int
cay_store_put(cay_store *store, const struct cay_session *session, struct cay_error *err);
/* CAY_E_NOT_FOUND if there is no such session.  The result is one block; free it with
 * cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_store_get(cay_store *store, const char *user_id,
                                        const char *session_id,
                                        struct cay_session **ret_session,
                                        struct cay_error *err);
/* All sessions, or those of one user, ordered by last change, newest first.  The result
 * is one block; free it with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_store_list(cay_store *store, const char *user_id,
                                         struct cay_session **ret_sessions,
                                         size_t *ret_count, struct cay_error *err);
/* Removes only the record: stop the sandbox first. */
CAY_PUBLIC CAY_NODISC int cay_store_remove(cay_store *store, const char *user_id,
                                           const char *session_id, struct cay_error *err);

/* Removes what crashed managers left: sandboxes that were created and belong to no
 * session.  *ret_count is the number of interrupted starts. */
CAY_PUBLIC CAY_NODISC int cay_store_collect(cay_store *store, size_t *ret_count,
                                            struct cay_error *err);

/* Locks the session against other users of this lock, in this process and others.  The
 * lock ends with the process.  CAY_E_TIMEOUT after `timeout_ms` (UINT64_MAX: wait for
 * ever). */
typedef struct cay_session_lock cay_session_lock;
CAY_PUBLIC CAY_NODISC int cay_session_lock_take(cay_store *store, const char *user_id,
                                                const char *session_id,
                                                uint64_t timeout_ms,
                                                cay_session_lock **ret_lock,
                                                struct cay_error *err);
CAY_PUBLIC void cay_session_lock_free(cay_session_lock *lock); /* NULL is allowed */

/* --- The manager ----------------------------------------------------------------------
 */

/* The sandbox of one session.  The manager uses the sandbox_id of the given configuration
 * (an error if that sandbox is gone), else the stored sandbox (a new one if it is gone),
 * else a new one.  That sandbox then belongs to the session.  A sandbox that the session
 * had before and that is not the configured one is left unchanged. */
typedef struct cay_manager cay_manager;

struct cay_manager_options {
    size_t size;
    cay_store *store; /* NULL: nothing is stored */
    const char *user_id, *session_id;
    const cay_config
        *config; /* NULL: the stored configuration, else native with its defaults */
    /* The name of a pool whose spare becomes a new sandbox, if one fits; "": a pool of
     * this user that is open to all programs; NULL: none.  See cay/pool.h.  Backends
     * without pools ignore it. */
    const char *pool;
};

/* The variables of a stored configuration must be set only when a new sandbox is created.
 * CAY_E_UNAVAILABLE: the backend of the stored sandbox is not in this program, or cannot
 * be loaded; the sandbox and its record are left unchanged. */

/* Store and configuration must outlive the manager.  One thread at a time uses a
 * manager. */
CAY_PUBLIC CAY_NODISC int cay_manager_new(const struct cay_manager_options *options,
                                          cay_manager **ret_manager,
                                          struct cay_error *err);
CAY_PUBLIC void cay_manager_free(cay_manager *manager); /* the sandbox is not affected */

/* Uploads now if the sandbox runs, and again on every start. */
CAY_PUBLIC CAY_NODISC int cay_manager_add_asset(cay_manager *manager, const char *local,
                                                const char *inside,
                                                struct cay_error *err);

/* Managers that race for one session get one sandbox.  The sandbox is recorded before the
 * call returns.  CAY_E_EXISTS if the session has a live sandbox of another backend and
 * the configuration names no sandbox. */
CAY_PUBLIC CAY_NODISC int cay_manager_start(cay_manager *manager, struct cay_error *err);

/* The sandbox, started or resumed if necessary.  The manager owns the handle; it is valid
 * until the sandbox is stopped or gone, or the manager is freed. */
CAY_PUBLIC CAY_NODISC int cay_manager_sandbox(cay_manager *manager,
                                              cay_sandbox **ret_sandbox,
                                              struct cay_error *err);
CAY_PUBLIC bool cay_manager_is_running(cay_manager *manager);

/* CAY_E_NOT_FOUND if there is no sandbox.  A sandbox that cannot be paused keeps running,
 * and pause succeeds. stop removes the sandbox completely and forgets it.
 *
 * Starts and stops are durable when they return.  The state after a pause or resume is
 * the last one seen: it survives the death of any process, but a power loss may restore
 * the state before. */
CAY_PUBLIC CAY_NODISC int cay_manager_pause(cay_manager *manager, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_manager_stop(cay_manager *manager, struct cay_error *err);

/* Applies the configured action after a run, if there is a sandbox: status_after_run,
 * else persist_sandbox. */
CAY_PUBLIC CAY_NODISC int cay_manager_run_done(cay_manager *manager,
                                               struct cay_error *err);

/* Return at once; the work continues in a process of its own. cay_manager_sandbox(),
 * cay_manager_wait() and the next call of any other function report the outcome, and
 * cay_manager_free() waits for it.  The process is forked from this one: backends that
 * need other threads of the program do not work this way. */
CAY_PUBLIC CAY_NODISC int cay_manager_start_no_wait(cay_manager *manager,
                                                    struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_manager_pause_no_wait(cay_manager *manager,
                                                    struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_manager_wait(cay_manager *manager, struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
