/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

static const char kind[] = "cay-serve 1";

enum {
    DEFAULT_LEFT_MS = 300000
}; /* for a sandbox without a TTL, which the broker pauses */

void recovery_done(struct recovery *recovery)
{
    record_done(&recovery->row);
}

uint32_t recovery_write(struct registry *registry, const struct record_row *row,
                        struct buf *strings)
{
    char numbers[96];
    uint32_t count = 6;

    snprintf(numbers, sizeof numbers, "%" PRId64 " %" PRIu32 " %" PRIu32, row->started_ms,
             row->flags, row->token_version);
    strings_add(strings, kind);
    strings_add(strings, registry_identity(registry));
    strings_add(strings, registry_path(registry));
    strings_add(strings, row->tenant);
    strings_add(strings, row->template_name);
    strings_add(strings, numbers);
    (void)buf_append(strings, row->metadata.data, row->metadata.len);
    for (size_t i = 0; i < row->metadata.len; i++)
        count += row->metadata.data[i] == '\0';
    return count;
}

static bool parse(const char *data, size_t len, struct recovery *recovery)
{
    const char *at = data, *end = data + len, *texts[6];

    for (int i = 0; i < 6; i++) {
        const char *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;
        if (!nul)
            return false;
        texts[i] = at;
        at = nul + 1;
    }
    char *numbers = NULL;
    recovery->row.started_ms = strtoll(texts[5], &numbers, 10);
    recovery->row.flags = (uint32_t)strtoul(numbers, &numbers, 10);
    recovery->row.token_version = (uint32_t)strtoul(numbers, &numbers, 10);
    if (strcmp(texts[0], kind) != 0 || *numbers || !recovery->row.token_version)
        return false;
    cay_copy_text(recovery->store, sizeof recovery->store, texts[1]);
    cay_copy_text(recovery->path, sizeof recovery->path, texts[2]);
    cay_copy_text(recovery->row.tenant, TENANT_MAX, texts[3]);
    cay_copy_text(recovery->row.template_name, TEMPLATE_MAX, texts[4]);
    return buf_append(&recovery->row.metadata, at, (size_t)(end - at));
}

int64_t recovery_left_ms(const struct cay_sandbox_info *info, uint32_t max_timeout_s)
{
    uint64_t max_ms = max_timeout_s * UINT64_C(1000) + KEEPER_GRACE_MS;

    if (!info->ttl_left_ms)
        return DEFAULT_LEFT_MS;
    return (int64_t)(info->ttl_left_ms < max_ms ? info->ttl_left_ms : max_ms) -
           KEEPER_GRACE_MS;
}

bool recovery_read(const struct cay_sandbox_info *info, uint32_t max_timeout_s,
                   struct recovery *ret_recovery)
{
    void *data = NULL;
    size_t len = 0;
    int64_t now_ms = server_clock_ms();

    *ret_recovery = (struct recovery){.row = RECORD_INIT};
    if ((info->state != CAY_STATE_RUNNING && info->state != CAY_STATE_PAUSED) ||
        strlen(info->id) < 4 ||
        cay_sandbox_get_note(info->id, &data, &len, NULL) != CAY_OK)
        return false;
    bool is_ours = parse(data, len, ret_recovery);
    cay_free(data);
    struct record_row *row = &ret_recovery->row;
    cay_copy_text(row->id, sizeof row->id, info->id + 3);
    bool is_paused = info->state == CAY_STATE_PAUSED;
    row->state = is_paused ? RECORD_PAUSED : RECORD_RUNNING;
    row->end_ms = now_ms;
    if (!is_paused)
        row->end_ms += recovery_left_ms(info, max_timeout_s);
    return is_ours && record_is_id(row->id);
}

enum recovery_origin recovery_origin(struct registry *registry,
                                     const struct recovery *recovery)
{
    if (strcmp(recovery->store, registry_identity(registry)) == 0)
        return RECOVERY_OF_STORE;
    return *recovery->path == '/' && strcmp(recovery->path, registry_path(registry)) == 0
               ? RECOVERY_OF_PATH
               : RECOVERY_FOREIGN;
}

/* Checks a damaged or lost store, and rebuilds it from the notes of the sandboxes. */

static const char op[] = "serve.store";

/* A line on standard output. */
__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vfprintf(stdout, format, arguments);
    va_end(arguments);
}

/* --- Checking --- */

struct comparison {
    struct cay_sandbox_info *infos;
    size_t count;
    unsigned problems;
};

static void print_damage(const char *line)
{
    report("file: %s\n", line);
}

static bool compare_row(const struct record_row *row, void *cookie)
{
    struct comparison *all = cookie;
    enum cay_state wanted = row->state != RECORD_PAUSED ? CAY_STATE_RUNNING
                            : row->flags & RECORD_COLD  ? CAY_STATE_STOPPED
                                                        : CAY_STATE_PAUSED;

    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->infos[i].id + 3, row->id) == 0 && all->infos[i].state == wanted)
            return true;
    report("row %s: no sandbox is %s\n", row->id,
           row->state == RECORD_PAUSED ? "paused" : "running");
    all->problems++;
    return true;
}

/* `registry` is NULL if there is no store at `path`. */
static void compare_sandbox(struct registry *registry, const char *path,
                            const struct cay_sandbox_info *info, struct comparison *all)
{
    AUTO_RECORD row = RECORD_INIT;
    AUTO_RECOVERY recovery;

    if (!recovery_read(info, 0, &recovery)) /* its end is not used */
        return;
    bool is_ours = registry ? recovery_origin(registry, &recovery) != RECOVERY_FOREIGN
                            : strcmp(recovery.path, path) == 0;
    if (!is_ours || (registry && registry_find(registry, recovery.row.id, &row, NULL) !=
                                     CAY_E_NOT_FOUND))
        return;
    report("sandbox %s: running for tenant %s, without a row\n", recovery.row.id,
           recovery.row.tenant);
    all->problems++;
}

int recovery_check_store(const char *path, struct cay_error *err)
{
    const struct registry_filter living = {.states = RECORD_LIVING};
    struct comparison all = {0};
    struct registry *registry = NULL;
    struct stat st;
    bool is_there = stat(path, &st) == 0 && st.st_size > 0;
    int code = is_there ? registry_open(path, &registry, err) : CAY_OK;

    if (!is_there) {
        report("file: %s is missing or empty\n", path);
        all.problems++;
    }
    if (!code)
        code = cay_sandbox_list(&all.infos, &all.count, err);
    if (!code && registry)
        code = registry_check(registry, true, print_damage, err);
    if (!code && registry)
        code = registry_visit(registry, &living, compare_row, &all, err);
    for (size_t i = 0; i < all.count && !code; i++)
        compare_sandbox(registry, path, &all.infos[i], &all);
    cay_free(all.infos);
    registry_close(registry);
    if (code)
        return code;
    if (all.problems)
        return cay_fail(err, CAY_E_IO, 0, op, "store", "the store has problems",
                        "rows of ended sandboxes are corrected when a server starts; cay "
                        "serve --rebuild-store recreates rows of running sandboxes");
    report("the store is consistent (version %d)\n", REGISTRY_SCHEMA);
    return CAY_OK;
}

/* --- Rebuilding --- */

int recovery_set_aside(const char *path, char ret_old[PATH_MAX], struct cay_error *err)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char from[PATH_MAX + 8], to[PATH_MAX + 8];
    struct registry *registry = NULL;

    ret_old[0] = '\0';
    AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? CAY_OK : cay_fail_errno(err, errno, op, "store");
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, op, "store", "a server is using this store",
                        "stop the server first");
    (void)close(TAKE_FD(fd)); /* releases the lock, which registry_open() takes */
    int code = registry_open(path, &registry, err);
    if (!code)
        code = registry_check(registry, true, print_damage, err);
    registry_close(registry);
    if (code != CAY_E_IO)
        return code;
    int len = snprintf(ret_old, PATH_MAX, "%.4000s.damaged-%lld", path,
                       (long long)clock_since_1970_ms() / 1000);
    if (len >= PATH_MAX)
        return cay_fail_errno(err, ENAMETOOLONG, op, "store");
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(from, sizeof from, "%s%s", path, suffixes[i]);
        snprintf(to, sizeof to, "%s%s", ret_old, suffixes[i]);
        if (rename(from, to) != 0 && errno != ENOENT)
            return cay_fail_errno(err, errno, op, "store");
    }
    report("the damaged store was renamed to %s\n", ret_old);
    return CAY_OK;
}

/* Stops at the first row that cannot be read. */
static unsigned copy_keys(struct registry *registry, const char *old)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    unsigned count = 0;

    if (sqlite3_open_v2(old, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT hash, tenant, shown, created_ms FROM keys", -1,
                           &statement, NULL) == SQLITE_OK)
        while (sqlite3_step(statement) == SQLITE_ROW) {
            const void *hash = sqlite3_column_blob(statement, 0);
            const char *tenant = (const char *)sqlite3_column_text(statement, 1);
            const char *shown = (const char *)sqlite3_column_text(statement, 2);
            struct key_row row = {.created_ms = sqlite3_column_int64(statement, 3)};
            if (!hash || sqlite3_column_bytes(statement, 0) != KEY_HASH || !tenant ||
                !shown)
                continue;
            cay_copy_text(row.tenant, sizeof row.tenant, tenant);
            cay_copy_text(row.shown, sizeof row.shown, shown);
            count += registry_add_key(registry, hash, &row, NULL) == CAY_OK;
        }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return count;
}

int recovery_rebuild_store(struct registry *registry, const char *old,
                           uint32_t max_timeout_s, struct cay_error *err)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;
    unsigned rows = 0, keys = *old ? copy_keys(registry, old) : 0;
    int code = cay_sandbox_list(&infos, &count, err);

    for (size_t i = 0; i < count && !code; i++) {
        AUTO_RECORD row = RECORD_INIT;
        AUTO_RECOVERY recovery;
        if (!recovery_read(&infos[i], max_timeout_s, &recovery) ||
            recovery_origin(registry, &recovery) == RECOVERY_FOREIGN ||
            registry_find(registry, recovery.row.id, &row, NULL) != CAY_E_NOT_FOUND)
            continue;
        code = registry_add(registry, &recovery.row, NULL, err);
        rows += code == CAY_OK;
    }
    cay_free(infos);
    if (!code)
        report("rows created: %u; keys copied from the damaged store: %u\n", rows, keys);
    return code;
}
