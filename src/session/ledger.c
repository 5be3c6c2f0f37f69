/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ledger.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/clock.h"
#include "session/query.h"

enum { LISTING_MAX = 64 << 20, FIELDS = 5 };

void ledger_draw_mark(char ret_mark[MARK_MAX])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char random[MARK_MAX - 1];

    /* 16 bytes after boot never fail and never come short. */
    (void)!getrandom(random, sizeof random, 0);
    for (size_t i = 0; i < sizeof random; i++)
        ret_mark[i] = letters[random[i] % 32];
    ret_mark[MARK_MAX - 1] = '\0';
}

int ledger_begin(cay_store *store, const char *user_id, const char *session_id,
                 const char *mark, const char *config, struct cay_error *err)
{
    AUTO_QUERY query =
        query_new(store, "session.begin",
                  "INSERT INTO starts (mark, user_id, session_id, config, begun_ms)"
                  " VALUES (?, ?, ?, ?, ?)");

    query_text(&query, mark);
    query_text(&query, user_id);
    query_text(&query, session_id);
    query_text(&query, config);
    query_number(&query, clock_since_1970_ms());
    return query_run(&query, NULL, err);
}

int ledger_abandon(cay_store *store, const char *mark, struct cay_error *err)
{
    AUTO_QUERY query =
        query_new(store, "session.abandon", "DELETE FROM starts WHERE mark = ?");

    query_text(&query, mark);
    return query_run(&query, NULL, err);
}

int ledger_has(cay_store *store, const char *mark, struct cay_error *err)
{
    AUTO_QUERY query =
        query_new(store, "session.begun", "SELECT 1 FROM starts WHERE mark = ?");

    query_text(&query, mark);
    return query_step(&query, err);
}

/* --- The session's sandbox --- */

static const char complete_sql[] =
    "INSERT INTO sessions (user_id, session_id, backend, sandbox_id, state, config,"
    " created_ms, updated_ms, changed)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7,"
    "         (SELECT coalesce(max(changed), 0) + 1 FROM sessions))"
    " ON CONFLICT (user_id, session_id) DO UPDATE SET backend = ?3, sandbox_id = ?4,"
    " state = ?5, config = CASE WHEN ?8 THEN ?6 ELSE config END, updated_ms = ?7,"
    " revision = revision + 1, changed = excluded.changed";

static int write_complete(cay_store *store, const char *op,
                          const struct cay_session *session, struct cay_error *err)
{
    AUTO_QUERY query = query_new(store, op, complete_sql);

    query_text(&query, session->user_id);
    query_text(&query, session->session_id);
    query_text(&query, session->backend);
    query_text(&query, session->sandbox_id);
    query_number(&query, session->state);
    query_text(&query, session->config);
    query_number(&query, clock_since_1970_ms());
    query_number(&query, session->config != NULL);
    return query_run(&query, NULL, err);
}

int ledger_complete(cay_store *store, const struct cay_session *session, const char *mark,
                    struct cay_error *err)
{
    static const char op[] = "session.complete";
    int code = store_enter(store, op, err);

    if (code)
        return code;
    code = query_exec(store, op, "BEGIN IMMEDIATE", err);
    if (!code)
        code = write_complete(store, op, session, err);
    if (!code)
        code = ledger_abandon(store, mark, err);
    if (!code)
        code = query_exec(store, op, "COMMIT", err);
    if (code)
        (void)query_exec(store, op, "ROLLBACK", NULL);
    store_leave(store);
    return code;
}

static const char state_sql[] =
    "UPDATE sessions SET backend = CASE WHEN ?4 THEN backend ELSE '' END,"
    " sandbox_id = CASE WHEN ?4 THEN sandbox_id ELSE '' END, state = ?4, updated_ms = ?5,"
    " revision = revision + 1, changed = (SELECT max(changed) + 1 FROM sessions)"
    " WHERE user_id = ?1 AND session_id = ?2 AND sandbox_id = ?3"
    " AND (state <> ?4 OR NOT ?4)";

static int write_state(cay_store *store, const char *user_id, const char *session_id,
                       const char *sandbox_id, enum cay_state state,
                       struct cay_error *err)
{
    AUTO_QUERY query = query_new(store, "session.state", state_sql);

    query_text(&query, user_id);
    query_text(&query, session_id);
    query_text(&query, sandbox_id);
    query_number(&query, state);
    query_number(&query, clock_since_1970_ms());
    return query_run(&query, NULL, err);
}

/* The state is only what was last seen, so it need not be synced to disk: it survives the
 * death of any process, and a starting manager checks for itself. */
int ledger_set_state(cay_store *store, const char *user_id, const char *session_id,
                     const char *sandbox_id, enum cay_state state, struct cay_error *err)
{
    static const char op[] = "session.state";
    int code = store_enter(store, op, err);

    if (code)
        return code;
    if (state)
        code = query_exec(store, op, "PRAGMA synchronous=NORMAL", err);
    if (!code)
        code = write_state(store, user_id, session_id, sandbox_id, state, err);
    if (state) {
        int restored =
            query_exec(store, op, "PRAGMA synchronous=FULL", code ? NULL : err);
        code = code ? code : restored;
    }
    store_leave(store);
    return code;
}

/* --- Unfinished starts --- */

static int collect(cay_store *store, const char *user_id, const char *session_id,
                   struct buf *ret_texts, size_t *ret_count, struct cay_error *err)
{
    AUTO_QUERY query = query_new(
        store, "session.begun",
        user_id ? "SELECT mark, user_id, session_id, config, begun_ms FROM starts"
                  " WHERE user_id = ? AND session_id = ?"
                : "SELECT mark, user_id, session_id, config, begun_ms"
                  " FROM starts");

    if (user_id) {
        query_text(&query, user_id);
        query_text(&query, session_id);
    }
    return query_collect(&query, FIELDS, LISTING_MAX, ret_texts, ret_count, err);
}

int ledger_visit(cay_store *store, const char *user_id, const char *session_id,
                 void (*visit)(const struct begun *begun, void *cookie), void *cookie,
                 struct cay_error *err)
{
    AUTO_BUF texts = {0};
    size_t count = 0;
    int code = collect(store, user_id, session_id, &texts, &count, err);
    const char *at = texts.data;

    for (size_t i = 0; !code && i < count; i++) {
        const char *fields[FIELDS];
        for (size_t k = 0; k < FIELDS; k++) {
            fields[k] = at;
            at += strlen(at) + 1;
        }
        const struct begun begun = {fields[0], fields[1], fields[2], fields[3],
                                    strtoll(fields[4], NULL, 10)};
        visit(&begun, cookie);
    }
    return code;
}
