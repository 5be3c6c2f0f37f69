/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_LEDGER_H
#define SESSION_LEDGER_H

#include "session/store.h"

/* What the manager writes into the store: whose sandbox is which, and which are being
 * made.  Each is durable when it returns, but for a state.  The caller holds the
 * session's lock. */

enum { MARK_MAX = 17 }; /* with its NUL */

/* A new one for sandbox_create_marked(). */
void ledger_draw_mark(char ret_mark[MARK_MAX]);

/* Before a sandbox of that mark is made; and after all if it is not. */
int ledger_begin(cay_store *store, const char *user_id, const char *session_id,
                 const char *mark, const char *config, struct cay_error *err);
int ledger_abandon(cay_store *store, const char *mark, struct cay_error *err);

/* 1 if a sandbox of that mark is being made, 0 if not, or a code. */
int ledger_has(cay_store *store, const char *mark, struct cay_error *err);

/* The session has this sandbox from now on, and what was begun is done.  A NULL `config`
 * leaves what is stored; `mark` may be "". */
int ledger_complete(cay_store *store, const struct cay_session *session, const char *mark,
                    struct cay_error *err);

/* The state of the session's sandbox, if it still is that one.  0: it has none any more.
 */
int ledger_set_state(cay_store *store, const char *user_id, const char *session_id,
                     const char *sandbox_id, enum cay_state state, struct cay_error *err);

/* Calls `visit` for all that was begun and not done: of one session, or of every one if
 * `user_id` is NULL. */
struct begun {
    const char *mark, *user_id, *session_id, *config;
    int64_t begun_ms;
};
int ledger_visit(cay_store *store, const char *user_id, const char *session_id,
                 void (*visit)(const struct begun *begun, void *cookie), void *cookie,
                 struct cay_error *err);

#endif
