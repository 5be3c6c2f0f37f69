/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/utf8.h"
#include "session/store.h"

enum {
    ID_MAX = 256,
    TEXT_MAX = 16 << 20,    /* of one session's configuration or data */
    LISTING_MAX = 256 << 20 /* of all texts of a listing */
};

#define COLUMNS                                                                          \
    "user_id, session_id, backend, sandbox_id, state, config, data, created_ms, "        \
    "updated_ms, revision"
enum { COLUMN_COUNT = 10 };

/* --- Validation --- */

static int check_id(const char *op, const char *which, const char *id,
                    struct cay_error *err)
{
    size_t len = id ? strnlen(id, ID_MAX + 1) : 0;

    if (len > 0 && len <= ID_MAX && utf8_is_valid(id, len))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, which, "invalid id",
                    "ids are UTF-8 text of 1 to %d bytes", ID_MAX);
}

int store_check_ids(const char *op, const char *user_id, const char *session_id,
                    struct cay_error *err)
{
    int code = check_id(op, "user_id", user_id, err);

    return code ? code : check_id(op, "session_id", session_id, err);
}

static int check_text(const char *op, const char *which, const char *text, size_t max,
                      struct cay_error *err)
{
    size_t len = text ? strnlen(text, max + 1) : 0;

    if (len > max)
        return cay_fail(err, CAY_E_LIMIT, 0, op, which, "the text is too long",
                        "the limit is %zu bytes", max);
    if (!utf8_is_valid(text, len))
        return cay_fail(err, CAY_E_INVALID, 0, op, which, "the text is not UTF-8",
                        "pass UTF-8 text");
    return CAY_OK;
}

/* Syntax only: numbers of any size are the caller's own. */
static int check_json(cay_store *store, const char *op, const char *which,
                      const char *text, struct cay_error *err)
{
    if (!text || !*text)
        return CAY_OK;
    AUTO_QUERY query = query_new(store, op, "SELECT json_valid(?)");
    query_text(&query, text);
    int code = query_step(&query, err);
    if (code < 0 || (code && query_column_number(&query, 0)))
        return code < 0 ? code : CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, which, "the text is not JSON",
                    "pass a JSON value, or nothing");
}

static int check_session(cay_store *store, const char *op,
                         const struct cay_session *session, struct cay_error *err)
{
    int code = store_check_ids(op, session->user_id, session->session_id, err);

    if (!code)
        code = check_text(op, "backend", session->backend, ID_MAX, err);
    if (!code)
        code = check_text(op, "sandbox_id", session->sandbox_id, ID_MAX, err);
    if (!code)
        code = check_text(op, "config", session->config, TEXT_MAX, err);
    if (!code)
        code = check_text(op, "data", session->data, TEXT_MAX, err);
    if (!code && (unsigned)session->state > CAY_STATE_STOPPED)
        code = cay_fail(err, CAY_E_INVALID, 0, op, "state", "invalid state",
                        "use one of enum cay_state, or 0");
    if (!code)
        code = check_json(store, op, "config", session->config, err);
    return code ? code : check_json(store, op, "data", session->data, err);
}

/* --- Writing --- */

static const char insert_sql[] =
    "INSERT INTO sessions (backend, sandbox_id, state, config, data, updated_ms, user_id,"
    " session_id, created_ms, changed)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?6,"
    "         (SELECT coalesce(max(changed), 0) + 1 FROM sessions))"
    " ON CONFLICT (user_id, session_id) DO UPDATE SET backend = ?1, sandbox_id = ?2,"
    " state = ?3, config = ?4, data = ?5, updated_ms = ?6, revision = revision + 1,"
    " changed = excluded.changed";
static const char update_sql[] =
    "UPDATE sessions SET backend = ?1, sandbox_id = ?2, state = ?3, config = ?4,"
    " data = ?5, updated_ms = ?6, revision = revision + 1,"
    " changed = (SELECT max(changed) + 1 FROM sessions)"
    " WHERE user_id = ?7 AND session_id = ?8 AND revision = ?9";

static int fail_unknown(const char *op, const char *session_id, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, session_id, "session not found",
                    "cay session ls lists the sessions");
}

int cay_store_put(cay_store *store, const struct cay_session *session,
                  struct cay_error *err)
{
    static const char op[] = "store.put";
    struct cay_session known;
    int changes = 0;

    int code = cay_take_struct(&known, sizeof known, session, op, err);
    if (!code)
        code = check_session(store, op, &known, err);
    if (code)
        return code;
    AUTO_QUERY query = query_new(store, op, known.revision ? update_sql : insert_sql);
    query_text(&query, known.backend);
    query_text(&query, known.sandbox_id);
    query_number(&query, known.state);
    query_text(&query, known.config);
    query_text(&query, known.data);
    query_number(&query, clock_since_1970_ms());
    query_text(&query, known.user_id);
    query_text(&query, known.session_id);
    if (known.revision)
        query_number(&query, (int64_t)known.revision);
    code = query_run(&query, &changes, err);
    if (code || changes)
        return code;
    return cay_fail(err, CAY_E_CHANGED, 0, op, known.session_id,
                    "the session was changed or removed by another process",
                    "read the session again and retry");
}

int cay_store_remove(cay_store *store, const char *user_id, const char *session_id,
                     struct cay_error *err)
{
    static const char op[] = "store.remove";
    int changes = 0, code = store_check_ids(op, user_id, session_id, err);

    if (code)
        return code;
    AUTO_QUERY query =
        query_new(store, op, "DELETE FROM sessions WHERE user_id = ? AND session_id = ?");
    query_text(&query, user_id);
    query_text(&query, session_id);
    code = query_run(&query, &changes, err);
    return code || changes ? code : fail_unknown(op, session_id, err);
}

/* --- Reading --- */

static const char *next_text(const char **at)
{
    const char *text = *at;

    *at += strlen(text) + 1;
    return text;
}

static int64_t next_number(const char **at)
{
    return strtoll(next_text(at), NULL, 10);
}

/* The result is one block: the sessions, then their texts. */
static int read_rows(struct query *query, const char *op, struct cay_session **ret_list,
                     size_t *ret_count, struct cay_error *err)
{
    AUTO_BUF texts = {0};
    size_t count = 0;
    int code = query_collect(query, COLUMN_COUNT, LISTING_MAX, &texts, &count, err);

    if (code)
        return code;
    size_t len = count * sizeof(struct cay_session);
    char *block = malloc(len + texts.len + 1);
    if (!block)
        return cay_fail_memory(err, op);
    const char *at = block + len;
    struct cay_session *list = (struct cay_session *)block;
    if (count)
        memcpy(block + len, texts.data, texts.len);
    for (size_t i = 0; i < count; i++) {
        list[i].size = sizeof list[i];
        list[i].user_id = next_text(&at);
        list[i].session_id = next_text(&at);
        list[i].backend = next_text(&at);
        list[i].sandbox_id = next_text(&at);
        list[i].state = (enum cay_state)next_number(&at);
        list[i].config = next_text(&at);
        list[i].data = next_text(&at);
        list[i].created_ms = next_number(&at);
        list[i].updated_ms = next_number(&at);
        list[i].revision = (uint64_t)next_number(&at);
    }
    *ret_list = list;
    *ret_count = count;
    return CAY_OK;
}

int cay_store_get(cay_store *store, const char *user_id, const char *session_id,
                  struct cay_session **ret_session, struct cay_error *err)
{
    static const char op[] = "store.get";
    struct cay_session *found = NULL;
    size_t count = 0;
    int code = store_check_ids(op, user_id, session_id, err);

    if (code)
        return code;
    AUTO_QUERY query = query_new(store, op,
                                 "SELECT " COLUMNS " FROM sessions"
                                 " WHERE user_id = ? AND session_id = ?");
    query_text(&query, user_id);
    query_text(&query, session_id);
    code = read_rows(&query, op, &found, &count, err);
    if (!code && count) {
        *ret_session = found;
        return CAY_OK;
    }
    free(found);
    return code ? code : fail_unknown(op, session_id, err);
}

int cay_store_list(cay_store *store, const char *user_id,
                   struct cay_session **ret_sessions, size_t *ret_count,
                   struct cay_error *err)
{
    static const char op[] = "store.list";
    int code = user_id ? check_id(op, "user_id", user_id, err) : CAY_OK;

    if (code)
        return code;
    AUTO_QUERY query =
        query_new(store, op,
                  user_id ? "SELECT " COLUMNS " FROM sessions WHERE user_id = ?"
                            " ORDER BY changed DESC"
                          : "SELECT " COLUMNS " FROM sessions ORDER BY changed DESC");
    if (user_id)
        query_text(&query, user_id);
    return read_rows(&query, op, ret_sessions, ret_count, err);
}

enum { STARTS_MAX = 64 << 20, FIELDS = 5 };

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
    return query_collect(&query, FIELDS, STARTS_MAX, ret_texts, ret_count, err);
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
        struct begun begun = {.mark = next_text(&at)};
        begun.user_id = next_text(&at);
        begun.session_id = next_text(&at);
        begun.config = next_text(&at);
        begun.begun_ms = next_number(&at);
        visit(&begun, cookie);
    }
    return code;
}
