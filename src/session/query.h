/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_QUERY_H
#define SESSION_QUERY_H

#include "base/buf.h"
#include "session/store.h"

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

/* Columns of the row; a text lives until the next step. */
const char *query_column(const struct query *query, int column);
int64_t query_column_number(const struct query *query, int column);

/* All rows, at most `max` bytes: each column as text, with its NUL.  CAY_E_LIMIT. */
int query_collect(struct query *query, int columns, size_t max, struct buf *ret_texts,
                  size_t *ret_rows, struct cay_error *err);

/* Runs the statement to its end; *ret_changes (may be NULL) is the number of changed
 * rows. */
int query_run(struct query *query, int *ret_changes, struct cay_error *err);

/* Statements without parameters or rows: "BEGIN IMMEDIATE". */
int query_exec(cay_store *store, const char *op, const char *sql, struct cay_error *err);

/* The error for a result of SQLite. */
int query_fail(const cay_store *store, int result, const char *op, struct cay_error *err);

#endif
