/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

enum {
    BUSY_MS = 5000,
    APPLICATION = 0x43617953 /* "CayS"; src/session may use the same file */
};

/* user_version belongs to src/session, so this version is in a table. */
static const char marks[] = "CREATE TABLE server (version INTEGER NOT NULL) STRICT;"
                            "INSERT INTO server VALUES (1);"
                            "PRAGMA application_id = 1130461523;";

static const char schema[] =
    "CREATE TABLE keys (number INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE,"
    "  tenant TEXT NOT NULL, shown TEXT NOT NULL, created_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE sandboxes (id TEXT PRIMARY KEY, tenant TEXT NOT NULL,"
    "  template TEXT NOT NULL, state INTEGER NOT NULL, started_ms INTEGER NOT NULL,"
    "  end_ms INTEGER NOT NULL, flags INTEGER NOT NULL, token_version INTEGER NOT NULL,"
    "  reason TEXT NOT NULL, metadata BLOB NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX sandboxes_by_start ON sandboxes (state, started_ms, id);";

/* Added later; stores without these tables have the same version. */
static const char listeners[] =
    "CREATE TABLE IF NOT EXISTS listeners (port INTEGER PRIMARY KEY,"
    "  has_tls INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS lives (port INTEGER PRIMARY KEY, runs INTEGER NOT NULL,"
    "  restarts INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS clock (boot TEXT PRIMARY KEY,"
    "  offset_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS secrets (id TEXT PRIMARY KEY, tenant TEXT NOT NULL,"
    "  name TEXT NOT NULL, version INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    "  updated_ms INTEGER NOT NULL, metadata BLOB NOT NULL, value BLOB NOT NULL,"
    "  UNIQUE (tenant, name)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS environments (id TEXT PRIMARY KEY,"
    "  value BLOB NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS snapshots (id TEXT PRIMARY KEY, tenant TEXT NOT NULL,"
    "  name TEXT, tag TEXT NOT NULL, sandbox TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    "  UNIQUE (tenant, name, tag)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS shared (name TEXT PRIMARY KEY, tenant TEXT NOT NULL,"
    "  digest TEXT NOT NULL, is_here INTEGER NOT NULL, flags INTEGER NOT NULL)"
    "  STRICT, WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS shared_by_tenant ON shared (tenant);"
    "CREATE TABLE IF NOT EXISTS returned (old TEXT PRIMARY KEY, id TEXT NOT NULL)"
    "  STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS shared_directory (id TEXT NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS ended_sessions (id TEXT PRIMARY KEY,"
    "  expires_s INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS key_facts (hash BLOB PRIMARY KEY, name TEXT NOT NULL,"
    "  is_admin INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TRIGGER IF NOT EXISTS key_removed AFTER DELETE ON keys BEGIN"
    "  DELETE FROM key_facts WHERE hash = OLD.hash; END;"
    "CREATE TABLE IF NOT EXISTS identity (id TEXT NOT NULL) STRICT;"
    "INSERT INTO identity SELECT lower(hex(randomblob(16)))"
    "  WHERE NOT EXISTS (SELECT 1 FROM identity)";

enum statement {
    ADD_KEY,
    FIND_KEY,
    REMOVE_KEY,
    KEYS,
    ADD_STORED,
    CHANGE_STORED,
    FIND_STORED,
    REMOVE_STORED,
    STORED,
    ADD_LISTENER,
    FIND_LISTENER,
    SET_CLOCK,
    FIND_CLOCK,
    ADD,
    ADD_ENV,
    FIND_ENV,
    REMOVE_ENV,
    UPDATE,
    SET_METADATA,
    FIND,
    NEWEST,
    OLDEST,
    COUNT,
    FORGET,
    STATEMENTS
};

/* Almost all rows are of ended sandboxes, and a page has few rows of many.  So each state
 * has its own part of the query, whose rows the index has in order: SQLite merges them,
 * sorts nothing, and reads a row when it is visited.  FORGET searches by start as well,
 * since a sandbox that ended before some time was started before it. */
#define COLUMNS                                                                          \
    "id, tenant, template, state, started_ms, end_ms, flags, token_version, reason, "    \
    "metadata"
#define STORED_COLUMNS                                                                   \
    "id, tenant, name, version, created_ms, updated_ms, metadata, value"
#define WANTED(state, side)                                                              \
    "SELECT " COLUMNS " FROM sandboxes WHERE state = " state " AND (?2 >> " state        \
    ") & 1 AND (?4 = 0 OR (started_ms, id) " side " (?4, ?5)) AND "                      \
    "(?6 = 0 OR started_ms >= ?6) AND (?1 IS NULL OR tenant = ?1) AND "                  \
    "(?3 IS NULL OR template = ?3) "
#define WANTED_ALL(side)                                                                 \
    WANTED("1", side) "UNION ALL " WANTED("2", side) "UNION ALL " WANTED("3", side)

static const char *const texts[STATEMENTS] = {
    [ADD_KEY] = "INSERT INTO keys (hash, tenant, shown, created_ms) VALUES (?, ?, ?, ?)",
    [FIND_KEY] = "SELECT tenant FROM keys WHERE hash = ?",
    [REMOVE_KEY] = "DELETE FROM keys WHERE number = ?",
    [KEYS] = "SELECT number, tenant, shown, created_ms, hash, name, is_admin FROM keys "
             "LEFT JOIN key_facts USING (hash) ORDER BY number",
    [ADD_STORED] = "INSERT OR IGNORE INTO secrets (" STORED_COLUMNS
                   ") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    [CHANGE_STORED] = "UPDATE secrets SET version = ?1, updated_ms = ?2, metadata = ?3, "
                      "value = ?4 WHERE id = ?5 AND version = ?1 - 1",
    [FIND_STORED] = "SELECT " STORED_COLUMNS
                    " FROM secrets WHERE tenant = ?1 AND (id = ?2 OR name = lower(?2))",
    [REMOVE_STORED] =
        "DELETE FROM secrets WHERE tenant = ?1 AND (id = ?2 OR name = lower(?2))",
    [STORED] = "SELECT " STORED_COLUMNS
               " FROM secrets WHERE (?1 IS NULL OR tenant = ?1) AND name > ?2 "
               "ORDER BY tenant, name",
    [ADD_LISTENER] = "INSERT OR REPLACE INTO listeners VALUES (?, ?)",
    [FIND_LISTENER] = "SELECT has_tls FROM listeners WHERE port = ?",
    [SET_CLOCK] = "INSERT OR IGNORE INTO clock VALUES (?, ?)",
    [FIND_CLOCK] = "SELECT offset_ms FROM clock WHERE boot = ?",
    [ADD] = "INSERT INTO sandboxes (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [ADD_ENV] = "INSERT INTO environments VALUES (?, ?)",
    [FIND_ENV] = "SELECT value FROM environments WHERE id = ?",
    [REMOVE_ENV] = "DELETE FROM environments WHERE id = ?",
    [UPDATE] = "UPDATE sandboxes SET state = ?, started_ms = ?, end_ms = ?, flags = ?, "
               "reason = ? WHERE id = ?",
    [SET_METADATA] = "UPDATE sandboxes SET metadata = ? WHERE id = ?",
    [FIND] = "SELECT " COLUMNS " FROM sandboxes WHERE id = ?",
    [NEWEST] = WANTED_ALL("<") "ORDER BY started_ms DESC, id DESC",
    [OLDEST] = WANTED_ALL(">") "ORDER BY started_ms, id",
    [COUNT] = "SELECT count(*) FROM sandboxes WHERE state = ?2 AND "
              "(?1 IS NULL OR tenant = ?1)",
    [FORGET] = "DELETE FROM sandboxes WHERE state = 3 AND started_ms <= ?1 AND "
               "end_ms < ?1",
};

struct registry {
    sqlite3 *db; /* NULL: registry_recover() could not open it */
    char *path;
    char identity[STORE_ID_MAX];
    int lock; /* the file, with a shared flock(2), so that a store in use is not replaced
               */
    bool is_new, is_exclusive, is_damaged;
    sqlite3_stmt *statements[STATEMENTS];
};

static int fail_damaged(struct cay_error *err)
{
    return cay_fail(err, CAY_E_IO, 0, "registry", "store", "the store is damaged",
                    "cay serve --check-store reports the problems; cay serve "
                    "--rebuild-store recreates the records from the running sandboxes");
}

static int fail(struct registry *registry, const char *what, struct cay_error *err)
{
    int code = sqlite3_errcode(registry->db);
    int error = sqlite3_system_errno(registry->db);

    if (!registry->db)
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, "registry", what,
                        "the store cannot be opened", "try again in a moment");
    if (code == SQLITE_FULL ||
        ((code & 0xff) == SQLITE_IOERR && (error == ENOSPC || error == EDQUOT)))
        return cay_fail(err, CAY_E_NO_SPACE, ENOSPC, "registry", what,
                        "the disk of the store is full", "free some space");
    if ((code & 0xff) == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return fail_damaged(err);
    return cay_fail(err, code == SQLITE_BUSY ? CAY_E_BUSY : CAY_E_IO, 0, "registry", what,
                    "the store cannot be read or written",
                    "check that it is on a healthy local disk (sqlite %d)",
                    sqlite3_extended_errcode(registry->db));
}

struct sqlite3 *registry_db(struct registry *registry)
{
    return registry->db;
}

int registry_fail(struct registry *registry, const char *what, struct cay_error *err)
{
    return fail(registry, what, err);
}

/* --- Opening --- */

static bool run(struct registry *registry, const char *text)
{
    return sqlite3_exec(registry->db, text, NULL, NULL, NULL) == SQLITE_OK;
}

/* The number that a statement returns; 0 if it returns none. */
static int number_of(struct registry *registry, const char *text)
{
    sqlite3_stmt *statement = NULL;
    int number = 0;

    if (sqlite3_prepare_v2(registry->db, text, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        number = sqlite3_column_int(statement, 0);
    registry->is_damaged |= (sqlite3_errcode(registry->db) & 0xff) == SQLITE_CORRUPT;
    sqlite3_finalize(statement);
    return number;
}

static int fail_foreign(const char *message, const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, "registry.open", "store", message, "%s",
                    hint);
}

/* What the file contains. */
struct found {
    int application, version, tables, ours;
};

/* Does not change the database of another program. */
static int recognise(struct registry *registry, struct found *found,
                     struct cay_error *err)
{
    *found = (struct found){
        .application = number_of(registry, "PRAGMA application_id"),
        .version = number_of(registry, "SELECT version FROM server"),
        .tables = number_of(registry, "SELECT count(*) FROM sqlite_schema"),
        .ours = number_of(registry, "SELECT count(*) FROM sqlite_schema WHERE type = "
                                    "'table' AND name IN ('keys', 'sandboxes')")};
    if (registry->is_damaged)
        return fail_damaged(err);
    if (found->version && found->version != REGISTRY_SCHEMA)
        return fail_foreign("the store was created by another version of Cay",
                            "use that version, or another --store", err);
    if (found->application != APPLICATION && (found->application || found->tables) &&
        found->ours != 2)
        return fail_foreign("the file is the database of another program",
                            "choose a new file", err);
    return CAY_OK;
}

/* Creates missing tables.  Two processes may do so at the same time. */
static int migrate(struct registry *registry, struct cay_error *err)
{
    struct found found;
    int code = recognise(registry, &found, err);

    if (code)
        return code;
    if (!run(registry, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                       "BEGIN IMMEDIATE"))
        return fail(registry, "open", err);
    code = recognise(registry, &found, err);
    bool is_fresh = !code && !found.version;
    if (is_fresh)
        registry->is_new = found.ours == 0;
    if (is_fresh &&
        ((registry->is_new && !run(registry, schema)) || !run(registry, marks) ||
         (!found.application && !run(registry, "PRAGMA user_version = 0"))))
        code = fail(registry, "open", err);
    if (!code && !run(registry, listeners))
        code = fail(registry, "open", err);
    if (!run(registry, code ? "ROLLBACK" : "COMMIT") && !code)
        code = fail(registry, "open", err);
    return code;
}

/* SQLite would create it with a wider mode.  Closed only after SQLite closed it: closing
 * any descriptor of a file releases all fcntl(2) locks of the process on it. */
static int make_file(const char *path, int *ret_fd, struct cay_error *err)
{
    struct stat st;
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    if (fd < 0 || fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, "registry.open", "store");
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077)
        return cay_fail(err, CAY_E_DENIED, 0, "registry.open", "store",
                        "other users can read or write the store",
                        "restrict it: chmod 0600");
    if (flock(fd, LOCK_SH | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, "registry.open", "store",
                        "the store is being rebuilt", "try again in a moment");
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

static void close_db(struct registry *registry)
{
    for (int i = 0; i < STATEMENTS; i++) {
        sqlite3_finalize(registry->statements[i]);
        registry->statements[i] = NULL;
    }
    sqlite3_close(registry->db);
    registry->db = NULL;
}

/* `exclusive`: for a disk without space for the file of the WAL index.  SQLite then keeps
 * the index in memory, so no other process can use the store. */
static int open_db(struct registry *registry, bool exclusive, bool waits,
                   struct cay_error *err)
{
    int code = CAY_OK;

    if (sqlite3_open_v2(registry->path, &registry->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
                            SQLITE_OPEN_EXRESCODE,
                        NULL) != SQLITE_OK)
        code = fail(registry, "open", err);
    registry->is_exclusive = exclusive;
    if (!code) {
        registry_set_waiting(registry, waits);
        if (exclusive && !run(registry, "PRAGMA locking_mode = EXCLUSIVE"))
            code = fail(registry, "open", err);
    }
    if (!code)
        code = migrate(registry, err);
    for (int i = 0; i < STATEMENTS && !code; i++)
        if (sqlite3_prepare_v3(registry->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &registry->statements[i], NULL) != SQLITE_OK)
            code = fail(registry, "prepare", err);
    sqlite3_stmt *identity = NULL;
    if (!code &&
        sqlite3_prepare_v2(registry->db, "SELECT id FROM identity", -1, &identity,
                           NULL) == SQLITE_OK &&
        sqlite3_step(identity) == SQLITE_ROW)
        cay_copy_text(registry->identity, STORE_ID_MAX,
                      (const char *)sqlite3_column_text(identity, 0));
    sqlite3_finalize(identity);
    if (code)
        close_db(registry);
    return code;
}

int registry_open(const char *path, struct registry **ret_registry, struct cay_error *err)
{
    struct registry *registry = calloc(1, sizeof *registry);

    if (!registry)
        return cay_fail_memory(err, "registry.open");
    registry->lock = -1;
    int code =
        strcmp(path, ":memory:") == 0 ? CAY_OK : make_file(path, &registry->lock, err);
    registry->path = registry->lock < 0 ? strdup(path) : realpath(path, NULL);
    if (!code && !registry->path)
        code = cay_fail_memory(err, "registry.open");
    if (!code)
        code = open_db(registry, false, true, err);
    if (code == CAY_E_NO_SPACE)
        code = open_db(registry, true, true, err);
    if (code)
        registry_close(registry);
    else
        *ret_registry = registry;
    return code;
}

bool registry_is_exclusive(const struct registry *registry)
{
    return registry->is_exclusive;
}

bool registry_recover(struct registry *registry)
{
    if (registry->is_exclusive) {
        close_db(registry); /* an exclusive lock is released first */
        if (open_db(registry, false, false, NULL) != CAY_OK)
            (void)!open_db(registry, true, false, NULL);
        registry_set_waiting(registry, true);
    }
    return !registry->is_exclusive;
}

void registry_close(struct registry *registry)
{
    if (!registry)
        return;
    close_db(registry);
    if (registry->lock >= 0)
        (void)close(registry->lock);
    free(registry->path);
    free(registry);
}

const char *registry_identity(const struct registry *registry)
{
    return registry->identity;
}

const char *registry_path(const struct registry *registry)
{
    return registry->path;
}

int registry_check(struct registry *registry, bool thorough,
                   void (*visit)(const char *line), struct cay_error *err)
{
    sqlite3_stmt *statement = NULL;
    bool is_fine = true;
    int result = sqlite3_prepare_v2(
        registry->db, thorough ? "PRAGMA integrity_check" : "PRAGMA quick_check(1)", -1,
        &statement, NULL);

    while (result == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW) {
        const char *line = (const char *)sqlite3_column_text(statement, 0);
        if (line && strcmp(line, "ok") == 0)
            continue;
        is_fine = false;
        if (visit && line)
            visit(line);
    }
    int code = result == SQLITE_OK ? CAY_OK : fail(registry, "check", err);
    if (sqlite3_finalize(statement) != SQLITE_OK && !code)
        code = fail(registry, "check", err);
    return code ? code : is_fine ? CAY_OK : fail_damaged(err);
}

bool registry_is_new(const struct registry *registry)
{
    return registry->is_new;
}

void registry_set_waiting(struct registry *registry, bool waits)
{
    if (registry->db)
        sqlite3_busy_timeout(registry->db, waits ? BUSY_MS : 0);
}

/* --- Statements --- */

static void put_text(sqlite3_stmt *statement, int at, const char *text)
{
    sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

/* There are no statements while the store is closed. */
static void finish(sqlite3_stmt *statement)
{
    sqlite3_reset(statement);
    if (statement)
        sqlite3_clear_bindings(statement);
}

/* Runs a statement that returns no rows. */
static int step(struct registry *registry, enum statement which, const char *what,
                struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[which];
    int result = sqlite3_step(statement);
    int code = result == SQLITE_DONE ? CAY_OK : fail(registry, what, err);

    finish(statement);
    return code;
}

static void copy(sqlite3_stmt *statement, int column, char *field, size_t room)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    cay_copy_text(field, room, text ? (const char *)text : "");
}

/* --- Keys --- */

int registry_add_key(struct registry *registry, const unsigned char hash[KEY_HASH],
                     const struct key_row *row, struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[ADD_KEY];

    sqlite3_bind_blob(statement, 1, hash, KEY_HASH, SQLITE_STATIC);
    put_text(statement, 2, row->tenant);
    put_text(statement, 3, row->shown);
    sqlite3_bind_int64(statement, 4, row->created_ms);
    return step(registry, ADD_KEY, "key", err);
}

int registry_find_key(struct registry *registry, const unsigned char hash[KEY_HASH],
                      char ret_tenant[TENANT_MAX], struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[FIND_KEY];

    sqlite3_bind_blob(statement, 1, hash, KEY_HASH, SQLITE_STATIC);
    int result = sqlite3_step(statement), code = CAY_OK;
    if (result == SQLITE_ROW)
        copy(statement, 0, ret_tenant, TENANT_MAX);
    else if (result == SQLITE_DONE)
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, "registry.key", NULL, "unknown API key",
                        "create one with cay key new");
    else
        code = fail(registry, "key", err);
    finish(statement);
    return code;
}

int registry_remove_key(struct registry *registry, int64_t number, struct cay_error *err)
{
    sqlite3_bind_int64(registry->statements[REMOVE_KEY], 1, number);
    int code = step(registry, REMOVE_KEY, "key", err);
    if (!code && sqlite3_changes(registry->db) == 0)
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, "registry.key", NULL,
                        "there is no key with this number", "cay key ls lists them");
    return code;
}

int registry_visit_keys(struct registry *registry,
                        void (*visit)(const struct key_row *row, void *cookie),
                        void *cookie, struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[KEYS];
    int result;

    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        struct key_row row = {.number = sqlite3_column_int64(statement, 0),
                              .created_ms = sqlite3_column_int64(statement, 3),
                              .is_admin = sqlite3_column_int(statement, 6)};
        copy(statement, 1, row.tenant, sizeof row.tenant);
        copy(statement, 2, row.shown, sizeof row.shown);
        copy(statement, 5, row.name, sizeof row.name);
        if (sqlite3_column_bytes(statement, 4) == KEY_HASH)
            memcpy(row.hash, sqlite3_column_blob(statement, 4), KEY_HASH);
        visit(&row, cookie);
    }
    int code = result == SQLITE_DONE ? CAY_OK : fail(registry, "keys", err);
    sqlite3_reset(statement);
    return code;
}

/* --- Stored secrets --- */

static void put_bytes(sqlite3_stmt *statement, int at, const struct buf *bytes)
{
    sqlite3_bind_blob(statement, at, bytes->len ? bytes->data : "", (int)bytes->len,
                      SQLITE_STATIC);
}

static void read_stored(sqlite3_stmt *statement, struct stored_row *row)
{
    struct buf *const bytes[] = {&row->metadata, &row->value};

    copy(statement, 0, row->id, sizeof row->id);
    copy(statement, 1, row->tenant, sizeof row->tenant);
    copy(statement, 2, row->name, sizeof row->name);
    row->version = sqlite3_column_int64(statement, 3);
    row->created_ms = sqlite3_column_int64(statement, 4);
    row->updated_ms = sqlite3_column_int64(statement, 5);
    for (int i = 0; i < 2; i++) {
        bytes[i]->len = 0;
        (void)buf_append(bytes[i], sqlite3_column_blob(statement, 6 + i),
                         (size_t)sqlite3_column_bytes(statement, 6 + i));
    }
}

static int fail_no_secret(const char *which, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, "registry.secret", which,
                    "there is no stored secret with this name",
                    "cay secret ls lists them");
}

int registry_add_stored(struct registry *registry, const struct stored_row *row,
                        struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[ADD_STORED];

    put_text(statement, 1, row->id);
    put_text(statement, 2, row->tenant);
    put_text(statement, 3, row->name);
    sqlite3_bind_int64(statement, 4, row->version);
    sqlite3_bind_int64(statement, 5, row->created_ms);
    sqlite3_bind_int64(statement, 6, row->updated_ms);
    put_bytes(statement, 7, &row->metadata);
    put_bytes(statement, 8, &row->value);
    int code = step(registry, ADD_STORED, "secret", err);
    if (!code && sqlite3_changes(registry->db) == 0)
        code = cay_fail(err, CAY_E_EXISTS, 0, "registry.secret", row->name,
                        "a secret with this name exists", "choose another name");
    return code;
}

int registry_change_stored(struct registry *registry, const struct stored_row *row,
                           struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[CHANGE_STORED];

    sqlite3_bind_int64(statement, 1, row->version);
    sqlite3_bind_int64(statement, 2, row->updated_ms);
    put_bytes(statement, 3, &row->metadata);
    put_bytes(statement, 4, &row->value);
    put_text(statement, 5, row->id);
    int code = step(registry, CHANGE_STORED, "secret", err);
    if (!code && sqlite3_changes(registry->db) == 0)
        code =
            cay_fail(err, CAY_E_BUSY, 0, "registry.secret", row->name,
                     "another process changed the secret at the same time", "try again");
    return code;
}

int registry_find_stored(struct registry *registry, const char *tenant, const char *which,
                         struct stored_row *ret_row, struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[FIND_STORED];
    int code = CAY_OK;

    put_text(statement, 1, tenant);
    put_text(statement, 2, which);
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        read_stored(statement, ret_row);
    else
        code = result == SQLITE_DONE ? fail_no_secret(which, err)
                                     : fail(registry, "secret", err);
    finish(statement);
    return code;
}

int registry_remove_stored(struct registry *registry, const char *tenant,
                           const char *which, struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[REMOVE_STORED];

    put_text(statement, 1, tenant);
    put_text(statement, 2, which);
    int code = step(registry, REMOVE_STORED, "secret", err);
    return code || sqlite3_changes(registry->db) ? code : fail_no_secret(which, err);
}

int registry_visit_stored(struct registry *registry, const char *tenant,
                          const char *after,
                          bool (*visit)(const struct stored_row *row, void *cookie),
                          void *cookie, struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[STORED];
    AUTO_STORED row = STORED_INIT;
    int result;

    if (tenant)
        put_text(statement, 1, tenant);
    put_text(statement, 2, after);
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        read_stored(statement, &row);
        if (!visit(&row, cookie)) {
            result = SQLITE_DONE;
            break;
        }
    }
    int code = result == SQLITE_DONE ? CAY_OK : fail(registry, "secrets", err);
    finish(statement);
    return code;
}

/* --- Ports --- */

int registry_add_listener(struct registry *registry, uint16_t port, bool has_tls,
                          struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[ADD_LISTENER];

    sqlite3_bind_int(statement, 1, port);
    sqlite3_bind_int(statement, 2, has_tls);
    return step(registry, ADD_LISTENER, "listener", err);
}

int registry_find_listener(struct registry *registry, uint16_t port, bool *ret_has_tls,
                           struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[FIND_LISTENER];

    sqlite3_bind_int(statement, 1, port);
    int result = sqlite3_step(statement);
    *ret_has_tls = result == SQLITE_ROW && sqlite3_column_int(statement, 0);
    int code = result == SQLITE_ROW || result == SQLITE_DONE
                   ? CAY_OK
                   : fail(registry, "listener", err);
    sqlite3_reset(statement);
    return code;
}

/* --- Time --- */

static bool find_clock(struct registry *registry, const char *boot_id, int64_t *offset_ms)
{
    sqlite3_stmt *statement = registry->statements[FIND_CLOCK];

    put_text(statement, 1, boot_id);
    bool found = sqlite3_step(statement) == SQLITE_ROW;
    if (found)
        *offset_ms = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return found;
}

/* Rows of earlier boots are unused, but not worth a write to remove. */
int registry_find_clock(struct registry *registry, const char *boot_id,
                        int64_t *offset_ms, struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[SET_CLOCK];

    if (find_clock(registry, boot_id, offset_ms))
        return CAY_OK;
    put_text(statement, 1, boot_id);
    sqlite3_bind_int64(statement, 2, *offset_ms);
    int code = step(registry, SET_CLOCK, "clock", err);
    (void)find_clock(registry, boot_id,
                     offset_ms); /* another server may have written it first */
    return code;
}

/* --- Sandboxes --- */

static void read_row(sqlite3_stmt *statement, struct record_row *row)
{
    copy(statement, 0, row->id, sizeof row->id);
    copy(statement, 1, row->tenant, sizeof row->tenant);
    copy(statement, 2, row->template_name, sizeof row->template_name);
    row->state = (enum record_state)sqlite3_column_int(statement, 3);
    row->started_ms = sqlite3_column_int64(statement, 4);
    row->end_ms = sqlite3_column_int64(statement, 5);
    row->flags = (uint32_t)sqlite3_column_int64(statement, 6);
    row->token_version = (uint32_t)sqlite3_column_int64(statement, 7);
    copy(statement, 8, row->reason, sizeof row->reason);
    row->metadata.len = 0;
    (void)buf_append(&row->metadata, sqlite3_column_blob(statement, 9),
                     (size_t)sqlite3_column_bytes(statement, 9));
}

static int add_row(struct registry *registry, const struct record_row *row,
                   struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[ADD];

    put_text(statement, 1, row->id);
    put_text(statement, 2, row->tenant);
    put_text(statement, 3, row->template_name);
    sqlite3_bind_int(statement, 4, (int)row->state);
    sqlite3_bind_int64(statement, 5, row->started_ms);
    sqlite3_bind_int64(statement, 6, row->end_ms);
    sqlite3_bind_int64(statement, 7, row->flags);
    sqlite3_bind_int64(statement, 8, row->token_version);
    put_text(statement, 9, row->reason);
    sqlite3_bind_blob(statement, 10, row->metadata.len ? row->metadata.data : "",
                      (int)row->metadata.len, SQLITE_STATIC);
    return step(registry, ADD, "sandbox", err);
}

static int add_env(struct registry *registry, const char *id, const struct buf *env,
                   struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[ADD_ENV];

    put_text(statement, 1, id);
    sqlite3_bind_blob(statement, 2, env->data, (int)env->len, SQLITE_STATIC);
    return step(registry, ADD_ENV, "sandbox", err);
}

int registry_add(struct registry *registry, const struct record_row *row,
                 const struct buf *env, struct cay_error *err)
{
    if (!env || !env->len)
        return add_row(registry, row, err);
    if (!run(registry, "BEGIN IMMEDIATE"))
        return fail(registry, "sandbox", err);
    int code = add_env(registry, row->id, env, err);
    if (!code)
        code = add_row(registry, row, err);
    if (!code && !run(registry, "COMMIT"))
        code = fail(registry, "sandbox", err);
    if (code)
        (void)run(registry, "ROLLBACK");
    return code;
}

int registry_find_env(struct registry *registry, const char *id, struct buf *ret_env,
                      struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[FIND_ENV];
    int code = CAY_OK;

    put_text(statement, 1, id);
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        (void)buf_append(ret_env, sqlite3_column_blob(statement, 0),
                         (size_t)sqlite3_column_bytes(statement, 0));
    else if (result != SQLITE_DONE)
        code = fail(registry, "sandbox", err);
    finish(statement);
    return !code && ret_env->failed ? cay_fail_memory(err, "registry.env") : code;
}

int registry_update(struct registry *registry, const struct record_row *row,
                    struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[UPDATE];

    sqlite3_bind_int(statement, 1, (int)row->state);
    sqlite3_bind_int64(statement, 2, row->started_ms);
    sqlite3_bind_int64(statement, 3, row->end_ms);
    sqlite3_bind_int64(statement, 4, row->flags);
    put_text(statement, 5, row->reason);
    put_text(statement, 6, row->id);
    TRY(step(registry, UPDATE, "sandbox", err));
    if (row->state != RECORD_GONE)
        return CAY_OK;
    put_text(registry->statements[REMOVE_ENV], 1, row->id);
    return step(registry, REMOVE_ENV, "sandbox", err);
}

int registry_set_metadata(struct registry *registry, const char *id,
                          const struct buf *metadata, struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[SET_METADATA];

    sqlite3_bind_blob(statement, 1, metadata->len ? metadata->data : "",
                      (int)metadata->len, SQLITE_STATIC);
    put_text(statement, 2, id);
    return step(registry, SET_METADATA, "sandbox", err);
}

int registry_find(struct registry *registry, const char *id, struct record_row *ret_row,
                  struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[FIND];
    int code = CAY_OK;

    put_text(statement, 1, id);
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        read_row(statement, ret_row);
    else if (result == SQLITE_DONE)
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, "registry.find", id,
                        "the sandbox does not exist", "list the sandboxes");
    else
        code = fail(registry, "sandbox", err);
    finish(statement);
    return code;
}

int registry_visit(struct registry *registry, const struct registry_filter *filter,
                   bool (*visit)(const struct record_row *row, void *cookie),
                   void *cookie, struct cay_error *err)
{
    sqlite3_stmt *statement =
        registry->statements[filter->oldest_first ? OLDEST : NEWEST];
    AUTO_RECORD row = RECORD_INIT;
    int result;

    if (filter->tenant)
        put_text(statement, 1, filter->tenant);
    sqlite3_bind_int(statement, 2, (int)filter->states);
    if (filter->template_name)
        put_text(statement, 3, filter->template_name);
    sqlite3_bind_int64(statement, 4, filter->after_ms);
    put_text(statement, 5, filter->after_id ? filter->after_id : "");
    sqlite3_bind_int64(statement, 6, filter->started_after_ms);
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        read_row(statement, &row);
        if (!visit(&row, cookie)) {
            result = SQLITE_DONE;
            break;
        }
    }
    int code = result == SQLITE_DONE ? CAY_OK : fail(registry, "sandboxes", err);
    finish(statement);
    return code;
}

int registry_count(struct registry *registry, const char *tenant, enum record_state state,
                   int64_t *ret_count, struct cay_error *err)
{
    sqlite3_stmt *statement = registry->statements[COUNT];
    int code = CAY_OK;

    if (tenant)
        put_text(statement, 1, tenant);
    sqlite3_bind_int(statement, 2, (int)state);
    if (sqlite3_step(statement) == SQLITE_ROW)
        *ret_count = sqlite3_column_int64(statement, 0);
    else
        code = fail(registry, "sandboxes", err);
    finish(statement);
    return code;
}

int registry_forget(struct registry *registry, int64_t before_ms, struct cay_error *err)
{
    sqlite3_bind_int64(registry->statements[FORGET], 1, before_ms);
    return step(registry, FORGET, "sandboxes", err);
}

/* --- The clock of the rows --- */

enum {
    STEP_MS = 1000,  /* smaller differences are due to reading two clocks in sequence */
    READING_MS = 100 /* longer: the process was preempted between the two readings */
};

static int64_t clock_offset_ms, clock_step_ms;
static bool clock_is_set;

static int64_t boot_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void server_clock_set(int64_t offset)
{
    clock_offset_ms = offset;
    clock_step_ms = 0;
    clock_is_set = true;
}

int64_t server_clock_offset(void)
{
    if (!clock_is_set)
        server_clock_set(clock_since_1970_ms() - boot_ms());
    return clock_offset_ms;
}

int64_t server_clock_ms(void)
{
    return boot_ms() + server_clock_offset();
}

int64_t server_clock_step_ms(void)
{
    int64_t before = server_clock_ms();
    int64_t measured = clock_since_1970_ms() - before;

    if (server_clock_ms() - before < READING_MS &&
        (measured > clock_step_ms + STEP_MS || measured < clock_step_ms - STEP_MS))
        clock_step_ms = measured;
    return clock_step_ms;
}
