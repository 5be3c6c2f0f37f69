/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes whose time is over, and those that have ended without us. */
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/errand.h"

/* --- Time --- */

struct due {
    struct broker *broker;
    int64_t now_ms, next_ms;
    struct record_row *rows;
    size_t count;
};

enum { DUE_AT_A_TIME = 64 };

static bool is_due(const struct record_row *written, void *cookie)
{
    struct due *due = cookie;
    struct record_row row = *written;

    row.metadata = (struct buf){0};
    broker_current(due->broker, &row);
    if (row.state != RECORD_RUNNING)
        return true;
    if (row.end_ms > due->now_ms) {
        if (!due->next_ms || row.end_ms < due->next_ms)
            due->next_ms = row.end_ms;
    } else if (due->count < DUE_AT_A_TIME) {
        due->rows[due->count++] = row;
    } else {
        due->next_ms = due->now_ms + 1;
    }
    return true;
}

void broker_expire(struct broker *broker)
{
    static struct record_row rows[DUE_AT_A_TIME];
    const struct registry_filter filter = {.states = 1u << RECORD_RUNNING,
                                           .oldest_first = true};
    struct due due = {broker, broker_now_ms(), 0, rows, 0};

    broker_write_again(broker);
    errand_force_late(broker);
    broker_fill_pool(broker);
    if (registry_visit(broker->registry, &filter, is_due, &due, NULL) != CAY_OK)
        due.next_ms = due.now_ms + 1000;
    for (size_t i = 0; i < due.count; i++) {
        bool pauses = rows[i].flags & CREATE_AUTO_PAUSE;
        if (!errand_is_under_way(broker, rows[i].id))
            control_start(broker, pauses ? OP_PAUSE : OP_KILL, &rows[i], NULL,
                          pauses ? "" : "reached its end of life", 0);
    }
    if (due.next_ms)
        broker_note_end(broker, due.next_ms);
}

void broker_gone(struct broker *broker, const char *id, bool had_memory_kills)
{
    AUTO_RECORD row = {0};

    record_init(&row);
    if (broker_find(broker, id, &row, NULL) != CAY_OK || row.state == RECORD_GONE)
        return;
    row.state = RECORD_GONE;
    cay_copy_text(row.reason, sizeof row.reason,
                  row.end_ms <= broker_now_ms() + 1000 ? "reached its end of life"
                  : had_memory_kills                   ? "ran out of memory"
                                                       : "ended by itself");
    row.end_ms = broker_now_ms();
    broker_write(broker, &row);
}

/* --- After a restart --- */

/* A record that says something else than the system does. */
struct wrong {
    char id[SANDBOX_ID_MAX];
    enum record_state state; /* what is true */
    bool had_memory_kills;
};

struct alive {
    const struct cay_sandbox_info *infos;
    size_t count;
    struct wrong *wrong;
    size_t wrong_count, wrong_room;
};

static bool note_if_wrong(const struct record_row *row, void *cookie)
{
    struct alive *alive = cookie;
    struct wrong wrong = {.state = RECORD_GONE};

    for (size_t i = 0; i < alive->count; i++)
        if (strcmp(alive->infos[i].id + 3, row->id) == 0) {
            enum cay_state state = alive->infos[i].state;
            wrong.state = state == CAY_STATE_RUNNING  ? RECORD_RUNNING
                          : state == CAY_STATE_PAUSED ? RECORD_PAUSED
                                                      : RECORD_GONE;
            wrong.had_memory_kills = alive->infos[i].memory_kills > 0;
        }
    if (wrong.state != row->state && alive->wrong_count < alive->wrong_room) {
        memcpy(wrong.id, row->id, sizeof row->id);
        alive->wrong[alive->wrong_count++] = wrong;
    }
    return true;
}

static void correct(struct broker *broker, const struct wrong *wrong)
{
    AUTO_RECORD row = {0};

    record_init(&row);
    if (wrong->state == RECORD_GONE) {
        broker_gone(broker, wrong->id, wrong->had_memory_kills);
    } else if (broker_find(broker, wrong->id, &row, NULL) == CAY_OK) {
        row.state = wrong->state;
        broker_write(broker, &row);
    }
}

void broker_reconcile(struct broker *broker)
{
    static struct wrong wrong[1024]; /* more are found out when they are asked for */
    const struct registry_filter filter = {.states = 1u << RECORD_RUNNING |
                                                     1u << RECORD_PAUSED};
    struct cay_sandbox_info *infos = NULL;
    struct alive alive = {.wrong = wrong, .wrong_room = sizeof wrong / sizeof *wrong};

    if (cay_sandbox_list(&infos, &alive.count, NULL) != CAY_OK)
        return;
    alive.infos = infos;
    if (registry_visit(broker->registry, &filter, note_if_wrong, &alive, NULL) == CAY_OK)
        for (size_t i = 0; i < alive.wrong_count; i++)
            correct(broker, &wrong[i]);
    cay_free(infos);
}
