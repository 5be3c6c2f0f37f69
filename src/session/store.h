/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_STORE_H
#define SESSION_STORE_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "cay/session.h"

/* --- SQLite --- */

/* Loaded when the first store is opened: most programs have none. */

#define SQLITE_CALLS(X)                                                                  \
    X(sqlite3_bind_int64)                                                                \
    X(sqlite3_bind_text)                                                                 \
    X(sqlite3_busy_timeout)                                                              \
    X(sqlite3_changes)                                                                   \
    X(sqlite3_close_v2)                                                                  \
    X(sqlite3_column_int64)                                                              \
    X(sqlite3_column_text)                                                               \
    X(sqlite3_errmsg)                                                                    \
    X(sqlite3_exec)                                                                      \
    X(sqlite3_extended_result_codes)                                                     \
    X(sqlite3_finalize)                                                                  \
    X(sqlite3_libversion_number)                                                         \
    X(sqlite3_open_v2)                                                                   \
    X(sqlite3_prepare_v2)                                                                \
    X(sqlite3_step)                                                                      \
    X(sqlite3_system_errno)

struct sqlite {
#define X(name) typeof(&name) name;
    SQLITE_CALLS(X)
#undef X
};

/* Filled in once sqlite_load() has succeeded, for good. */
extern struct sqlite sqlite;

int sqlite_load(const char *op, struct cay_error *err);

/* One connection, which one thread uses at a time.  SQLite's own state does not survive a
 * fork: in any other process than its owner's the handle is of no use, and not even
 * closed. */
struct cay_store {
    sqlite3 *database;
    pthread_mutex_t mutex;
    pid_t owner;
    int locks; /* the file of the sessions' locks */
    bool is_in_memory;
    char name[256]; /* as the caller spelled it */
};

/* How a database of each version becomes one of the next; an empty one is version 0. */
struct schema {
    const char *const *steps;
    size_t count;
};
extern const struct schema schema_current;

int store_open(const char *path, const struct schema *schema, cay_store **ret_store,
               struct cay_error *err);

/* A recursive lock on the connection. */
int store_enter(cay_store *store, const char *op, struct cay_error *err);
void store_leave(cay_store *store);

/* CAY_E_INVALID unless each is UTF-8 text of 1 to 256 bytes. */
int store_check_ids(const char *op, const char *user_id, const char *session_id,
                    struct cay_error *err);

/* --- Statements --- */

/* One statement, from its text to its last row; the store is locked meanwhile.
 * query_step() reports any failure. */
struct query {
    cay_store *store; /* entered, if it could be */
    bool has_entered;
    const char *op;
    sqlite3_stmt *statement;
    int result;    /* SQLite's */
    int parameter; /* the next to be bound */
};
#define AUTO_QUERY __attribute__((cleanup(query_done))) struct query

struct query query_new(cay_store *store, const char *op, const char *sql);
void query_done(struct query *query);

/* The value of the next parameter; a text must stay where it is.  NULL is "". */
void query_text(struct query *query, const char *text);
void query_number(struct query *query, int64_t number);

/* 1: a row; 0: no more rows; or a code. */
int query_step(struct query *query, struct cay_error *err);

/* A column of the row. */
int64_t query_column_number(const struct query *query, int column);

/* All rows, at most `max` bytes: each column as text, with its NUL.  CAY_E_LIMIT. */
int query_collect(struct query *query, int columns, size_t max, struct buf *ret_texts,
                  size_t *ret_rows, struct cay_error *err);

/* Runs the statement to its end; *ret_changes (may be NULL) is the number of changed
 * rows. */
int query_run(struct query *query, int *ret_changes, struct cay_error *err);

/* Statements without parameters or rows: "BEGIN IMMEDIATE". */
int query_exec(cay_store *store, const char *op, const char *sql, struct cay_error *err);

/* --- Locks: OFD locks on single bytes of one file --- */

/* Byte 0 is for opening the store; each session has one byte, by its hash.  The locks
 * belong to an open file description, so they also exclude threads, and end with its last
 * descriptor. */
struct cay_session_lock {
    int fd;
    uint64_t byte;
    pid_t owner;
};

/* Hands the lock over to a child that was forked meanwhile and has a copy of it; NULL is
 * fine. */
void session_lock_leave_to_child(cay_session_lock *lock);

/* --- Rows: ledger.c --- */

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
