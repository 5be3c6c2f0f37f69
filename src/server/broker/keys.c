/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/keys.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

void keys_id(const unsigned char hash[KEY_HASH], char ret_id[KEY_ID_MAX])
{
    size_t len = 0;

    for (int i = 0; i < KEY_HASH / 2; i++) {
        bool has_dash = i == 4 || i == 6 || i == 8 || i == 10;
        len += (size_t)snprintf(ret_id + len, KEY_ID_MAX - len, "%s%02x",
                                has_dash ? "-" : "", hash[i]);
    }
}

/* --- Statements --- */

static int prepare(struct registry *registry, const char *text, sqlite3_stmt **ret,
                   struct cay_error *err)
{
    struct sqlite3 *db = registry_db(registry);

    *ret = NULL;
    return db && sqlite3_prepare_v2(db, text, -1, ret, NULL) == SQLITE_OK
               ? CAY_OK
               : registry_fail(registry, "keys", err);
}

/* Runs it to its end, without rows. */
static int finish(struct registry *registry, sqlite3_stmt *statement,
                  struct cay_error *err)
{
    int code = sqlite3_step(statement) == SQLITE_DONE
                   ? CAY_OK
                   : registry_fail(registry, "keys", err);

    (void)sqlite3_finalize(statement);
    return code;
}

bool keys_is_admin(struct registry *registry, const unsigned char hash[KEY_HASH])
{
    sqlite3_stmt *statement;

    if (prepare(registry, "SELECT 1 FROM key_facts WHERE hash = ? AND is_admin",
                &statement, NULL) != CAY_OK)
        return false;
    sqlite3_bind_blob(statement, 1, hash, KEY_HASH, SQLITE_STATIC);
    bool is_admin = sqlite3_step(statement) == SQLITE_ROW;
    (void)sqlite3_finalize(statement);
    return is_admin;
}

int keys_describe(struct registry *registry, const unsigned char hash[KEY_HASH],
                  const char *name, bool is_admin, struct cay_error *err)
{
    sqlite3_stmt *statement;

    TRY(prepare(registry, "INSERT OR REPLACE INTO key_facts VALUES (?, ?, ?)", &statement,
                err));
    sqlite3_bind_blob(statement, 1, hash, KEY_HASH, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, name, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 3, is_admin);
    return finish(registry, statement, err);
}

int keys_remove(struct registry *registry, const unsigned char hash[KEY_HASH],
                struct cay_error *err)
{
    sqlite3_stmt *statement;

    TRY(prepare(registry, "DELETE FROM keys WHERE hash = ?", &statement, err));
    sqlite3_bind_blob(statement, 1, hash, KEY_HASH, SQLITE_STATIC);
    return finish(registry, statement, err);
}

/* --- Searches --- */

struct search {
    const char *tenant, *id;
    struct key_row *found;
    bool has_found;
};

static void compare(const struct key_row *row, void *cookie)
{
    struct search *search = cookie;
    char id[KEY_ID_MAX];

    keys_id(row->hash, id);
    if (strcmp(row->tenant, search->tenant) != 0 || strcmp(id, search->id) != 0)
        return;
    *search->found = *row;
    search->has_found = true;
}

int keys_find(struct registry *registry, const char *tenant, const char *id,
              struct key_row *ret_row, struct cay_error *err)
{
    struct search search = {.tenant = tenant, .id = id, .found = ret_row};

    TRY(registry_visit_keys(registry, compare, &search, err));
    return search.has_found
               ? CAY_OK
               : cay_fail(err, CAY_E_NOT_FOUND, 0, "server.keys", NULL,
                          "the tenant has no key with this id", "list its keys");
}

int keys_visit_tenants(struct registry *registry,
                       bool (*visit)(const struct tenant_row *row, void *cookie),
                       void *cookie, struct cay_error *err)
{
    static const char text[] =
        "SELECT tenant, sum(k), sum(r), sum(p) FROM (SELECT tenant, count(*) AS k, 0 AS "
        "r, 0 AS p FROM keys GROUP BY tenant UNION ALL SELECT tenant, 0, sum(state = 1), "
        "sum(state = 2) FROM sandboxes WHERE state IN (1, 2) GROUP BY tenant) "
        "GROUP BY tenant ORDER BY tenant";
    sqlite3_stmt *statement;
    int result;
    bool goes_on = true;

    TRY(prepare(registry, text, &statement, err));
    while (goes_on && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(statement, 0);
        struct tenant_row row = {.keys = sqlite3_column_int64(statement, 1),
                                 .running = sqlite3_column_int64(statement, 2),
                                 .paused = sqlite3_column_int64(statement, 3)};
        cay_copy_text(row.name, sizeof row.name, name ? name : "");
        goes_on = visit(&row, cookie);
    }
    int code =
        !goes_on || result == SQLITE_DONE ? CAY_OK : registry_fail(registry, "keys", err);
    (void)sqlite3_finalize(statement);
    return code;
}
