/* SPDX-License-Identifier: Apache-2.0 */

/* cay fork --contexts, in the full program only. */
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "json/json.h"

static void put_contexts(struct json *json, const struct forks *forks)
{
    size_t count;
    const struct cay_saved_context *items =
        cay_saved_contexts_items(forks->saved, &count);

    json_put_end(json); /* of the ids */
    json_put_key(json, "contexts");
    json_put_array(json);
    for (size_t i = 0; i < count; i++) {
        json_put_object(json);
        json_set_text(json, "id", items[i].id);
        json_set_text(json, "language", items[i].language);
        json_set_bool(json, "is_saved", items[i].is_saved);
        json_set_uint(json, "bytes", items[i].bytes);
        json_set_text(json, "reason", items[i].is_saved ? NULL : items[i].reason);
        json_put_end(json);
    }
}

static void note_contexts(const struct forks *forks)
{
    size_t count;
    const struct cay_saved_context *items =
        cay_saved_contexts_items(forks->saved, &count);

    for (size_t i = 0; i < count; i++) {
        if (items[i].is_saved)
            continue;
        fputs("cay: note: context ", stderr);
        show_name(stderr, items[i].id);
        fputs(" (", stderr);
        show_name(stderr, items[i].language);
        fputs(") begins anew in the fork: ", stderr);
        show_name(stderr, items[i].reason);
        fputc('\n', stderr);
    }
}

static void print_contexts(const struct forks *forks, struct json *json)
{
    if (json)
        put_contexts(json, forks);
    else
        note_contexts(forks);
}

static int remove_forks(struct forks *forks, int code)
{
    for (size_t i = 0; i < forks->count; i++) {
        if (forks->made[i])
            (void)!cay_sandbox_remove(forks->made[i], NULL);
        cay_sandbox_free(forks->made[i]);
        forks->made[i] = NULL;
    }
    return code;
}

/* As for the creation: all, or a report of each. */
static int restore_contexts(struct forks *forks, struct cay_error *err)
{
    int first = CAY_OK;

    for (size_t i = 0; i < forks->count; i++) {
        struct cay_error *why = forks->errors ? &forks->errors[i] : err;
        int code = forks->made[i]
                       ? cay_contexts_restore(forks->made[i], forks->saved, why)
                       : CAY_OK;
        if (code && !forks->errors)
            return remove_forks(forks, code);
        if (code) {
            struct forks one = {.made = &forks->made[i], .count = 1};
            first = first ? first : code;
            (void)remove_forks(&one, code);
        }
    }
    return first;
}

/* Of the present, before its files, so these are not older. */
static int save_contexts(const char *word, const struct cay_sandbox_options *options,
                         struct forks *forks, struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;

    if (strchr(word, ':'))
        return cay_fail(err, CAY_E_INVALID, 0, "cli.fork", "--contexts",
                        "a checkpoint has no contexts",
                        "leave the checkpoint out: contexts go on with the files of now");
    TRY(find_sandbox(word, &sandbox, err));
    return cay_contexts_save(sandbox, options->user, &forks->saved, err);
}

static void free_contexts(struct forks *forks)
{
    cay_saved_contexts_free(forks->saved);
    forks->saved = NULL;
}

const struct fork_contexts fork_contexts = {.save = save_contexts,
                                            .restore = restore_contexts,
                                            .print = print_contexts,
                                            .done = free_contexts};
