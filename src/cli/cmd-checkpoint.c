/* SPDX-License-Identifier: Apache-2.0 */
/* cay checkpoint, rollback and checkpoints. */
#include <stdio.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "json/json.h"

static void put_checkpoint(struct json *json, const struct cay_checkpoint *checkpoint)
{
    json_set_uint(json, "id", checkpoint->id);
    json_put_key(json, "parent");
    if (checkpoint->parent)
        json_put_uint(json, checkpoint->parent);
    else
        json_put_null(json);
    json_set_text(json, "name", checkpoint->name);
    json_set_text(json, "cause", checkpoint->cause);
    json_set_int(json, "created_ms", checkpoint->created_ms);
    json_set_bool(json, "current", checkpoint->is_current);
}

int cmd_checkpoint(struct call *call, struct cay_error *err)
{
    const struct command_line *line = &call->line;
    const struct cay_checkpoint_options options = {
        .size = sizeof options,
        .name = line->count > 1 ? line->arguments[1] : NULL,
        .mode = call->options.stop ? CAY_CHECKPOINT_STOP : CAY_CHECKPOINT_IDLE};
    struct cay_checkpoint checkpoint;
    AUTO(cay_sandbox) sandbox = NULL;

    TRY(find_sandbox(line->arguments[0], &sandbox, err));
    TRY(cay_sandbox_checkpoint(sandbox, &options, &checkpoint, err));
    if (call->options.as_json)
        put_checkpoint(output_json(&call->output), &checkpoint);
    else
        fprintf(call->output.file, "%u\n", checkpoint.id);
    return CAY_OK;
}

int cmd_rollback(struct call *call, struct cay_error *err)
{
    const struct command_line *line = &call->line;
    struct cay_checkpoint undone;
    AUTO(cay_sandbox) sandbox = NULL;

    TRY(find_sandbox(line->arguments[0], &sandbox, err));
    TRY(cay_sandbox_rollback(sandbox, line->arguments[1], &undone, err));
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        json_put_key(json, "undone");
        if (undone.id)
            json_put_uint(json, undone.id);
        else
            json_put_null(json);
    } else if (undone.id) {
        fprintf(call->output.file, "the files before the rollback are checkpoint %u\n",
                undone.id);
    }
    return CAY_OK;
}

/* --- checkpoints --- */

struct list {
    struct cay_checkpoint *all;
    size_t count;
};

static void add_row(struct table *table, const struct cay_checkpoint *checkpoint,
                    unsigned indent)
{
    char age[QUANTITY_ROOM], size[QUANTITY_ROOM];

    table_cell(table, "%*s%u%s", (int)indent * 2, "", checkpoint->id,
               checkpoint->is_current ? " *" : "");
    table_cell(table, "%s", checkpoint->name);
    table_cell(table, "%s", quantity_age(checkpoint->created_ms, age));
    table_cell(table, "%s", quantity_bytes(checkpoint->bytes, size));
    table_cell(table, "%llu", (unsigned long long)checkpoint->files);
    table_cell(table, "%s", checkpoint->cause);
}

/* The only child of a checkpoint is as far to the right as its parent, so that a long
 * chain stays readable. */
static void add_rows(struct table *table, const struct list *list, uint32_t parent,
                     unsigned indent)
{
    size_t children = 0;

    for (size_t i = 0; i < list->count; i++)
        children += list->all[i].parent == parent;
    for (size_t i = 0; i < list->count; i++)
        if (list->all[i].parent == parent) {
            unsigned own = indent + (children > 1 && parent);
            add_row(table, &list->all[i], own);
            add_rows(table, list, list->all[i].id, own);
        }
}

static int print_json(struct call *call, const struct list *list)
{
    struct json *json = output_list(&call->output, "checkpoints");

    for (size_t i = 0; i < list->count; i++) {
        json_put_object(json);
        put_checkpoint(json, &list->all[i]);
        json_set_uint(json, "bytes", list->all[i].bytes);
        json_set_uint(json, "files", list->all[i].files);
        json_put_end(json);
    }
    return CAY_OK;
}

int cmd_checkpoints(struct call *call, struct cay_error *err)
{
    struct list list = {0};
    struct table table;
    AUTO(cay_sandbox) sandbox = NULL;

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    TRY(cay_sandbox_checkpoints(sandbox, &list.all, &list.count, err));
    AUTO_FREE struct cay_checkpoint *owned = list.all;
    (void)owned;
    if (call->options.as_json)
        return print_json(call, &list);
    TRY(table_open(&table, "CHECKPOINT|NAME|AGE|SIZE|FILES|CAUSE", err));
    add_rows(&table, &list, 0, 0);
    return table_print(&table, &call->output, err);
}
