/* SPDX-License-Identifier: Apache-2.0 */
/* cay checkpoint, rollback, checkpoints and fork. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/signals.h"
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
    json_set_uint(json, "processes", checkpoint->processes);
}

/* The sandbox that the first argument names.  1: it names a try, or there is none, which
 * means the newest try of this directory; all is done. */
static int find(struct call *call, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    struct cay_error other;
    bool is_try = false;
    int code = call->line.count ? find_sandbox(call->line.arguments[0], ret_sandbox, err)
                                : CAY_E_NOT_FOUND;

    if (code != CAY_E_NOT_FOUND)
        return code;
    int status = sandbox_program.checkpoint_try(call, &is_try, &other);
    if (call->line.count && !is_try)
        return code;
    return status < 0 ? cay_fail_as(err, status, &other) : 1;
}

static int fail_missing(const char *what, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, "cli.checkpoint", what, "no checkpoint given",
                    "pass its number or name; cay checkpoints lists them");
}

void checkpoint_print(struct call *call, const struct cay_checkpoint *checkpoint)
{
    if (call->options.as_json)
        put_checkpoint(output_json(&call->output), checkpoint);
    else
        fprintf(call->output.file, "%u\n", checkpoint->id);
}

static int remove_checkpoint(struct call *call, cay_sandbox *sandbox,
                             struct cay_error *err)
{
    uint64_t freed;
    char size[QUANTITY_ROOM];

    if (call->line.count < 2)
        return fail_missing("--rm", err);
    TRY(cay_sandbox_remove_checkpoint(sandbox, call->line.arguments[1], &freed, err));
    if (call->options.as_json)
        json_set_uint(output_json(&call->output), "freed_bytes", freed);
    else
        fprintf(call->output.file, "%s freed\n", quantity_bytes(freed, size));
    return CAY_OK;
}

int cmd_checkpoint(struct call *call, struct cay_error *err)
{
    const struct command_line *line = &call->line;
    const struct cay_checkpoint_options options = {
        .size = sizeof options,
        .name = line->count > 1 ? line->arguments[1] : NULL,
        .mode = call->options.stop ? CAY_CHECKPOINT_STOP : CAY_CHECKPOINT_AUTO};
    struct cay_checkpoint checkpoint;
    AUTO(cay_sandbox) sandbox = NULL;

    int status = find(call, &sandbox, err);
    if (status)
        return status < 0 ? status : CAY_OK;
    if (call->options.remove)
        return remove_checkpoint(call, sandbox, err);
    TRY(cay_sandbox_checkpoint(sandbox, &options, &checkpoint, err));
    checkpoint_print(call, &checkpoint);
    return CAY_OK;
}

static void put_rollback(struct json *json, const struct cay_rollback *rollback)
{
    json_put_key(json, "undone");
    if (rollback->undone.id)
        json_put_uint(json, rollback->undone.id);
    else
        json_put_null(json);
    json_put_key(json, "ended");
    json_put_array(json);
    for (size_t i = 0; i < rollback->ended_count; i++) {
        json_put_object(json);
        json_set_int(json, "pid", rollback->ended[i].pid);
        json_set_text(json, "command", rollback->ended[i].command);
        json_put_end(json);
    }
    json_put_end(json);
    json_set_uint(json, "kept", rollback->kept_count);
}

void rollback_print(struct call *call, const struct cay_rollback *rollback)
{
    FILE *file = call->output.file;

    if (call->options.as_json) {
        put_rollback(output_json(&call->output), rollback);
        return;
    }
    if (rollback->undone.id)
        fprintf(file, "the files before the rollback are checkpoint %u\n",
                rollback->undone.id);
    for (size_t i = 0; i < rollback->ended_count; i++)
        fprintf(file, "ended process %d: %s\n", rollback->ended[i].pid,
                rollback->ended[i].command);
}

int cmd_rollback(struct call *call, struct cay_error *err)
{
    const struct command_line *line = &call->line;
    struct cay_rollback rollback;
    AUTO(cay_sandbox) sandbox = NULL;

    int status = find(call, &sandbox, err);
    if (status)
        return status < 0 ? status : CAY_OK;
    if (line->count < 2)
        return fail_missing(line->arguments[0], err);
    const struct cay_rollback_options options = {.size = sizeof options,
                                                 .keep = call->options.keep};
    int code =
        sandbox_program.rollback(sandbox, line->arguments[1], &options, &rollback, err);
    AUTO_FREE struct cay_ended *owned = rollback.ended;
    (void)owned;
    if (!code)
        rollback_print(call, &rollback);
    return code;
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

int checkpoints_print(struct call *call, struct cay_checkpoint *all, size_t count,
                      struct cay_error *err)
{
    const struct list list = {all, count};
    struct table table;

    if (call->options.as_json)
        return print_json(call, &list);
    TRY(table_open(&table, "CHECKPOINT|NAME|AGE|SIZE|FILES|CAUSE", err));
    add_rows(&table, &list, 0, 0);
    return table_print(&table, &call->output, err);
}

int cmd_checkpoints(struct call *call, struct cay_error *err)
{
    size_t count;
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO_FREE struct cay_checkpoint *list = NULL;
    int status = find(call, &sandbox, err);

    if (status)
        return status < 0 ? status : CAY_OK;
    TRY(cay_sandbox_checkpoints(sandbox, &list, &count, err));
    return checkpoints_print(call, list, count, err);
}

/* --- fork --- */

enum { FORKS_MAX = 10000 };

static int print_forks(struct call *call, const struct forks *forks,
                       struct cay_error *err)
{
    struct json *json = call->options.as_json ? output_list(&call->output, "ids") : NULL;

    for (size_t i = 0; i < forks->count; i++)
        if (json && forks->made[i])
            json_put_text(json, cay_sandbox_id(forks->made[i]));
        else if (forks->made[i])
            fprintf(call->output.file, "%s\n", cay_sandbox_id(forks->made[i]));
    if (forks->saved)
        sandbox_program.contexts->print(forks, json);
    return output_finish(&call->output, err);
}

/* With --partial: prints the reason of each failure. */
static int print_failures(struct call *call, const struct forks *forks, int code,
                          struct cay_error *err)
{
    size_t failed = 0;

    for (size_t i = 0; i < forks->count; i++)
        if (forks->errors[i].code) {
            (void)output_error(&forks->errors[i], call->options.as_json);
            failed++;
        }
    if (!failed)
        return code;
    return cay_fail(err, code, 0, "cli.fork", call->line.arguments[0],
                    "some sandboxes were not created",
                    "%zu of %zu failed; the messages before this one say why", failed,
                    forks->count);
}

/* "ID:CHECKPOINT" */
static int fork_word(const char *word, const struct cay_sandbox_options *options,
                     struct forks *forks, struct cay_error *err)
{
    AUTO_FREE char *id = strdup(word);
    AUTO(cay_sandbox) sandbox = NULL;

    if (!id)
        return cay_fail_memory(err, "cli.fork");
    char *checkpoint = strchr(id, ':');
    if (checkpoint)
        *checkpoint++ = '\0';
    TRY(find_sandbox(id, &sandbox, err));
    int code = cay_sandbox_fork(sandbox, checkpoint, options, forks->count, forks->made,
                                forks->errors, err);
    if (!forks->saved || (code && !forks->errors))
        return code;
    int restored = sandbox_program.contexts->restore(forks, err);
    return code ? code : restored;
}

/* Without its printed ID the caller could not remove a sandbox. */
static int make_forks(struct call *call, const struct cay_sandbox_options *options,
                      struct forks *forks, struct cay_error *err)
{
    const char *word = call->line.arguments[0];

    if (forks->has_contexts) /* interrupted, it leaves nothing */
        TRY(sandbox_program.contexts->save(word, options, forks, err));
    signals_catch();
    int code = fork_word(word, options, forks, err);
    int printed = CAY_OK;
    if (!code || forks->errors)
        printed = print_forks(call, forks, code ? NULL : err);
    int signal = signals_take();
    for (size_t i = 0; i < forks->count; i++) {
        if (forks->made[i] && (printed || signal))
            (void)!cay_sandbox_remove(forks->made[i], NULL);
        cay_sandbox_free(forks->made[i]);
    }
    if (forks->saved)
        sandbox_program.contexts->done(forks);
    if (signal)
        signals_die(signal);
    if (code && forks->errors)
        code = print_failures(call, forks, code, err);
    return code ? code : printed;
}

int cmd_fork(struct call *call, struct cay_error *err)
{
    const struct option_number *number = &call->options.count;
    struct sandbox_plan plan;

    if (number->given && (number->value == 0 || number->value > FORKS_MAX))
        return cay_fail(err, CAY_E_INVALID, 0, "cli.fork", "--count",
                        "invalid number of sandboxes", "use a number from 1 to %d",
                        FORKS_MAX);
    struct forks forks = {.count = number->given ? number->value : 1,
                          .has_contexts = call->options.contexts};
    AUTO_FREE cay_sandbox **made = forks.made = calloc(forks.count, sizeof *made);
    AUTO_FREE struct cay_error *errors = calloc(forks.count, sizeof *errors);
    if (!made || !errors)
        return cay_fail_memory(err, "cli.fork");
    if (call->options.partial)
        forks.errors = errors;
    TRY(sandbox_plan(&call->options, NULL, NULL, &plan, err));
    int code = make_forks(call, &plan.sandbox, &forks, err);
    sandbox_plan_done(&plan);
    return code;
}
