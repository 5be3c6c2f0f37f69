/* SPDX-License-Identifier: Apache-2.0 */
#include "session/query.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

int query_fail(const cay_store *store, int result, const char *op, struct cay_error *err)
{
    static const struct {
        int result, code;
        const char *message, *hint;
    } known[] = {
        {SQLITE_BUSY, CAY_E_BUSY, "the session database is locked by another process",
         "try again"},
        {SQLITE_LOCKED, CAY_E_BUSY, "the session database is locked by another process",
         "try again"},
        {SQLITE_CORRUPT, CAY_E_IO, "the session database is damaged",
         "move it away together with its -wal file; cay ls still lists the sandboxes"},
        {SQLITE_NOTADB, CAY_E_IO, "not a database, or damaged",
         "move it away together with its -wal file; cay ls still lists the sandboxes"},
        {SQLITE_FULL, CAY_E_NO_SPACE, "no space left for the session database",
         "free some space first"},
        {SQLITE_NOMEM, CAY_E_NO_MEMORY, "out of memory", "request less at a time"},
        {SQLITE_READONLY, CAY_E_DENIED, "the session database is not writable",
         "check its owner and mode, and whether its file system is mounted read-only"},
        {SQLITE_CANTOPEN, CAY_E_UNAVAILABLE, "the session database cannot be opened",
         "check the owner and mode of the file and its directory, and the free space"},
        {SQLITE_PERM, CAY_E_DENIED, "the session database is not writable",
         "check its owner and mode"},
        {SQLITE_TOOBIG, CAY_E_LIMIT, "the session's data is too large",
         "store less in it"},
        {SQLITE_IOERR, CAY_E_IO, "reading or writing the session database failed",
         "check the disk; the kernel log says more"},
    };
    int error = sqlite.sqlite3_system_errno(store->database);

    /* A full disk is SQLITE_IOERR, not SQLITE_FULL, for the shared-memory file, which is
     * mapped. */
    if ((result & 0xff) == SQLITE_IOERR && (error == ENOSPC || error == EDQUOT))
        result = SQLITE_FULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].result == (result & 0xff))
            return cay_fail(err, known[i].code, error, op, store->name, known[i].message,
                            "%s", known[i].hint);
    return cay_fail(err, CAY_E_INTERNAL, error, op, store->name,
                    sqlite.sqlite3_errmsg(store->database), "SQLite error %d", result);
}

struct query query_new(cay_store *store, const char *op, const char *sql)
{
    struct query query = {.store = store, .op = op, .parameter = 1};

    query.has_entered = store_enter(store, op, NULL) == CAY_OK;
    query.result = query.has_entered ? sqlite.sqlite3_prepare_v2(store->database, sql, -1,
                                                                 &query.statement, NULL)
                                     : SQLITE_MISUSE;
    return query;
}

void query_done(struct query *query)
{
    if (!query->has_entered)
        return;
    (void)sqlite.sqlite3_finalize(query->statement);
    store_leave(query->store);
}

void query_text(struct query *query, const char *text)
{
    if (!text)
        text = "";
    if (query->result == SQLITE_OK)
        query->result = sqlite.sqlite3_bind_text(query->statement, query->parameter++,
                                                 text, (int)strlen(text), SQLITE_STATIC);
}

void query_number(struct query *query, int64_t number)
{
    if (query->result == SQLITE_OK)
        query->result =
            sqlite.sqlite3_bind_int64(query->statement, query->parameter++, number);
}

int query_step(struct query *query, struct cay_error *err)
{
    if (!query->has_entered)
        return store_check_owner(query->store, query->op, err);
    if (query->result == SQLITE_OK || query->result == SQLITE_ROW)
        query->result = sqlite.sqlite3_step(query->statement);
    if (query->result == SQLITE_ROW)
        return 1;
    return query->result == SQLITE_DONE
               ? 0
               : query_fail(query->store, query->result, query->op, err);
}

const char *query_column(const struct query *query, int column)
{
    const unsigned char *text = sqlite.sqlite3_column_text(query->statement, column);

    return text ? (const char *)text : "";
}

int64_t query_column_number(const struct query *query, int column)
{
    return sqlite.sqlite3_column_int64(query->statement, column);
}

int query_collect(struct query *query, int columns, size_t max, struct buf *ret_texts,
                  size_t *ret_rows, struct cay_error *err)
{
    int code;

    buf_init(ret_texts, max);
    *ret_rows = 0;
    while ((code = query_step(query, err)) > 0) {
        for (int i = 0; i < columns; i++) {
            const char *text = query_column(query, i);
            size_t len = strlen(text) + 1;
            if (len > max - ret_texts->len)
                return cay_fail(err, CAY_E_LIMIT, 0, query->op, query->store->name,
                                "too many sessions to list at once",
                                "list the sessions of one user, or get them one by one");
            if (!buf_append(ret_texts, text, len))
                return cay_fail_memory(err, query->op);
        }
        ++*ret_rows;
    }
    return code;
}

int query_run(struct query *query, int *ret_changes, struct cay_error *err)
{
    int code;

    do
        code = query_step(query, err);
    while (code > 0);
    if (!code && ret_changes)
        *ret_changes = sqlite.sqlite3_changes(query->store->database);
    return code;
}

int query_exec(cay_store *store, const char *op, const char *sql, struct cay_error *err)
{
    int result = sqlite.sqlite3_exec(store->database, sql, NULL, NULL, NULL);

    return result == SQLITE_OK ? CAY_OK : query_fail(store, result, op, err);
}
