/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/error.h"
#include "session/query.h"

static const char op[] = "store.open";

enum { APPLICATION = 0x43617953 /* "CayS": tells our databases from other people's */ };

/* `changed` counts the changes of all sessions: it orders them when the clock cannot.
 *
 * A row of `starts` is written before a sandbox is made and goes when the session has it:
 * what a crash leaves between the two is found by its mark. */
static const char *const steps[] = {
    "CREATE TABLE sessions ("
    "  user_id TEXT NOT NULL,"
    "  session_id TEXT NOT NULL,"
    "  backend TEXT NOT NULL DEFAULT '',"
    "  sandbox_id TEXT NOT NULL DEFAULT '',"
    "  state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3),"
    "  config TEXT NOT NULL DEFAULT '',"
    "  data TEXT NOT NULL DEFAULT '',"
    "  created_ms INTEGER NOT NULL,"
    "  updated_ms INTEGER NOT NULL,"
    "  revision INTEGER NOT NULL DEFAULT 1,"
    "  changed INTEGER NOT NULL,"
    "  PRIMARY KEY (user_id, session_id)"
    ") STRICT;"
    "CREATE INDEX sessions_by_change ON sessions (changed);"
    "CREATE TABLE starts ("
    "  mark TEXT NOT NULL PRIMARY KEY,"
    "  user_id TEXT NOT NULL,"
    "  session_id TEXT NOT NULL,"
    "  config TEXT NOT NULL,"
    "  begun_ms INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX starts_by_session ON starts (user_id, session_id);",
};

const struct schema schema_current = {steps, sizeof steps / sizeof *steps};

static int ask_number(cay_store *store, const char *sql, int64_t *ret_number,
                      struct cay_error *err)
{
    AUTO_QUERY query = query_new(store, op, sql);
    int code = query_step(&query, err);

    *ret_number = code > 0 ? query_column_number(&query, 0) : 0;
    return code < 0 ? code : CAY_OK;
}

/* Which version it is of; refuses what is not ours to touch. */
static int recognise(cay_store *store, size_t newest, int64_t *ret_version,
                     struct cay_error *err)
{
    int64_t application = 0, tables = 0;

    int code = ask_number(store, "PRAGMA application_id", &application, err);
    if (!code)
        code = ask_number(store, "PRAGMA user_version", ret_version, err);
    if (!code && !application)
        code = ask_number(store, "SELECT count(*) FROM sqlite_schema", &tables, err);
    if (code)
        return code;
    if (application != APPLICATION && (application || *ret_version || tables))
        return cay_fail(err, CAY_E_INVALID, 0, op, store->name,
                        "this is the database of another program",
                        "name a file that is not there yet");
    if (*ret_version < 0 || *ret_version > (int64_t)newest)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, store->name,
                        "a newer version of cay has written this database",
                        "this is libcay %s; use a newer one", CAY_VERSION);
    return CAY_OK;
}

static int climb(cay_store *store, const struct schema *schema, struct cay_error *err)
{
    char mark[96];
    int64_t version = 0;

    int code = recognise(store, schema->count, &version, err);
    for (size_t i = (size_t)version; !code && i < schema->count; i++)
        code = query_exec(store, op, schema->steps[i], err);
    snprintf(mark, sizeof mark, "PRAGMA application_id=%d; PRAGMA user_version=%zu",
             APPLICATION, schema->count);
    return code ? code : query_exec(store, op, mark, err);
}

int schema_apply(cay_store *store, const struct schema *schema, struct cay_error *err)
{
    int64_t version = 0;
    int code = recognise(store, schema->count, &version, err);

    if (code || version == (int64_t)schema->count)
        return code;
    code = query_exec(store, op, "BEGIN IMMEDIATE", err);
    if (code)
        return code;
    code = climb(store, schema, err);
    if (!code)
        code = query_exec(store, op, "COMMIT", err);
    if (code)
        (void)query_exec(store, op, "ROLLBACK", NULL);
    return code;
}
