/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/return.h"

#include <sqlite3.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/shared.h"

enum {
    FLAGS = CREATE_AUTO_PAUSE | CREATE_AUTO_RESUME | CREATE_PRIVATE_TRAFFIC |
            CREATE_INTERNET | CREATE_PAUSE_COLD
};

#define FROM_KEY "cay-returned-from"

int64_t return_flags(const struct record_row *row)
{
    const char *wanted = broker_find_metadata(row, RETURN_KEY);
    bool is_key = true;

    if (!wanted || strcmp(wanted, RETURN_VALUE) != 0)
        return -1;
    for (size_t at = 0; at < row->metadata.len;
         at += strlen(row->metadata.data + at) + 1, is_key = !is_key)
        if (is_key && row->metadata.data[at] == RECORD_HIDDEN)
            return -1;
    return row->flags & FLAGS;
}

/* --- Rows --- */

static sqlite3_stmt *prepare(struct broker *broker, const char *text, const char *one,
                             const char *two)
{
    sqlite3 *db = registry_db(broker->registry);
    sqlite3_stmt *statement = NULL;

    if (!db || sqlite3_prepare_v2(db, text, -1, &statement, NULL) != SQLITE_OK)
        return NULL;
    sqlite3_bind_text(statement, 1, one, -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(statement, 2, two, -1, SQLITE_TRANSIENT);
    return statement;
}

void return_note(struct broker *broker, const char *old, const char *id)
{
    sqlite3_stmt *statement =
        prepare(broker, "INSERT OR REPLACE INTO returned VALUES (?1, ?2)", old, id);

    if (statement)
        (void)sqlite3_step(statement);
    (void)sqlite3_finalize(statement);
}

/* Where it has returned to: false if it has not, or that sandbox has ended. */
static bool find_new(struct broker *broker, const char *old, const char *tenant,
                     char ret_id[SANDBOX_ID_MAX])
{
    static const char text[] =
        "SELECT r.id FROM returned r JOIN sandboxes s ON s.id = r.id "
        "WHERE r.old = ?1 AND s.tenant = ?2 AND s.state IN (1, 2)";
    sqlite3_stmt *statement = prepare(broker, text, old, tenant);
    bool is_found = statement && sqlite3_step(statement) == SQLITE_ROW;

    if (is_found)
        cay_copy_text(ret_id, SANDBOX_ID_MAX,
                      (const char *)sqlite3_column_text(statement, 0));
    (void)sqlite3_finalize(statement);
    return is_found;
}

/* The newest snapshot of it. */
static bool find_snapshot(struct broker *broker, const char *old, const char *tenant,
                          struct snapshot_row *ret_row)
{
    static const char text[] =
        "SELECT s.id, h.flags FROM snapshots s JOIN shared h ON h.name = 's.' || s.id "
        "WHERE s.sandbox = ?1 AND s.tenant = ?2 AND h.flags >= 0 "
        "ORDER BY s.created_ms DESC, s.id DESC LIMIT 1";
    sqlite3_stmt *statement = prepare(broker, text, old, tenant);
    bool is_found = statement && sqlite3_step(statement) == SQLITE_ROW;

    *ret_row = (struct snapshot_row){0};
    if (is_found) {
        cay_copy_text(ret_row->id, sizeof ret_row->id,
                      (const char *)sqlite3_column_text(statement, 0));
        cay_copy_text(ret_row->tenant, sizeof ret_row->tenant, tenant);
        ret_row->flags = sqlite3_column_int64(statement, 1);
    }
    (void)sqlite3_finalize(statement);
    return is_found;
}

/* --- The new sandbox --- */

static bool is_returning(const struct broker *broker, const char *old)
{
    const struct broker_request *pending = broker->pending;

    while (pending && strcmp(pending->returns, old) != 0)
        pending = pending->next;
    return pending != NULL;
}

static void create(struct broker *broker, struct request_packet *request,
                   const struct snapshot_row *snapshot, const char *old)
{
    const int64_t numbers[REQUEST_NUMBERS] = {0};
    int64_t seconds = request->head.numbers[TIMEOUT_SECONDS];
    AUTO_BROKER_TEMPLATE template = BROKER_TEMPLATE_INIT;
    AUTO_BUF nothing = {.max = 1};
    struct broker_request *pending = create_new(broker, NULL, request);

    if (!pending)
        return;
    cay_copy_text(template.shown, sizeof template.shown, snapshot->id);
    snapshot_source(broker->registry, snapshot->id, template.source);
    cay_copy_text(pending->returns, sizeof pending->returns, old);
    cay_copy_text(pending->row.tenant, TENANT_MAX, snapshot->tenant);
    cay_copy_text(pending->row.template_name, TEMPLATE_MAX, template.shown);
    pending->row.state = RECORD_RUNNING;
    pending->row.flags = (uint32_t)snapshot->flags & FLAGS;
    if (broker->options->internet == CAY_NETWORK_NONE)
        pending->row.flags &= ~(uint32_t)CREATE_INTERNET;
    if (broker->options->storage != CAY_STORAGE_DISK)
        pending->row.flags &= ~(uint32_t)CREATE_PAUSE_COLD;
    pending->row.token_version = 1;
    pending->timeout_s = seconds < 0 ? DEFAULT_LONG_TIMEOUT_S : seconds;
    strings_add(&pending->row.metadata, RETURN_KEY);
    strings_add(&pending->row.metadata, RETURN_VALUE);
    strings_add(&pending->row.metadata, FROM_KEY);
    strings_add(&pending->row.metadata, old);
    create_send(broker, pending, &template, numbers, &nothing, "");
}

bool return_start(struct broker *broker, struct request_packet *request,
                  const char *tenant)
{
    char old[SANDBOX_ID_MAX], id[SANDBOX_ID_MAX];
    struct snapshot_row snapshot;

    memcpy(old, request->head.sandbox, sizeof old);
    if (!shared_is_on(broker) || !index_is_lost(broker, old))
        return false;
    if (find_new(broker, old, tenant, id)) {
        memcpy(request->head.sandbox, id, sizeof id);
        control_handle(broker, request, tenant);
        return true;
    }
    if (!find_snapshot(broker, old, tenant, &snapshot))
        return false;
    if (is_returning(broker, old)) {
        broker_refuse(request, 503, CAY_E_UNAVAILABLE, "the sandbox is returning",
                      "try again in a moment");
        return true;
    }
    if (!shared_fetch_snapshot(broker, request, &snapshot) &&
        create_has_room(broker, request, 503) &&
        control_check_timeout(broker, request, request->head.numbers[TIMEOUT_SECONDS]))
        create(broker, request, &snapshot, old);
    return true;
}
