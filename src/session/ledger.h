/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_LEDGER_H
#define SESSION_LEDGER_H

#include "session/store.h"

/* What the manager writes into the store: which session has which sandbox, and which
 * sandboxes are being created.  Each write is durable when it returns, except a state.
 * The caller holds the session's lock. */

enum { MARK_MAX = 17 }; /* with its NUL */

/* A new one for sandbox_create_marked(). */
void ledger_draw_mark(char ret_mark[MARK_MAX]);

/* Before a sandbox with that mark is created; ledger_abandon() if the creation fails. */
int ledger_begin(cay_store *store, const char *user_id, const char *session_id,
                 const char *mark, const char *config, struct cay_error *err);
int ledger_abandon(cay_store *store, const char *mark, struct cay_error *err);

/* 1 if a start with that mark is unfinished, 0 if not, or a code. */
int ledger_has(cay_store *store, const char *mark, struct cay_error *err);

/* Records the session's sandbox and removes the mark.  A NULL `config` leaves the stored
 * one; `mark` may be "". */
int ledger_complete(cay_store *store, const struct cay_session *session, const char *mark,
                    struct cay_error *err);

/* The state of the session's sandbox, if it still is that one.  0: it has none any more.
 */
int ledger_set_state(cay_store *store, const char *user_id, const char *session_id,
                     const char *sandbox_id, enum cay_state state, struct cay_error *err);

/* Calls `visit` for each unfinished start: of one session, or of all if `user_id` is
 * NULL. */
struct begun {
    const char *mark, *user_id, *session_id, *config;
    int64_t begun_ms;
};
int ledger_visit(cay_store *store, const char *user_id, const char *session_id,
                 void (*visit)(const struct begun *begun, void *cookie), void *cookie,
                 struct cay_error *err);

#endif
