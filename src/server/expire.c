/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes whose time is over, and those that have ended without us. */
#include <stdio.h>
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

enum {
    DUE_AT_A_TIME = 64,
    MORE_MS = 20,   /* when there are more, which wait for these */
    AGAIN_MS = 1000 /* what was begun may fail */
};

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
        due->next_ms = due->now_ms + MORE_MS;
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
    if (due.count)
        broker_note_end(broker, due.now_ms + AGAIN_MS);
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

enum { ROUNDS_MAX = 100 };

/* What a record says. */
struct known {
    char id[SANDBOX_ID_MAX];
    enum record_state state;
};

struct known_list {
    struct known list[1024]; /* more are found out when they are asked for */
    size_t count;
};

static bool note(const struct record_row *row, void *cookie)
{
    struct known_list *known = cookie;

    if (known->count == sizeof known->list / sizeof *known->list)
        return false;
    struct known *one = &known->list[known->count++];
    memcpy(one->id, row->id, sizeof row->id);
    one->state = row->state;
    return true;
}

static enum record_state state_of(const struct cay_sandbox_info *info)
{
    return info && info->state == CAY_STATE_RUNNING  ? RECORD_RUNNING
           : info && info->state == CAY_STATE_PAUSED ? RECORD_PAUSED
                                                     : RECORD_GONE;
}

static void correct(struct broker *broker, const char *id,
                    const struct cay_sandbox_info *info)
{
    AUTO_RECORD row = {0};

    record_init(&row);
    if (state_of(info) == RECORD_GONE) {
        broker_gone(broker, id, info && info->memory_kills > 0);
    } else if (broker_find(broker, id, &row, NULL) == CAY_OK) {
        row.state = state_of(info);
        broker_write(broker, &row);
    }
}

/* The records first: what another server makes meanwhile has none among these, and what
 * it has removed is gone. */
void broker_reconcile(struct broker *broker)
{
    static struct known_list known;
    const struct registry_filter filter = {.states = 1u << RECORD_RUNNING |
                                                     1u << RECORD_PAUSED};
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    if (registry_visit(broker->registry, &filter, note, &known, NULL) != CAY_OK ||
        cay_sandbox_list(&infos, &count, NULL) != CAY_OK)
        return;
    for (size_t i = 0; i < known.count; i++) {
        const struct cay_sandbox_info *info = NULL;
        for (size_t j = 0; j < count && !info; j++)
            if (strcmp(infos[j].id + 3, known.list[i].id) == 0)
                info = &infos[j];
        if (state_of(info) != known.list[i].state)
            correct(broker, known.list[i].id, info);
    }
    cay_free(infos);
}

static void end_one(struct broker *broker, const char *id)
{
    char name[CAY_ID_MAX];
    cay_sandbox *sandbox = NULL;
    AUTO_RECORD row = {0};

    snprintf(name, sizeof name, "sb-%.28s", id);
    if (cay_sandbox_open(name, &sandbox, NULL) == CAY_OK)
        (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    record_init(&row);
    if (broker_find(broker, id, &row, NULL) != CAY_OK)
        return;
    row.state = RECORD_GONE;
    row.end_ms = broker_now_ms();
    cay_copy_text(row.reason, sizeof row.reason, "was killed");
    broker_write(broker, &row);
}

void broker_end_all(struct broker *broker)
{
    static struct known_list known;
    const struct registry_filter filter = {.states = 1u << RECORD_RUNNING |
                                                     1u << RECORD_PAUSED};

    /* What cannot be written would be found again and again. */
    for (int rounds = 0; rounds < ROUNDS_MAX; rounds++) {
        known.count = 0;
        if (registry_visit(broker->registry, &filter, note, &known, NULL) != CAY_OK ||
            known.count == 0)
            return;
        for (size_t i = 0; i < known.count; i++)
            end_one(broker, known.list[i].id);
    }
}
