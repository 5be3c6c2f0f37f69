/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes whose time is over, and those that have ended without us. */
#include <string.h>

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

static bool is_due(const struct record_row *row, void *cookie)
{
    struct due *due = cookie;

    if (row->end_ms > due->now_ms) {
        if (!due->next_ms || row->end_ms < due->next_ms)
            due->next_ms = row->end_ms;
        return true;
    }
    if (due->count < DUE_AT_A_TIME) {
        struct record_row *copy = &due->rows[due->count++];
        *copy = *row;
        copy->metadata = (struct buf){0};
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

void broker_gone(struct broker *broker, const char *id)
{
    AUTO_RECORD row = {0};

    record_init(&row);
    if (registry_find(broker->registry, id, &row, NULL) != CAY_OK ||
        row.state == RECORD_GONE)
        return;
    row.state = RECORD_GONE;
    cay_copy_text(row.reason, sizeof row.reason,
                  row.end_ms <= broker_now_ms() + 1000 ? "reached its end of life"
                                                       : "ended by itself");
    row.end_ms = broker_now_ms();
    (void)registry_update(broker->registry, &row, NULL);
}

/* --- After a restart --- */

struct alive {
    struct broker *broker;
    const struct cay_sandbox_info *infos;
    size_t count;
    char (*gone)[SANDBOX_ID_MAX];
    size_t gone_count, gone_room;
};

static bool note_if_gone(const struct record_row *row, void *cookie)
{
    struct alive *alive = cookie;

    for (size_t i = 0; i < alive->count; i++)
        if (strcmp(alive->infos[i].id + 3, row->id) == 0 &&
            alive->infos[i].state != CAY_STATE_STOPPED)
            return true;
    if (alive->gone_count < alive->gone_room)
        memcpy(alive->gone[alive->gone_count++], row->id, sizeof row->id);
    return true;
}

void broker_reconcile(struct broker *broker)
{
    static char gone[1024][SANDBOX_ID_MAX];
    const struct registry_filter filter = {.states = 1u << RECORD_RUNNING |
                                                     1u << RECORD_PAUSED};
    struct cay_sandbox_info *infos = NULL;
    struct alive alive = {
        .broker = broker, .gone = gone, .gone_room = sizeof gone / sizeof *gone};

    if (cay_sandbox_list(&infos, &alive.count, NULL) != CAY_OK)
        return;
    alive.infos = infos;
    if (registry_visit(broker->registry, &filter, note_if_gone, &alive, NULL) == CAY_OK)
        for (size_t i = 0; i < alive.gone_count; i++)
            broker_gone(broker, gone[i]);
    cay_free(infos);
}
