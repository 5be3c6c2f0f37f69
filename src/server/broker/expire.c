/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes whose time is over, and sandboxes that ended while no server was running. */
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/hooks.h"
#include "server/broker/journal.h"
#include "server/broker/recovery.h"

/* --- Time --- */

struct due {
    struct broker *broker;
    int64_t now_ms, next_ms;
    struct record_row *rows;
    size_t count;
};

enum {
    DUE_AT_A_TIME = 64,
    MORE_MS = 20,   /* delay for the rest of a batch */
    AGAIN_MS = 1000 /* a request may fail */
};

static bool is_due(const struct record_row *written, void *cookie)
{
    struct due *due = cookie;
    struct record_row row = *written;

    row.metadata = (struct buf){0};
    broker_apply_unwritten(due->broker, &row);
    if (row.state != RECORD_RUNNING)
        return true;
    if (row.end_ms > due->now_ms) {
        if (!due->next_ms || row.end_ms < due->next_ms)
            due->next_ms = row.end_ms;
    } else if (due->count < DUE_AT_A_TIME) {
        due->rows[due->count++] = row;
    } else {
        due->next_ms = due->now_ms + MORE_MS;
    }
    return true;
}

void broker_expire(struct broker *broker)
{
    static struct record_row rows[DUE_AT_A_TIME];
    const struct registry_filter filter = {.states = 1u << RECORD_RUNNING,
                                           .oldest_first = true};
    struct due due = {broker, server_clock_ms(), 0, rows, 0};

    broker_retry_writes(broker);
    broker_request_force_late(broker);
    keepers_start_pool(broker);
    usage_start(broker);
    hooks_start(broker);
    broker_watch_egress(broker);
    if (registry_visit(broker->registry, &filter, is_due, &due, NULL) != CAY_OK)
        due.next_ms = due.now_ms + 1000;
    for (size_t i = 0; i < due.count; i++) {
        bool pauses = rows[i].flags & CREATE_AUTO_PAUSE;
        if (broker_request_is_pending(broker, rows[i].id))
            continue;
        if (pauses)
            control_pause(broker, &rows[i], NULL, rows[i].flags & CREATE_PAUSE_COLD);
        else
            control_start(broker, OP_KILL, &rows[i], NULL, "reached its end of life", 0);
    }
    if (due.count)
        broker_wake_at(broker, due.now_ms + AGAIN_MS);
    if (due.next_ms)
        broker_wake_at(broker, due.next_ms);
}

void broker_sandbox_ended(struct broker *broker, const char *id, bool had_memory_kills)
{
    AUTO_RECORD row = RECORD_INIT;

    if (broker_find_record(broker, id, &row, NULL) != CAY_OK || row.state == RECORD_GONE)
        return;
    row.state = RECORD_GONE;
    cay_copy_text(row.reason, sizeof row.reason,
                  row.end_ms <= server_clock_ms() + 1000 ? "reached its end of life"
                  : had_memory_kills                     ? "ran out of memory"
                                                         : "ended by itself");
    stats_count_end(&broker->stats, row.reason);
    row.end_ms = server_clock_ms();
    broker_write_record(broker, &row);
    journal_write_row(broker, "sandbox.end", 0, &row, "reason", row.reason);
}

/* --- After a restart --- */

enum { ROUNDS_MAX = 100 };

/* The part of a row that is compared. */
struct known {
    char id[SANDBOX_ID_MAX];
    enum record_state state;
    int64_t end_ms;
    uint32_t flags;
};

struct known_list {
    struct known list[1024]; /* the rest is checked when a client requests it */
    size_t count;
};

static bool add_known(const struct record_row *row, void *cookie)
{
    struct known_list *known = cookie;

    if (known->count == sizeof known->list / sizeof *known->list)
        return false;
    struct known *one = &known->list[known->count++];
    memcpy(one->id, row->id, sizeof row->id);
    one->state = row->state;
    one->end_ms = row->end_ms;
    one->flags = row->flags;
    return true;
}

/* `flags` of its row: a sandbox that was paused without memory is stopped. */
static enum record_state state_of(const struct cay_sandbox_info *info, uint32_t flags)
{
    /* A damaged sandbox is still running, and a client can kill it. */
    if (info && (info->state == CAY_STATE_RUNNING || info->state == CAY_STATE_DAMAGED))
        return RECORD_RUNNING;
    if (info && info->state == CAY_STATE_STOPPED && flags & RECORD_COLD)
        return RECORD_PAUSED;
    return info && info->state == CAY_STATE_PAUSED ? RECORD_PAUSED : RECORD_GONE;
}

static void correct(struct broker *broker, const struct known *known,
                    const struct cay_sandbox_info *info)
{
    enum record_state state = state_of(info, known->flags);
    AUTO_RECORD row = RECORD_INIT;

    if (state == RECORD_GONE) {
        broker_sandbox_ended(broker, known->id, info && info->memory_kills > 0);
    } else if (broker_find_record(broker, known->id, &row, NULL) == CAY_OK) {
        bool wakes = row.state == RECORD_PAUSED && state == RECORD_RUNNING;
        row.state = state;
        if (info && info->state != CAY_STATE_STOPPED)
            row.flags &= ~(uint32_t)RECORD_COLD;
        if (wakes) /* the row has the end from before the pause */
            row.end_ms = server_clock_ms() +
                         recovery_left_ms(info, broker->options->max_timeout_s);
        broker_write_record(broker, &row);
        if (wakes)
            broker_confirm(broker, &row);
    }
}

/* Whether the row differs from the sandbox.  The flag may be set although a pause without
 * memory has not begun, or has ended. */
static bool is_wrong(const struct known *known, const struct cay_sandbox_info *info)
{
    return state_of(info, known->flags) != known->state ||
           (known->flags & RECORD_COLD && info && info->state != CAY_STATE_STOPPED);
}

static void end_one(struct broker *broker, const char *id)
{
    char name[CAY_ID_MAX];
    cay_sandbox *sandbox = NULL;
    AUTO_RECORD row = RECORD_INIT;

    snprintf(name, sizeof name, "sb-%.28s", id);
    if (cay_sandbox_open(name, &sandbox, NULL) == CAY_OK)
        (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    if (broker_find_record(broker, id, &row, NULL) != CAY_OK)
        return;
    row.state = RECORD_GONE;
    row.end_ms = server_clock_ms();
    cay_copy_text(row.reason, sizeof row.reason, "was killed");
    broker_write_record(broker, &row);
}

/* The previous server wrote the row, but did not confirm it. */
static bool is_unconfirmed(const struct broker *broker, const struct known *known,
                           const struct cay_sandbox_info *info)
{
    enum { SLACK_MS = 5000 + KEEPER_GRACE_MS };

    if (known->state != RECORD_RUNNING || !info || !info->ttl_left_ms)
        return false;
    return known->flags & CREATE_AUTO_PAUSE ||
           recovery_left_ms(info, broker->options->max_timeout_s) + SLACK_MS <
               known->end_ms - server_clock_ms();
}

/* Adds a missing row for a sandbox of this store, and kills a sandbox whose row says that
 * it ended.  Returns false if it belongs to an earlier store at the same path. */
static bool adopt(struct broker *broker, const struct cay_sandbox_info *info)
{
    AUTO_RECORD row = RECORD_INIT;
    AUTO_RECOVERY recovery;

    if (!recovery_read(info, broker->options->max_timeout_s, &recovery))
        return true;
    enum recovery_origin origin = recovery_origin(broker->registry, &recovery);
    if (origin == RECOVERY_FOREIGN)
        return true;
    int code = broker_find_record(broker, recovery.row.id, &row, NULL);
    if (code == CAY_E_NOT_FOUND && origin == RECOVERY_OF_PATH)
        return false;
    if (code == CAY_E_NOT_FOUND)
        (void)registry_add(broker->registry, &recovery.row, NULL, NULL);
    else if (code == CAY_OK && row.state == RECORD_GONE)
        end_one(broker, row.id);
    return true;
}

/* Reads the rows first: a sandbox that another server creates meanwhile is not among
 * them, and one that it removed is gone. */
void broker_reconcile(struct broker *broker)
{
    static struct known_list known;
    const struct registry_filter filter = {.states = RECORD_LIVING};
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;
    unsigned lost = 0;
    struct cay_error error;
    char message[128];

    if (registry_visit(broker->registry, &filter, add_known, &known, NULL) != CAY_OK ||
        cay_sandbox_list(&infos, &count, NULL) != CAY_OK)
        return;
    for (size_t i = 0; i < known.count; i++) {
        const struct cay_sandbox_info *info = NULL;
        for (size_t j = 0; j < count && !info; j++)
            if (strcmp(infos[j].id + 3, known.list[i].id) == 0)
                info = &infos[j];
        bool wrong = is_wrong(&known.list[i], info);
        if (wrong)
            correct(broker, &known.list[i], info);
        AUTO_RECORD row = RECORD_INIT;
        if (!wrong && is_unconfirmed(broker, &known.list[i], info) &&
            broker_find_record(broker, known.list[i].id, &row, NULL) == CAY_OK)
            broker_confirm(broker, &row);
    }
    for (size_t i = 0; i < count; i++)
        lost += !adopt(broker, &infos[i]);
    cay_free(infos);
    if (!lost || !broker->log_error)
        return;
    snprintf(message, sizeof message,
             "%u running sandboxes belong to an earlier store at this path", lost);
    cay_fail(&error, CAY_E_NOT_FOUND, 0, "server", NULL, message,
             "cay serve --check-store lists them; to recreate their rows, stop the "
             "server and run cay serve --rebuild-store");
    broker->log_error("store", &error);
}

void broker_kill_all(struct broker *broker)
{
    static struct known_list known;
    const struct registry_filter filter = {.states = RECORD_LIVING};

    /* Rows that cannot be written would be found again. */
    for (int rounds = 0; rounds < ROUNDS_MAX; rounds++) {
        known.count = 0;
        if (registry_visit(broker->registry, &filter, add_known, &known, NULL) !=
                CAY_OK ||
            known.count == 0)
            return;
        for (size_t i = 0; i < known.count; i++)
            end_one(broker, known.list[i].id);
    }
}
