/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/modes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"

enum { BATCH = 256, PERMISSIONS = 0777 };

static const char op[] = "file.mode";

/* Some paths that get the same mode. */
struct batch {
    struct place *place;
    uint32_t mode;
    char *paths[BATCH];
    size_t count;
};

static void batch_done(struct batch *batch)
{
    while (batch->count)
        free(batch->paths[--batch->count]);
}

#define AUTO_BATCH __attribute__((cleanup(batch_done))) struct batch

static int flush(struct batch *batch, struct cay_error *err)
{
    char digits[8];
    const char *argv[BATCH + 4] = {"chmod", digits, "--"};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .user = batch->place->user,
                                             .timeout_ms = 60000};
    struct cay_exec_result result = {0};

    if (!batch->count || !batch->place->sandbox)
        return CAY_OK;
    snprintf(digits, sizeof digits, "%o", batch->mode);
    for (size_t i = 0; i < batch->count; i++)
        argv[3 + i] = batch->paths[i];
    int code = cay_sandbox_exec(batch->place->sandbox, &options, &result, err);
    cay_exec_done(&result);
    batch_done(batch);
    return code;
}

static int add(struct batch *batch, uint32_t mode, const char *top, const char *path,
               struct cay_error *err)
{
    int code = CAY_OK;

    mode &= PERMISSIONS;
    if (batch->count == BATCH || (batch->count && batch->mode != mode))
        code = flush(batch, err);
    if (code)
        return code;
    batch->mode = mode;
    batch->paths[batch->count] = top ? place_join(top, path) : strdup(path);
    if (!batch->paths[batch->count])
        return cay_fail_memory(err, op);
    batch->count++;
    return CAY_OK;
}

int modes_set(struct place *place, const char *path, uint32_t mode, struct cay_error *err)
{
    AUTO_BATCH batch = {.place = place};
    int code = add(&batch, mode, NULL, path, err);

    return code ? code : flush(&batch, err);
}

/* Files by their modes, then directories from below: one may take away the right to go
 * there. */
static int compare(const void *one, const void *other)
{
    const struct cay_entry *a = *(const struct cay_entry *const *)one;
    const struct cay_entry *b = *(const struct cay_entry *const *)other;
    bool a_is_dir = a->stat.type == CAY_TYPE_DIRECTORY;
    bool b_is_dir = b->stat.type == CAY_TYPE_DIRECTORY;

    if (a_is_dir != b_is_dir)
        return a_is_dir - b_is_dir;
    if (!a_is_dir && a->stat.mode != b->stat.mode)
        return a->stat.mode < b->stat.mode ? -1 : 1;
    return strcmp(b->path, a->path);
}

int modes_set_all(struct place *place, const char *top, const struct cay_listing *listing,
                  const bool *is_new, struct cay_error *err)
{
    AUTO_FREE const struct cay_entry **entries =
        calloc(listing->count + 1, sizeof *entries);
    AUTO_BATCH batch = {.place = place};
    size_t count = 0;
    int code = CAY_OK;

    if (!entries)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < listing->count; i++)
        if (is_new[i])
            entries[count++] = &listing->entries[i];
    qsort(entries, count, sizeof *entries, compare);
    for (size_t i = 0; !code && i < count; i++)
        code = add(&batch, entries[i]->stat.mode, top, entries[i]->path, err);
    return code ? code : flush(&batch, err);
}
