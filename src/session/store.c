/* SPDX-License-Identifier: Apache-2.0 */

/* Opens a store.  SQLite takes a path, so the directory must not be writable by other
 * users; the database, its write-ahead log and the lock file are side by side in it.
 *
 * SQLite uses fcntl(2) locks, which vanish as soon as the process closes any descriptor
 * of the file: so nothing here opens the database itself. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "session/store.h"
#include "sys/library.h"
#include "sys/path.h"
#include "sys/state-home.h"

enum { WITH_STRICT_TABLES = 3037000 };

struct sqlite sqlite;

int sqlite_load(const char *op, struct cay_error *err)
{
    static const struct library_call calls[] = {
#define X(name) LIBRARY_CALL(struct sqlite, name),
        SQLITE_CALLS(X)
#undef X
    };
    static struct library library = {.file = "libsqlite3.so.0",
                                     .calls = calls,
                                     .call_count = sizeof calls / sizeof *calls,
                                     .table = &sqlite,
                                     .mutex = PTHREAD_MUTEX_INITIALIZER};

    if (!library_load(&library))
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "sqlite",
                        "the SQLite library is not installed",
                        "install it: apt-get install libsqlite3-0");
    if (sqlite.sqlite3_libversion_number() < WITH_STRICT_TABLES)
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "sqlite",
                        "the SQLite library is too old", "install SQLite 3.37 or newer");
    return CAY_OK;
}

static int store_check_owner(const cay_store *store, const char *op,
                             struct cay_error *err)
{
    if (store->owner == getpid())
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, store->name,
                    "this store was opened before a fork, by the parent",
                    "open the store again in the child");
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
    pthread_mutex_unlock(&store->mutex);
}

static int query_fail(const cay_store *store, int result, const char *op,
                      struct cay_error *err)
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
         "check the disk; see the kernel log (dmesg)"},
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

static const char *query_column(const struct query *query, int column)
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

enum { FIRST_REST_NS = 50000, LAST_REST_NS = 10000000 };

static int lock_open_file(int dir, const char *name, struct cay_error *err)
{
    int fd = dir < 0 ? memfd_create("cay-locks", MFD_CLOEXEC)
                     : openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    /* Whatever the umask. */
    if (dir >= 0 && fd >= 0)
        (void)!fchmod(fd, 0600);
    return fd < 0 ? cay_fail_errno(err, errno, "store.open", name) : fd;
}

static struct flock range(short type, uint64_t byte)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
}

/* 0, -ETIMEDOUT or another negative errno.  The kernel's own wait knows no deadline. */
static int take(int fd, uint64_t byte, uint64_t timeout_ms)
{
    struct flock lock = range(F_WRLCK, byte);
    struct timespec rest = {.tv_nsec = FIRST_REST_NS};
    uint64_t start = clock_ms();

    if (timeout_ms == UINT64_MAX) {
        while (fcntl(fd, F_OFD_SETLKW, &lock) != 0)
            if (errno != EINTR)
                return -errno;
        return 0;
    }
    while (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return -errno;
        if (clock_ms() - start >= timeout_ms)
            return -ETIMEDOUT;
        nanosleep(&rest, NULL);
        if (rest.tv_nsec < LAST_REST_NS)
            rest.tv_nsec *= 2;
    }
    return 0;
}

static int lock_byte(const cay_store *store, const char *op, const char *subject,
                     uint64_t byte, uint64_t timeout_ms, struct cay_error *err)
{
    AUTO_FD fd = path_reopen(store->locks, O_RDWR);

    if (fd < 0)
        return cay_fail_errno(err, -fd, op, subject);
    int error = take(fd, byte, timeout_ms);
    if (error == -ETIMEDOUT)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, subject,
                        "another process is starting, pausing or stopping this session",
                        "try again, or use a longer timeout");
    return error ? cay_fail_errno(err, -error, op, subject) : TAKE_FD(fd);
}

/* An OFD lock is shared by copies of the descriptor in forked children: unlock
 * explicitly. */
static void lock_release(int fd, uint64_t byte)
{
    struct flock lock = range(F_UNLCK, byte);

    (void)fcntl(fd, F_OFD_SETLK, &lock);
    (void)close(fd);
}

static uint64_t byte_of(const char *user_id, const char *session_id)
{
    struct sha256_ctx context;
    uint8_t digest[8];
    uint64_t byte = 0;

    sha256_init(&context);
    sha256_update(&context, strlen(user_id) + 1, (const uint8_t *)user_id);
    sha256_update(&context, strlen(session_id), (const uint8_t *)session_id);
    sha256_digest(&context, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        byte = byte << 8 | digest[i];
    return (byte >> 2) + 1;
}

int cay_session_lock_take(cay_store *store, const char *user_id, const char *session_id,
                          uint64_t timeout_ms, cay_session_lock **ret_lock,
                          struct cay_error *err)
{
    static const char op[] = "session.lock";
    int code = store_check_ids(op, user_id, session_id, err);

    if (!code)
        code = store_check_owner(store, op, err);
    if (code)
        return code;
    cay_session_lock *lock = malloc(sizeof *lock);
    if (!lock)
        return cay_fail_memory(err, op);
    lock->byte = byte_of(user_id, session_id);
    lock->owner = getpid();
    lock->fd = lock_byte(store, op, session_id, lock->byte, timeout_ms, err);
    if (lock->fd < 0) {
        code = lock->fd;
        free(lock);
        return code;
    }
    *ret_lock = lock;
    return CAY_OK;
}

void cay_session_lock_free(cay_session_lock *lock)
{
    if (lock && lock->owner == getpid())
        lock_release(lock->fd, lock->byte);
    else if (lock) /* a copy, in a child */
        (void)close(lock->fd);
    free(lock);
}

void session_lock_leave_to_child(cay_session_lock *lock)
{
    if (lock)
        (void)close(lock->fd);
    free(lock);
}

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

/* Brings the database up to the schema, all or nothing. */
static int schema_apply(cay_store *store, const struct schema *schema,
                        struct cay_error *err)
{
    char mark[96];
    int64_t version = 0;
    int code = read_version(store, schema->count, &version, err);

    if (code || version == (int64_t)schema->count)
        return code;
    code = query_exec(store, op, "BEGIN IMMEDIATE", err);
    if (code)
        return code;
    code = read_version(store, schema->count, &version, err);
    for (size_t i = (size_t)version; !code && i < schema->count; i++)
        code = query_exec(store, op, schema->steps[i], err);
    snprintf(mark, sizeof mark, "PRAGMA application_id=%d; PRAGMA user_version=%zu",
             APPLICATION, schema->count);
    if (!code)
        code = query_exec(store, op, mark, err);
    if (!code)
        code = query_exec(store, op, "COMMIT", err);
    if (code)
        (void)query_exec(store, op, "ROLLBACK", NULL);
    return code;
}

/* --- Where it is --- */

struct database_file {
    int dir;
    char name[NAME_MAX + 1];
};

/* `path` NULL: the default. */
static int find_file(const char *path, struct database_file *file, struct cay_error *err)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path;
    char parent[PATH_MAX] = ".";

    if (!path) {
        snprintf(file->name, sizeof file->name, "cay.db");
        file->dir = state_home_open(true, err);
        return file->dir < 0 ? file->dir : CAY_OK;
    }
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strlen(name) > NAME_MAX - strlen("-journal") || strlen(path) >= PATH_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "invalid database name",
                        "pass the path of a file, or \":memory:\"");
    if (slash)
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path + 1), path);
    snprintf(file->name, sizeof file->name, "%s", name);
    file->dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file->dir < 0)
        return cay_fail_errno(err, errno, op, path);
    return state_home_check(file->dir, path, 0022, err);
}

/* Created if missing, with mode 0600: sessions contain private data. */
static int check_file(const struct database_file *file, const char *subject,
                      struct cay_error *err)
{
    struct stat st;

    bool is_made = mknodat(file->dir, file->name, S_IFREG | 0600, 0) == 0 &&
                   fchmodat(file->dir, file->name, 0600, 0) == 0;
    if (!is_made && errno != EEXIST)
        return cay_fail_errno(err, errno, op, subject);
    if (fstatat(file->dir, file->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
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

/* The database must support processes that share it. */
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

static int open_file(cay_store *store, const char *given, const struct schema *schema,
                     struct cay_error *err)
{
    struct database_file file = {.dir = -1};
    char parent[PATH_MAX], path[PATH_MAX], locks[NAME_MAX + 8];

    int code = find_file(given, &file, err);
    AUTO_FD dir = file.dir;
    if (!code)
        code = check_file(&file, store->name, err);
    if (code)
        return code;
    int error = path_name(dir, parent); /* SQLite is not allowed to follow links */
    if (!error && strlen(parent) + 1 + strlen(file.name) >= PATH_MAX)
        error = -ENAMETOOLONG;
    if (error)
        return cay_fail_errno(err, -error, op, file.name);
    snprintf(path, PATH_MAX, "%.*s/%s", (int)(PATH_MAX - NAME_MAX - 2), parent,
             file.name);
    snprintf(locks, sizeof locks, "%s-lock", file.name);
    store->locks = lock_open_file(dir, locks, err);
    if (store->locks < 0)
        return store->locks;
    /* Of two processes that create the same database, one would get SQLITE_BUSY. */
    int lock = lock_byte(store, op, store->name, OPENING, BUSY_MS, err);
    if (lock < 0)
        return lock;
    code = connect(store, path, schema, err);
    lock_release(lock, OPENING);
    return code;
}

int store_open(const char *path, const struct schema *schema, cay_store **ret_store,
               struct cay_error *err)
{
    pthread_mutexattr_t recursive;
    int code = sqlite_load(op, err);

    if (code)
        return code;
    AUTO(cay_store) store = calloc(1, sizeof *store);
    if (!store)
        return cay_fail_memory(err, op);
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&store->mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    store->owner = getpid();
    store->locks = -1;
    cay_copy_text(store->name, sizeof store->name, path ? path : "cay.db");
    store->is_in_memory = path && strcmp(path, ":memory:") == 0;
    if (store->is_in_memory) {
        store->locks = lock_open_file(-1, ":memory:", err);
        code = store->locks < 0 ? store->locks : connect(store, path, schema, err);
    } else {
        code = open_file(store, path, schema, err);
    }
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
