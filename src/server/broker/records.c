/* SPDX-License-Identifier: Apache-2.0 */

/* Records as they are: what could not be written yet counts before what was. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/errand.h"

enum { AGAIN_MS = 1000 };

struct unwritten {
    struct unwritten *next;
    struct record_row row; /* without its metadata, which does not change */
};

static struct unwritten **find_unwritten(struct broker *broker, const char *id)
{
    struct unwritten **link = &broker->unwritten;

    while (*link && strcmp((*link)->row.id, id) != 0)
        link = &(*link)->next;
    return link;
}

static void drop_unwritten(struct unwritten **link)
{
    struct unwritten *old = *link;

    if (old)
        *link = old->next;
    free(old);
}

/* What the system did cannot be undone because a disk is full: it is remembered. */
static void keep_unwritten(struct broker *broker, const struct record_row *row,
                           const struct cay_error *error)
{
    struct unwritten **link = find_unwritten(broker, row->id);

    if (!*link) {
        if (broker->complain)
            broker->complain(row->id, error);
        *link = calloc(1, sizeof **link);
    }
    if (*link) {
        (*link)->row = *row;
        (*link)->row.metadata = (struct buf){0};
    }
    broker_note_end(broker, broker_now_ms() + AGAIN_MS);
}

void broker_write(struct broker *broker, const struct record_row *row)
{
    struct cay_error error;

    if (registry_update(broker->registry, row, &error) == CAY_OK)
        drop_unwritten(find_unwritten(broker, row->id));
    else
        keep_unwritten(broker, row, &error);
}

/* Of a store that was opened on a full disk. */
static void recover(struct broker *broker)
{
    struct cay_error note;

    if (!registry_is_alone(broker->registry))
        return;
    if (!registry_recover(broker->registry)) {
        broker_note_end(broker, broker_now_ms() + AGAIN_MS);
        return;
    }
    cay_fail(&note, CAY_E_NO_SPACE, 0, "server", NULL, "the disk has room again",
             "sandboxes can be created");
    if (broker->complain)
        broker->complain("store", &note);
}

void broker_write_again(struct broker *broker)
{
    struct unwritten **link = &broker->unwritten;

    recover(broker);
    if (!*link)
        return;
    registry_set_patience(broker->registry, false); /* others wait for us meanwhile */
    while (*link && registry_update(broker->registry, &(*link)->row, NULL) == CAY_OK)
        drop_unwritten(link);
    registry_set_patience(broker->registry, true);
    if (*link)
        broker_note_end(broker, broker_now_ms() + AGAIN_MS);
}

void broker_current(struct broker *broker, struct record_row *row)
{
    const struct unwritten *unwritten = *find_unwritten(broker, row->id);
    struct buf metadata = row->metadata;

    if (!unwritten)
        return;
    *row = unwritten->row;
    row->metadata = metadata;
}

int broker_find(struct broker *broker, const char *id, struct record_row *ret_row,
                struct cay_error *err)
{
    int code = registry_find(broker->registry, id, ret_row, err);

    if (!code)
        broker_current(broker, ret_row);
    return code;
}

const char *broker_fate(const struct broker *broker, const struct record_row *row)
{
    const struct errand *kill = errand_of(broker, OP_KILL, row->id);

    if (row->state == RECORD_GONE)
        return row->reason;
    return kill ? kill->row.reason : NULL;
}
