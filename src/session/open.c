/* SPDX-License-Identifier: Apache-2.0 */

/* Opens a store.  SQLite takes a path, so the directory must not be writable by other
 * users; the database, its write-ahead log and the lock file are side by side in it.
 *
 * SQLite uses fcntl(2) locks, which vanish as soon as the process closes any descriptor
 * of the file: so nothing here opens the database itself. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "session/lock.h"
#include "session/query.h"
#include "sys/path.h"
#include "sys/state-home.h"

static const char op[] = "store.open";

enum { BUSY_MS = 30000, OPENING = 0 /* the byte to lock */ };

static void auto_cay_store(cay_store **store)
{
    cay_store_free(*store);
}

enum { APPLICATION = 0x43617953 /* "CayS": identifies our databases */ };

/* `changed` counts the changes of all sessions and orders them where the clock cannot.
 *
 * A row of `starts` is written before a sandbox is created and removed when the session
 * has it: what a crash leaves between the two is found by its mark. */
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

static int read_number(cay_store *store, const char *sql, int64_t *ret_number,
                       struct cay_error *err)
{
    AUTO_QUERY query = query_new(store, op, sql);
    int code = query_step(&query, err);

    *ret_number = code > 0 ? query_column_number(&query, 0) : 0;
    return code < 0 ? code : CAY_OK;
}

/* Reads the version; refuses databases of other programs. */
static int read_version(cay_store *store, size_t newest, int64_t *ret_version,
                        struct cay_error *err)
{
    int64_t application = 0, tables = 0;

    int code = read_number(store, "PRAGMA application_id", &application, err);
    if (!code)
        code = read_number(store, "PRAGMA user_version", ret_version, err);
    if (!code && !application)
        code = read_number(store, "SELECT count(*) FROM sqlite_schema", &tables, err);
    if (code)
        return code;
    if (application != APPLICATION && (application || *ret_version || tables))
        return cay_fail(err, CAY_E_INVALID, 0, op, store->name,
                        "the file is the database of another program",
                        "choose a file that does not exist yet");
    if (*ret_version < 0 || *ret_version > (int64_t)newest)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, store->name,
                        "the database was written by a newer version of cay",
                        "this is libcay %s; use a newer one", CAY_VERSION);
    return CAY_OK;
}

static int migrate(cay_store *store, const struct schema *schema, struct cay_error *err)
{
    char mark[96];
    int64_t version = 0;

    int code = read_version(store, schema->count, &version, err);
    for (size_t i = (size_t)version; !code && i < schema->count; i++)
        code = query_exec(store, op, schema->steps[i], err);
    snprintf(mark, sizeof mark, "PRAGMA application_id=%d; PRAGMA user_version=%zu",
             APPLICATION, schema->count);
    return code ? code : query_exec(store, op, mark, err);
}

int schema_apply(cay_store *store, const struct schema *schema, struct cay_error *err)
{
    int64_t version = 0;
    int code = read_version(store, schema->count, &version, err);

    if (code || version == (int64_t)schema->count)
        return code;
    code = query_exec(store, op, "BEGIN IMMEDIATE", err);
    if (code)
        return code;
    code = migrate(store, schema, err);
    if (!code)
        code = query_exec(store, op, "COMMIT", err);
    if (code)
        (void)query_exec(store, op, "ROLLBACK", NULL);
    return code;
}

/* --- Where it is --- */

struct place {
    int dir;
    char name[NAME_MAX + 1];
};

static int find_default(struct place *place, struct cay_error *err)
{
    snprintf(place->name, sizeof place->name, "cay.db");
    place->dir = state_home_open(true, err);
    return place->dir < 0 ? place->dir : CAY_OK;
}

static int find_given(const char *path, struct place *place, struct cay_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char parent[PATH_MAX] = ".";

    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strlen(name) > NAME_MAX - strlen("-journal") || strlen(path) >= PATH_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "invalid database name",
                        "pass the path of a file, or \":memory:\"");
    if (slash)
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path + 1), path);
    snprintf(place->name, sizeof place->name, "%s", name);
    place->dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->dir < 0)
        return cay_fail_errno(err, errno, op, path);
    return state_home_check(place->dir, path, 0022, err);
}

/* Created if missing, with mode 0600: sessions contain private data. */
static int check_file(const struct place *place, const char *subject,
                      struct cay_error *err)
{
    struct stat st;

    bool is_made = mknodat(place->dir, place->name, S_IFREG | 0600, 0) == 0 &&
                   fchmodat(place->dir, place->name, 0600, 0) == 0;
    if (!is_made && errno != EEXIST)
        return cay_fail_errno(err, errno, op, subject);
    if (fstatat(place->dir, place->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return cay_fail_errno(err, errno, op, subject);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, subject,
                        "the session database is not a regular file",
                        "choose a file that does not exist yet");
    if (st.st_uid != geteuid() || (st.st_mode & 0077))
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, subject,
                        "the session database is accessible to other users",
                        "set its owner to this user and its mode to 0600");
    return CAY_OK;
}

/* --- The connection --- */

/* Without links: none is allowed to SQLite. */
static int spell(const struct place *place, char path[PATH_MAX], struct cay_error *err)
{
    char dir[PATH_MAX];
    int error = path_name(place->dir, dir);

    if (!error && strlen(dir) + 1 + strlen(place->name) >= PATH_MAX)
        error = -ENAMETOOLONG;
    if (error)
        return cay_fail_errno(err, -error, op, place->name);
    snprintf(path, PATH_MAX, "%.*s/%s", (int)(PATH_MAX - NAME_MAX - 2), dir, place->name);
    return CAY_OK;
}

static int check_journal(cay_store *store, struct cay_error *err)
{
    AUTO_QUERY query = query_new(store, op, "PRAGMA journal_mode=WAL");
    int code = query_step(&query, err);

    if (code < 0)
        return code;
    if (store->is_in_memory || (code && strcmp(query_column(&query, 0), "wal") == 0))
        return CAY_OK;
    return cay_fail(
        err, CAY_E_UNSUPPORTED, 0, op, store->name,
        "this file system does not support a database shared by processes (SQLite WAL)",
        "set CAY_HOME to a directory on a local disk");
}

static int connect(cay_store *store, const char *path, const struct schema *schema,
                   struct cay_error *err)
{
    int result = sqlite.sqlite3_open_v2(
        path, &store->database,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);

    if (result != SQLITE_OK)
        return store->database ? query_fail(store, result, op, err)
                               : cay_fail_memory(err, op);
    (void)sqlite.sqlite3_extended_result_codes(store->database, 1);
    (void)sqlite.sqlite3_busy_timeout(store->database, BUSY_MS);
    int code = check_journal(store, err);
    if (!code)
        code = query_exec(store, op, "PRAGMA synchronous=FULL; PRAGMA trusted_schema=OFF",
                          err);
    return code ? code : schema_apply(store, schema, err);
}

/* Under a lock: of two processes that create the same database, one would get
 * SQLITE_BUSY. */
static int connect_alone(cay_store *store, const char *path, const struct schema *schema,
                         struct cay_error *err)
{
    int lock = lock_byte(store, op, store->name, OPENING, BUSY_MS, err);

    if (lock < 0)
        return lock;
    int code = connect(store, path, schema, err);
    lock_release(lock, OPENING);
    return code;
}

static int open_file(cay_store *store, const char *given, const struct schema *schema,
                     struct cay_error *err)
{
    struct place place = {.dir = -1};
    char path[PATH_MAX], locks[NAME_MAX + 8];

    int code = given ? find_given(given, &place, err) : find_default(&place, err);
    AUTO_FD dir = place.dir;
    if (!code)
        code = check_file(&place, store->name, err);
    if (!code)
        code = spell(&place, path, err);
    if (code)
        return code;
    snprintf(locks, sizeof locks, "%s-lock", place.name);
    store->locks = lock_open_file(dir, locks, err);
    return store->locks < 0 ? store->locks : connect_alone(store, path, schema, err);
}

static int open_memory(cay_store *store, const struct schema *schema,
                       struct cay_error *err)
{
    store->is_in_memory = true;
    store->locks = lock_open_file(-1, ":memory:", err);
    return store->locks < 0 ? store->locks : connect(store, ":memory:", schema, err);
}

static void init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

int store_open(const char *path, const struct schema *schema, cay_store **ret_store,
               struct cay_error *err)
{
    int code = sqlite_load(op, err);

    if (code)
        return code;
    AUTO(cay_store) store = calloc(1, sizeof *store);
    if (!store)
        return cay_fail_memory(err, op);
    init_mutex(&store->mutex);
    store->owner = getpid();
    store->locks = -1;
    cay_copy_text(store->name, sizeof store->name, path ? path : "cay.db");
    code = path && strcmp(path, ":memory:") == 0 ? open_memory(store, schema, err)
                                                 : open_file(store, path, schema, err);
    if (!code)
        *ret_store = TAKE_PTR(store);
    return code;
}

int cay_store_open(const char *path, cay_store **ret_store, struct cay_error *err)
{
    return store_open(path, &schema_current, ret_store, err);
}

void cay_store_free(cay_store *store)
{
    if (!store)
        return;
    if (store->owner == getpid() && store->database)
        (void)sqlite.sqlite3_close_v2(store->database);
    if (store->locks >= 0)
        (void)close(store->locks);
    pthread_mutex_destroy(&store->mutex);
    free(store);
}
