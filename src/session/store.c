/* SPDX-License-Identifier: Apache-2.0 */
#include "session/store.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "session/query.h"

enum {
    ID_MAX = 256,
    TEXT_MAX = 16 << 20,    /* of one session's configuration or data */
    LISTING_MAX = 256 << 20 /* of all texts of a listing */
};

#define COLUMNS                                                                          \
    "user_id, session_id, backend, sandbox_id, config, data, state, created_ms, "        \
    "updated_ms, revision"
enum { TEXT_COLUMNS = 6 };

int64_t store_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int store_check_owner(const cay_store *store, const char *op, struct cay_error *err)
{
    if (store->owner == getpid())
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, store->name,
                    "this store was opened before a fork, by the parent",
                    "open it again in the child");
}

int store_enter(cay_store *store, const char *op, struct cay_error *err)
{
    int code = store_check_owner(store, op, err);

    if (!code)
        pthread_mutex_lock(&store->mutex);
    return code;
}

void store_leave(cay_store *store)
{
    if (!sqlite.sqlite3_get_autocommit(store->database))
        (void)query_exec(store, "store.leave", "ROLLBACK", NULL);
    pthread_mutex_unlock(&store->mutex);
}

/* --- What may be stored --- */

static bool is_text(const char *text, size_t len)
{
    struct utf8_scan scan = {.count = UTF8_CHARS};

    return utf8_scan(&scan, text, len) && utf8_scan_complete(&scan);
}

static int check_id(const char *op, const char *which, const char *id,
                    struct cay_error *err)
{
    size_t len = id ? strnlen(id, ID_MAX + 1) : 0;

    if (len > 0 && len <= ID_MAX && is_text(id, len))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, which, "this cannot be such an id",
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
                        "it may have %zu bytes", max);
    if (!is_text(text, len))
        return cay_fail(err, CAY_E_INVALID, 0, op, which, "the text is not UTF-8",
                        "write it as UTF-8");
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
                    "write a JSON value, or leave it empty");
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
        code = cay_fail(err, CAY_E_INVALID, 0, op, "state", "there is no such state",
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

static int write_session(cay_store *store, const char *op,
                         const struct cay_session *session, struct cay_error *err)
{
    int changes = 0;
    AUTO_QUERY query = query_new(store, op, session->revision ? update_sql : insert_sql);

    query_text(&query, session->backend);
    query_text(&query, session->sandbox_id);
    query_number(&query, session->state);
    query_text(&query, session->config);
    query_text(&query, session->data);
    query_number(&query, store_now_ms());
    query_text(&query, session->user_id);
    query_text(&query, session->session_id);
    if (session->revision)
        query_number(&query, (int64_t)session->revision);
    int code = query_run(&query, &changes, err);
    if (code || changes)
        return code;
    return cay_fail(err, CAY_E_CHANGED, 0, op, session->session_id,
                    "somebody else has changed or removed this session meanwhile",
                    "get it again, and decide again");
}

int cay_store_put(cay_store *store, const struct cay_session *session,
                  struct cay_error *err)
{
    static const char op[] = "store.put";
    struct cay_session known;

    int code = cay_take_struct(&known, sizeof known, session, op, err);
    if (!code)
        code = store_enter(store, op, err);
    if (code)
        return code;
    code = check_session(store, op, &known, err);
    if (!code)
        code = write_session(store, op, &known, err);
    store_leave(store);
    return code;
}

int cay_store_remove(cay_store *store, const char *user_id, const char *session_id,
                     struct cay_error *err)
{
    static const char op[] = "store.remove";
    int changes = 0, code = store_check_ids(op, user_id, session_id, err);

    if (!code)
        code = store_enter(store, op, err);
    if (code)
        return code;
    struct query query =
        query_new(store, op, "DELETE FROM sessions WHERE user_id = ? AND session_id = ?");
    query_text(&query, user_id);
    query_text(&query, session_id);
    code = query_run(&query, &changes, err);
    query_done(&query);
    store_leave(store);
    return code || changes ? code : store_fail_unknown(op, session_id, err);
}

/* --- Reading --- */

/* Rows as they come; their texts lie in one buffer, each with its NUL. */
struct rows {
    struct cay_session *list;
    size_t count, room;
    struct buf texts;
};

static void rows_done(struct rows *rows)
{
    free(rows->list);
    buf_done(&rows->texts);
}

static bool take_row(struct rows *rows, const struct query *query)
{
    if (rows->count == rows->room) {
        size_t room = rows->room ? rows->room * 2 : 4;
        struct cay_session *more = reallocarray(rows->list, room, sizeof *rows->list);
        if (!more)
            return false;
        rows->list = more;
        rows->room = room;
    }
    for (int i = 0; i < TEXT_COLUMNS; i++) {
        size_t len;
        const char *text = query_column(query, i, &len);
        buf_append(&rows->texts, text, strlen(text) + 1);
    }
    rows->list[rows->count++] = (struct cay_session){
        .size = sizeof *rows->list,
        .state = (enum cay_state)query_column_number(query, 6),
        .created_ms = query_column_number(query, 7),
        .updated_ms = query_column_number(query, 8),
        .revision = (uint64_t)query_column_number(query, 9),
    };
    return !rows->texts.failed;
}

/* One block: the sessions, then their texts. */
static struct cay_session *pack(const struct rows *rows)
{
    size_t len = rows->count * sizeof *rows->list;
    char *block = malloc(len + rows->texts.len + 1);
    char *text = block + len;

    if (!block)
        return NULL;
    struct cay_session *list = (struct cay_session *)block;
    if (rows->count) {
        memcpy(list, rows->list, len);
        memcpy(text, rows->texts.data, rows->texts.len);
    }
    for (size_t i = 0; i < rows->count; i++) {
        const char **const fields[TEXT_COLUMNS] = {&list[i].user_id, &list[i].session_id,
                                                   &list[i].backend, &list[i].sandbox_id,
                                                   &list[i].config,  &list[i].data};
        for (size_t k = 0; k < TEXT_COLUMNS; k++) {
            *fields[k] = text;
            text += strlen(text) + 1;
        }
    }
    return list;
}

static int read_rows(struct query *query, const char *op, struct cay_session **ret_list,
                     size_t *ret_count, struct cay_error *err)
{
    __attribute__((cleanup(rows_done))) struct rows rows = {0};
    int code;

    buf_init(&rows.texts, LISTING_MAX);
    while ((code = query_step(query, err)) > 0)
        if (!take_row(&rows, query))
            return rows.texts.len > LISTING_MAX / 2
                       ? cay_fail(err, CAY_E_LIMIT, 0, op, "sessions",
                                  "they keep more than can be listed at once",
                                  "list those of one user, or get them one by one")
                       : cay_fail_memory(err, op);
    if (code)
        return code;
    *ret_list = pack(&rows);
    *ret_count = rows.count;
    return *ret_list ? CAY_OK : cay_fail_memory(err, op);
}

int store_fail_unknown(const char *op, const char *session_id, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, session_id, "there is no such session",
                    "cay session ls lists them");
}

int cay_store_get(cay_store *store, const char *user_id, const char *session_id,
                  struct cay_session **ret_session, struct cay_error *err)
{
    static const char op[] = "store.get";
    struct cay_session *found = NULL;
    size_t count = 0;
    int code = store_check_ids(op, user_id, session_id, err);

    if (!code)
        code = store_enter(store, op, err);
    if (code)
        return code;
    struct query query = query_new(store, op,
                                   "SELECT " COLUMNS " FROM sessions"
                                   " WHERE user_id = ? AND session_id = ?");
    query_text(&query, user_id);
    query_text(&query, session_id);
    code = read_rows(&query, op, &found, &count, err);
    query_done(&query);
    store_leave(store);
    if (!code && count) {
        *ret_session = found;
        return CAY_OK;
    }
    free(found);
    return code ? code : store_fail_unknown(op, session_id, err);
}

int cay_store_list(cay_store *store, const char *user_id,
                   struct cay_session **ret_sessions, size_t *ret_count,
                   struct cay_error *err)
{
    static const char op[] = "store.list";
    int code = user_id ? check_id(op, "user_id", user_id, err) : CAY_OK;

    if (!code)
        code = store_enter(store, op, err);
    if (code)
        return code;
    struct query query =
        query_new(store, op,
                  user_id ? "SELECT " COLUMNS " FROM sessions WHERE user_id = ?"
                            " ORDER BY changed DESC"
                          : "SELECT " COLUMNS " FROM sessions ORDER BY changed DESC");
    if (user_id)
        query_text(&query, user_id);
    code = read_rows(&query, op, ret_sessions, ret_count, err);
    query_done(&query);
    store_leave(store);
    return code;
}
