/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/diff.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

/* About two seconds; what remains then is printed as replaced. */
static const uint64_t line_steps = UINT64_C(1) << 30;

int diff_check_time(const cay_diff *diff, struct cay_error *err)
{
    if (!diff->deadline_ns || clock_ns() < diff->deadline_ns)
        return CAY_OK;
    return cay_fail(err, CAY_E_TIMEOUT, 0, DIFF_OP, NULL,
                    "the comparison exceeded its timeout", "pass a longer timeout");
}

int diff_fail(int sys_errno, const char *path, struct cay_error *err)
{
    if (sys_errno == EXDEV)
        return cay_fail(err, CAY_E_UNSUPPORTED, EXDEV, DIFF_OP, path,
                        "another file system is mounted inside a layer",
                        "compare a clone of the layer's mount: open_tree(2)");
    return cay_fail_errno(err, sys_errno, DIFF_OP, path);
}

/* --- The layers --- */

static int fail_layer(const char *message, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, DIFF_OP, "layers", message,
                    "pass 1 to %d directories for each tree", CAY_DIFF_LAYERS_MAX);
}

/* The index of a layer in the table, which gets it if it is not there. */
static int add_layer(cay_diff *diff, const struct cay_diff_layer *layer,
                     uint16_t *ret_index, struct cay_error *err)
{
    struct statvfs mount;
    struct stat st;

    if (layer->marks > CAY_DIFF_MARKS_USER)
        return fail_layer("a layer has an unknown kind of marks", err);
    if (fstat(layer->fd, &st) != 0)
        return cay_fail_errno(err, errno, DIFF_OP, "layers");
    if (!S_ISDIR(st.st_mode))
        return fail_layer("a layer is not a directory", err);
    for (size_t i = 0; i < diff->layer_count; i++) {
        const struct diff_layer *known = &diff->layers[i];
        if (known->dev == st.st_dev && known->ino == st.st_ino &&
            known->marks == layer->marks && known->id_base == layer->id_base) {
            *ret_index = (uint16_t)i;
            return CAY_OK;
        }
    }
    int fd = fcntl(layer->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return cay_fail_errno(err, errno, DIFF_OP, "layers");
    *ret_index = (uint16_t)diff->layer_count;
    bool is_nodev = fstatvfs(fd, &mount) == 0 && mount.f_flag & ST_NODEV;
    diff->layers[diff->layer_count++] = (struct diff_layer){
        fd, layer->marks, layer->id_base, st.st_dev, st.st_ino, is_nodev};
    return CAY_OK;
}

static int add_stack(cay_diff *diff, enum diff_side side,
                     const struct cay_diff_tree *tree, struct cay_error *err)
{
    diff->stacks[side] = calloc(tree->count, sizeof *diff->stacks[side]);
    if (!diff->stacks[side])
        return cay_fail_memory(err, DIFF_OP);
    for (size_t i = 0; i < tree->count; i++)
        TRY(add_layer(diff, &tree->layers[i], &diff->stacks[side][i], err));
    diff->depths[side] = tree->count;
    return CAY_OK;
}

/* --- The diff --- */

static int by_path(const void *left, const void *right)
{
    const struct cay_change *a = left, *b = right;

    return strcmp(a->path, b->path);
}

void diff_sort(cay_diff *diff)
{
    size_t kept = 0;

    for (size_t i = 0; i < diff->count; i++)
        if (diff->changes[i].path)
            diff->changes[kept++] = diff->changes[i];
    diff->count = kept;
    if (kept)
        qsort(diff->changes, kept, sizeof *diff->changes, by_path);
}

struct cay_change *diff_find(const cay_diff *diff, const char *path)
{
    const struct cay_change key = {.path = path};

    return diff->count
               ? bsearch(&key, diff->changes, diff->count, sizeof *diff->changes, by_path)
               : NULL;
}

static int compare(cay_diff *diff, const struct cay_diff_tree *before,
                   const struct cay_diff_tree *after, struct cay_error *err)
{
    diff->layers = calloc(before->count + after->count, sizeof *diff->layers);
    diff->scratch = malloc(DIFF_SCRATCH);
    if (!diff->layers || !diff->scratch)
        return cay_fail_memory(err, DIFF_OP);
    TRY(add_stack(diff, DIFF_BEFORE, before, err));
    TRY(add_stack(diff, DIFF_AFTER, after, err));
    TRY(compare_trees(diff, err));
    if (!(diff->flags & CAY_DIFF_NO_RENAMES))
        TRY(rename_find(diff, err));
    diff_sort(diff);
    return CAY_OK;
}

int cay_diff_compare(const struct cay_diff_tree *before,
                     const struct cay_diff_tree *after,
                     const struct cay_diff_options *options, cay_diff **ret_diff,
                     struct cay_error *err)
{
    struct cay_diff_options known;

    *ret_diff = NULL;
    TRY(cay_take_struct(&known, sizeof known, options, DIFF_OP, err));
    if (known.flags & ~(unsigned)(CAY_DIFF_NO_RENAMES | CAY_DIFF_BINARY))
        return cay_fail(err, CAY_E_INVALID, 0, DIFF_OP, "flags", "unknown flags",
                        "pass values of enum cay_diff_flag");
    if (before->count == 0 || before->count > CAY_DIFF_LAYERS_MAX || after->count == 0 ||
        after->count > CAY_DIFF_LAYERS_MAX)
        return fail_layer("a tree has no layers, or too many", err);
    cay_diff *diff = calloc(1, sizeof *diff);
    if (!diff)
        return cay_fail_memory(err, DIFF_OP);
    diff->flags = known.flags;
    diff->deadline_ns =
        known.timeout_ms ? clock_ns() + known.timeout_ms * UINT64_C(1000000) : 0;
    diff->max_changes = known.max_changes ? known.max_changes : DIFF_DEFAULT_CHANGES;
    diff->max_text = known.max_text ? known.max_text : DIFF_DEFAULT_TEXT;
    diff->line_steps = line_steps;
    int code = compare(diff, before, after, err);
    if (code)
        cay_diff_free(diff);
    else
        *ret_diff = diff;
    return code;
}

void cay_diff_free(cay_diff *diff)
{
    if (!diff)
        return;
    for (size_t i = 0; i < diff->count; i++) {
        const struct cay_change *change = &diff->changes[i];
        free((char *)(uintptr_t)change->path);
        free((char *)(uintptr_t)change->old_path);
        free((char *)(uintptr_t)change->hard_link);
    }
    for (size_t i = 0; i < diff->layer_count; i++)
        (void)close(diff->layers[i].fd);
    free(diff->changes);
    free(diff->layers);
    free(diff->stacks[DIFF_BEFORE]);
    free(diff->stacks[DIFF_AFTER]);
    free(diff->scratch);
    free(diff);
}

const struct cay_change *cay_diff_changes(const cay_diff *diff, size_t *ret_count)
{
    *ret_count = diff->count;
    return diff->changes;
}

uint64_t cay_diff_cut(const cay_diff *diff)
{
    return diff->cut;
}
