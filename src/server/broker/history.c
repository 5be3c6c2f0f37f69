/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/history.h"

#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

enum {
    MINUTE_MS = 60 * 1000,
    FINE_MS = 15 * MINUTE_MS, /* how long each sample stays */
    DAY_MS = 24 * 60 * MINUTE_MS,
    LOGS_EACH = 10000, /* entries of a sandbox */
    LOGS_CHECK = 100   /* how often that is checked: each time so many were added */
};

enum statement {
    BEGIN,
    COMMIT,
    ADD,
    COUNT,
    FIND,
    PRUNE_FINE,
    PRUNE,
    ADD_LOG,
    OLDEST,
    NEWEST,
    PRUNE_EACH,
    PRUNE_LOGS,
    STATEMENTS
};

#define COLUMNS                                                                          \
    "cpus, cpu_permille, memory, memory_max, disk, disk_max, connections, refused, up, " \
    "down"
#define PERIOD "FROM samples WHERE sandbox = ?1 AND at_ms BETWEEN ?2 AND ?3 "

static const char schema[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
    "PRAGMA max_page_count = 1048576;" /* 4 GiB: it must not fill the disk */
    "CREATE TABLE IF NOT EXISTS samples (sandbox TEXT NOT NULL, at_ms INTEGER NOT NULL,"
    "  is_fine INTEGER NOT NULL, cpus INTEGER NOT NULL, cpu_permille INTEGER NOT NULL,"
    "  memory INTEGER NOT NULL, memory_max INTEGER NOT NULL, disk INTEGER NOT NULL,"
    "  disk_max INTEGER NOT NULL, connections INTEGER NOT NULL,"
    "  refused INTEGER NOT NULL, up INTEGER NOT NULL, down INTEGER NOT NULL,"
    "  PRIMARY KEY (sandbox, at_ms)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS samples_by_age ON samples (is_fine, at_ms);"
    "CREATE TABLE IF NOT EXISTS logs (number INTEGER PRIMARY KEY, sandbox TEXT NOT NULL,"
    "  at_ms INTEGER NOT NULL, level INTEGER NOT NULL, message TEXT NOT NULL,"
    "  fields TEXT NOT NULL) STRICT;"
    "CREATE INDEX IF NOT EXISTS logs_by_sandbox ON logs (sandbox, number);"
    "CREATE INDEX IF NOT EXISTS logs_by_age ON logs (at_ms)";

#define WANTED_LOGS                                                                      \
    "SELECT at_ms, level, message, fields FROM logs WHERE sandbox = ?1 AND level >= ?3 " \
    "AND instr(message, ?4) AND at_ms "

static const char *const texts[STATEMENTS] = {
    [BEGIN] = "BEGIN",
    [COMMIT] = "COMMIT",
    [ADD] = "INSERT OR IGNORE INTO samples (sandbox, at_ms, is_fine, " COLUMNS
            ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [COUNT] = "SELECT count(*) " PERIOD,
    [FIND] = "SELECT at_ms, " COLUMNS " " PERIOD "ORDER BY at_ms",
    [PRUNE_FINE] = "DELETE FROM samples WHERE is_fine = 1 AND at_ms < ?1",
    [PRUNE] = "DELETE FROM samples WHERE is_fine = 0 AND at_ms < ?1",
    [ADD_LOG] = "INSERT INTO logs (sandbox, at_ms, level, message, fields) VALUES "
                "(?, ?, ?, ?, ?)",
    [OLDEST] = WANTED_LOGS ">= ?2 ORDER BY number LIMIT ?5",
    [NEWEST] = WANTED_LOGS "<= ?2 ORDER BY number DESC LIMIT ?5",
    [PRUNE_EACH] = "DELETE FROM logs WHERE sandbox = ?1 AND number <= (SELECT number "
                   "FROM logs WHERE sandbox = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
    [PRUNE_LOGS] = "DELETE FROM logs WHERE at_ms < ?1",
};

struct history {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    uint64_t failures;
    int64_t pruned_ms;
    int file; /* -1: none.  Closed after SQLite closed it, as in registry.c */
};

static void close_db(struct history *history)
{
    for (int i = 0; i < STATEMENTS; i++) {
        sqlite3_finalize(history->statements[i]);
        history->statements[i] = NULL;
    }
    sqlite3_close(history->db);
    history->db = NULL;
    if (history->file >= 0)
        (void)close(history->file);
    history->file = -1;
}

/* Two servers with one store write to it, hence the wait, which is short: a sample is
 * not worth more. */
static bool open_db(struct history *history, const char *path)
{
    enum { BUSY_MS = 100 };
    bool is_file = strcmp(path, ":memory:") != 0;
    struct stat st;

    if (is_file) /* SQLite would create it with a wider mode */
        history->file =
            open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (is_file && (history->file < 0 || fstat(history->file, &st) != 0 ||
                    !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077))
        return false;
    if (sqlite3_open_v2(path, &history->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        return false;
    sqlite3_busy_timeout(history->db, BUSY_MS);
    if (sqlite3_exec(history->db, schema, NULL, NULL, NULL) != SQLITE_OK)
        return false;
    for (int i = 0; i < STATEMENTS; i++)
        if (sqlite3_prepare_v3(history->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &history->statements[i], NULL) != SQLITE_OK)
            return false;
    return true;
}

static void remove_file(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char name[PATH_MAX];

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        (void)unlink(name);
    }
}

int history_open(const char *path, struct history **ret_history, struct cay_error *err)
{
    struct history *history = calloc(1, sizeof *history);

    if (!history)
        return cay_fail_memory(err, "history");
    history->file = -1;
    bool is_open = open_db(history, path);
    int code = history->db ? sqlite3_errcode(history->db) & 0xff : SQLITE_OK;
    if (!is_open &&
        (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR)) {
        close_db(history);
        remove_file(path);
        is_open = open_db(history, path);
    }
    if (!is_open) {
        history_close(history);
        return cay_fail(err, CAY_E_IO, 0, "history", "store",
                        "the metrics of sandboxes cannot be stored",
                        "check the space and the owner of the file that ends in %s",
                        HISTORY_SUFFIX);
    }
    *ret_history = history;
    return CAY_OK;
}

void history_close(struct history *history)
{
    if (!history)
        return;
    close_db(history);
    free(history);
}

/* --- Writing --- */

static void step(struct history *history, enum statement which)
{
    sqlite3_stmt *statement = history->statements[which];

    history->failures += sqlite3_step(statement) != SQLITE_DONE;
    sqlite3_reset(statement);
}

void history_begin(struct history *history)
{
    step(history, BEGIN);
}

void history_commit(struct history *history)
{
    step(history, COMMIT);
    if (!sqlite3_get_autocommit(history->db)) /* it failed */
        (void)sqlite3_exec(history->db, "ROLLBACK", NULL, NULL, NULL);
}

void history_add(struct history *history, const char *id, int64_t at_ms,
                 const int64_t numbers[USAGE_NUMBERS])
{
    sqlite3_stmt *add = history->statements[ADD];
    int at = 1;

    sqlite3_bind_text(add, at++, id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(add, at++, at_ms);
    sqlite3_bind_int(add, at++, at_ms % MINUTE_MS != 0);
    for (int i = 0; i < USAGE_NUMBERS; i++)
        sqlite3_bind_int64(add, at++, numbers[i]);
    step(history, ADD);
    sqlite3_clear_bindings(add);
}

void history_prune(struct history *history, int64_t now_ms)
{
    if (now_ms >= history->pruned_ms && now_ms - history->pruned_ms < MINUTE_MS)
        return;
    history->pruned_ms = now_ms;
    sqlite3_bind_int64(history->statements[PRUNE_FINE], 1, now_ms - FINE_MS);
    sqlite3_bind_int64(history->statements[PRUNE], 1, now_ms - DAY_MS);
    sqlite3_bind_int64(history->statements[PRUNE_LOGS], 1, now_ms - DAY_MS);
    step(history, PRUNE_FINE);
    step(history, PRUNE);
    step(history, PRUNE_LOGS);
}

void history_add_log(struct history *history, const char *id, int64_t at_ms, int level,
                     const char *message, const char *fields)
{
    sqlite3_stmt *add = history->statements[ADD_LOG];
    sqlite3_stmt *prune = history->statements[PRUNE_EACH];

    sqlite3_bind_text(add, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(add, 2, at_ms);
    sqlite3_bind_int(add, 3, level);
    sqlite3_bind_text(add, 4, message, -1, SQLITE_STATIC);
    sqlite3_bind_text(add, 5, fields, -1, SQLITE_STATIC);
    step(history, ADD_LOG);
    sqlite3_clear_bindings(add);
    if (sqlite3_last_insert_rowid(history->db) % LOGS_CHECK != 0)
        return;
    sqlite3_bind_text(prune, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_int(prune, 2, LOGS_EACH);
    step(history, PRUNE_EACH);
    sqlite3_clear_bindings(prune);
}

/* --- Reading --- */

static void bind_period(sqlite3_stmt *statement, const char *id, int64_t from_ms,
                        int64_t to_ms)
{
    sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, from_ms);
    sqlite3_bind_int64(statement, 3, to_ms);
}

size_t history_find(struct history *history, const char *id, int64_t from_ms,
                    int64_t to_ms, struct usage_record *records, size_t most)
{
    sqlite3_stmt *count = history->statements[COUNT], *find = history->statements[FIND];
    size_t all = 0, found = 0, at = 0;

    bind_period(count, id, from_ms, to_ms);
    if (sqlite3_step(count) == SQLITE_ROW)
        all = (size_t)sqlite3_column_int64(count, 0);
    sqlite3_reset(count);
    size_t stride = all > most ? (all + most - 1) / most : 1;
    bind_period(find, id, from_ms, to_ms);
    for (; found < most && sqlite3_step(find) == SQLITE_ROW; at++) {
        if ((all - 1 - at) % stride) /* the newest one is among them */
            continue;
        struct usage_record *record = &records[found++];
        record->at_ms = sqlite3_column_int64(find, 0);
        for (int i = 0; i < USAGE_NUMBERS; i++)
            record->numbers[i] = sqlite3_column_int64(find, i + 1);
    }
    sqlite3_reset(find);
    return found;
}

static const char *text_of(sqlite3_stmt *statement, int column)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    return text ? (const char *)text : "";
}

void history_visit_logs(struct history *history, const struct history_filter *filter,
                        bool (*visit)(const struct history_log *log, void *cookie),
                        void *cookie)
{
    sqlite3_stmt *find = history->statements[filter->newest_first ? NEWEST : OLDEST];
    bool goes_on = true;

    sqlite3_bind_text(find, 1, filter->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(find, 2, filter->from_ms);
    sqlite3_bind_int(find, 3, filter->level);
    sqlite3_bind_text(find, 4, filter->search, -1, SQLITE_STATIC);
    sqlite3_bind_int64(find, 5, filter->limit);
    while (goes_on && sqlite3_step(find) == SQLITE_ROW) {
        const struct history_log log = {.at_ms = sqlite3_column_int64(find, 0),
                                        .level = sqlite3_column_int(find, 1),
                                        .message = text_of(find, 2),
                                        .fields = text_of(find, 3)};
        goes_on = visit(&log, cookie);
    }
    sqlite3_reset(find);
    sqlite3_clear_bindings(find);
}

uint64_t history_failures(const struct history *history)
{
    return history->failures;
}
