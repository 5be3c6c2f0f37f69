/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_HISTORY_H
#define SERVER_BROKER_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "cay/error.h"
#include "server/wire/usage.h"

/* What sandboxes used: a database next to the store, which may be lost without harm.
 * It has each sample of the last quarter of an hour, and one in a minute of the last
 * day. */
struct history;

#define HISTORY_SUFFIX "-history" /* after the path of the store */

/* ":memory:": no file.  A damaged file is replaced. */
int history_open(const char *path, struct history **ret_history, struct cay_error *err);
void history_close(struct history *history); /* may be NULL */

/* Several calls are one transaction.  A sample that exists is not replaced.  Failures
 * are counted, not reported: a full disk must not stop the server. */
void history_begin(struct history *history);
void history_add(struct history *history, const char *id, int64_t at_ms,
                 const int64_t numbers[USAGE_NUMBERS]);
void history_commit(struct history *history);

/* Deletes what is too old, and what is no longer needed between the minutes. */
void history_prune(struct history *history, int64_t now_ms);

/* The samples of a sandbox in this period, oldest first; if there are more than `most`,
 * evenly chosen ones.  Returns their number. */
size_t history_find(struct history *history, const char *id, int64_t from_ms,
                    int64_t to_ms, struct usage_record *records, size_t most);

/* --- Logs of sandboxes: the last day, and 10,000 entries of each --- */

struct history_log {
    int64_t at_ms;
    int level; /* enum log_level */
    const char *message, *fields;
};

void history_add_log(struct history *history, const char *id, int64_t at_ms, int level,
                     const char *message, const char *fields);

struct history_filter {
    const char *id;
    int64_t from_ms, limit;
    int level; /* the least */
    bool newest_first;
    const char *search; /* "": any message */
};
/* `visit` returns false to stop. */
void history_visit_logs(struct history *history, const struct history_filter *filter,
                        bool (*visit)(const struct history_log *log, void *cookie),
                        void *cookie);

uint64_t history_failures(const struct history *history);

#endif
