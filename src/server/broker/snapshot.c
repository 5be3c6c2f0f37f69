/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/snapshot.h"

#include <ctype.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

static const char op[] = "server.snapshot";
static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

enum { STORE_DIGITS = 12, SOURCE_PREFIX = 4 + STORE_DIGITS + 1, ID_LETTERS = 20 };

#define DEFAULT_TAG "default"

/* --- Names --- */

static int fail_name(struct cay_error *err)
{
    return cay_fail(
        err, CAY_E_INVALID, 0, op, NULL, "invalid name of a snapshot",
        "use NAME or NAME:TAG with lower-case letters, digits, \"_\" and \"-\"; "
        "a tag may have \".\"");
}

/* `len` characters in lower case; false if they are too many, or others. */
static bool take_part(const char *text, size_t len, const char *more,
                      char ret_part[SNAPSHOT_NAME_MAX])
{
    if (len == 0 || len >= SNAPSHOT_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        ret_part[i] = (char)tolower((unsigned char)text[i]);
        if (!strchr(letters, ret_part[i]) && !strchr(more, ret_part[i]))
            return false;
    }
    ret_part[len] = '\0';
    return true;
}

int snapshot_parse(const char *tenant, const char *text, struct snapshot_row *ret_row,
                   struct cay_error *err)
{
    const char *slash = strchr(text, '/');

    if (slash && (strlen(tenant) != (size_t)(slash - text) ||
                  strncasecmp(tenant, text, strlen(tenant)) != 0))
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                        "the name of the snapshot is of another tenant",
                        "leave the part before the slash out");
    text = slash ? slash + 1 : text;
    size_t len = strcspn(text, ":");
    ret_row->tag[0] = '\0';
    if (!take_part(text, len, "_-", ret_row->name) ||
        (text[len] &&
         !take_part(text + len + 1, strlen(text + len + 1), "_-.", ret_row->tag)))
        return fail_name(err);
    return CAY_OK;
}

void snapshot_show(const struct snapshot_row *row, char ret_text[SNAPSHOT_SHOWN_MAX])
{
    if (*row->name)
        snprintf(ret_text, SNAPSHOT_SHOWN_MAX, "%s/%s:%s", row->tenant, row->name,
                 row->tag);
    else
        snprintf(ret_text, SNAPSHOT_SHOWN_MAX, "%s:" DEFAULT_TAG, row->id);
}

void snapshot_source(struct registry *registry, const char *id,
                     char ret_name[SNAPSHOT_SOURCE_MAX])
{
    snprintf(ret_name, SNAPSHOT_SOURCE_MAX, "e2b.%.*s.%s", STORE_DIGITS,
             registry_identity(registry), id);
}

const char *snapshot_source_id(struct registry *registry, const char *name)
{
    char prefix[SNAPSHOT_SOURCE_MAX];

    snapshot_source(registry, "", prefix);
    return strncmp(name, prefix, SOURCE_PREFIX) == 0 ? name + SOURCE_PREFIX : NULL;
}

int snapshot_draw_id(char ret_id[SNAPSHOT_ID_MAX], struct cay_error *err)
{
    unsigned char bytes[ID_LETTERS];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return cay_fail_errno(err, errno, op, "getrandom");
    for (size_t i = 0; i < ID_LETTERS; i++)
        ret_id[i] = letters[bytes[i] % (sizeof letters - 1)];
    ret_id[ID_LETTERS] = '\0';
    return CAY_OK;
}

/* --- Rows --- */

static void copy(sqlite3_stmt *statement, int column, char *field, size_t room)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    cay_copy_text(field, room, text ? (const char *)text : "");
}

/* NULL with an error if it cannot be prepared. */
static sqlite3_stmt *prepare(struct registry *registry, const char *text,
                             struct cay_error *err)
{
    sqlite3_stmt *statement = NULL;
    sqlite3 *db = registry_db(registry);

    if (!db || sqlite3_prepare_v2(db, text, -1, &statement, NULL) != SQLITE_OK)
        (void)registry_fail(registry, "snapshots", err);
    return statement;
}

static void put(sqlite3_stmt *statement, int at, const char *text)
{
    sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

static int run(struct registry *registry, sqlite3_stmt *statement, struct cay_error *err)
{
    int code = sqlite3_step(statement) == SQLITE_DONE
                   ? CAY_OK
                   : registry_fail(registry, "snapshots", err);

    sqlite3_finalize(statement);
    return code;
}

static bool take_first(const struct snapshot_row *row, void *cookie)
{
    *(struct snapshot_row *)cookie = *row;
    return false;
}

/* One statement, so that a server which is killed has the old row or the new one. */
int snapshot_add(struct registry *registry, const struct snapshot_row *row,
                 char ret_old[SNAPSHOT_ID_MAX], struct cay_error *err)
{
    const struct snapshot_filter same = {.tenant = row->tenant,
                                         .sandbox = "",
                                         .name = row->name,
                                         .tag = row->tag,
                                         .after_id = ""};
    struct snapshot_row old = {0};

    if (*row->name)
        TRY(snapshot_visit(registry, &same, take_first, &old, err));
    cay_copy_text(ret_old, SNAPSHOT_ID_MAX, *old.name ? old.id : "");
    sqlite3_stmt *statement = prepare(
        registry, "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", err);
    if (!statement)
        return CAY_E_IO;
    put(statement, 1, row->id);
    put(statement, 2, row->tenant);
    /* Rows without a name do not replace each other. */
    if (*row->name)
        put(statement, 3, row->name);
    put(statement, 4, row->tag);
    put(statement, 5, row->sandbox);
    sqlite3_bind_int64(statement, 6, row->created_ms);
    return run(registry, statement, err);
}

int snapshot_remove(struct registry *registry, const char *id, struct cay_error *err)
{
    sqlite3_stmt *statement =
        prepare(registry, "DELETE FROM snapshots WHERE id = ?", err);

    if (!statement)
        return CAY_E_IO;
    put(statement, 1, id);
    return run(registry, statement, err);
}

int snapshot_visit(struct registry *registry, const struct snapshot_filter *filter,
                   bool (*visit)(const struct snapshot_row *row, void *cookie),
                   void *cookie, struct cay_error *err)
{
    static const char text[] =
        "SELECT id, tenant, coalesce(name, ''), tag, sandbox, created_ms FROM snapshots "
        "WHERE (?1 IS NULL OR tenant = ?1) AND (?2 = '' OR sandbox = ?2) AND "
        "(?3 = '' OR name = ?3 OR id = ?3) AND (?4 = '' OR tag = ?4) AND "
        "(?5 = 0 OR (created_ms, id) < (?5, ?6)) ORDER BY created_ms DESC, id DESC";
    sqlite3_stmt *statement = prepare(registry, text, err);
    int result = SQLITE_ROW;

    if (!statement)
        return CAY_E_IO;
    if (filter->tenant)
        put(statement, 1, filter->tenant);
    put(statement, 2, filter->sandbox);
    put(statement, 3, filter->name);
    put(statement, 4, filter->tag);
    sqlite3_bind_int64(statement, 5, filter->after_ms);
    put(statement, 6, filter->after_id);
    bool goes_on = true;
    while (goes_on && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        struct snapshot_row row = {0};
        copy(statement, 0, row.id, sizeof row.id);
        copy(statement, 1, row.tenant, sizeof row.tenant);
        copy(statement, 2, row.name, sizeof row.name);
        copy(statement, 3, row.tag, sizeof row.tag);
        copy(statement, 4, row.sandbox, sizeof row.sandbox);
        row.created_ms = sqlite3_column_int64(statement, 5);
        goes_on = visit(&row, cookie);
    }
    int code = result == SQLITE_DONE || result == SQLITE_ROW
                   ? CAY_OK
                   : registry_fail(registry, "snapshots", err);
    sqlite3_finalize(statement);
    return code;
}

int snapshot_find(struct registry *registry, const char *tenant, const char *text,
                  struct snapshot_row *ret_row, struct cay_error *err)
{
    struct snapshot_row wanted = {0}, found = {0};
    int code = snapshot_parse(tenant, text, &wanted, NULL);

    if (!*wanted.tag)
        cay_copy_text(wanted.tag, sizeof wanted.tag, DEFAULT_TAG);
    const struct snapshot_filter filter = {.tenant = tenant,
                                           .sandbox = "",
                                           .name = wanted.name,
                                           .tag = wanted.tag,
                                           .after_id = ""};
    if (!code)
        TRY(snapshot_visit(registry, &filter, take_first, &found, err));
    if (code || !*found.id)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, "there is no such snapshot",
                        "list the snapshots");
    *ret_row = found;
    return CAY_OK;
}

bool snapshot_has(struct registry *registry, const char *tenant, const char *name)
{
    const struct snapshot_filter filter = {
        .tenant = tenant, .sandbox = "", .name = name, .tag = "", .after_id = ""};
    struct snapshot_row found = {0};

    return snapshot_visit(registry, &filter, take_first, &found, NULL) != CAY_OK ||
           *found.id;
}
