/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a sandbox on disk against its template, and those of two checkpoints. */
#include "cay/diff.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/make/layer.h"
#include "native/native.h"
#include "native/record/storage.h"
#include "native/template/template.h"
#include "sys/path.h"

static const char op[] = "sandbox.diff";

static int fail_unsupported(const char *id, const char *message, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, id, message,
                    "create the sandbox as root, with storage on disk and a template of "
                    "cay template create");
}

/* Only a stored template, or a directory, is the one layer below the disk. */
static int check_template(const char *id, const char *name, struct cay_error *err)
{
    if (geteuid() != 0)
        return fail_unsupported(id, "only root can read the layers of a sandbox", err);
    if (!name || strcmp(name, "host") == 0 || strcmp(name, "base") == 0)
        return fail_unsupported(id, "the sandbox has no layer above a stored template",
                                err);
    return CAY_OK;
}

/* The layers of a sandbox on disk, the highest first. */
static int open_layers(const char *id, struct layer_stack *ret_stack,
                       struct cay_error *err)
{
    static const struct inherited nothing = {.namespace = -1};
    struct storage storage;
    struct layer_tree tree;

    ret_stack->count = 0;
    TRY(storage_lock(id, &storage, err));
    int code = layer_tree_load(storage.disk, &tree, err);
    AUTO_FD live = code ? -1 : store_open_layer(storage.disk, tree.live);
    int upper =
        live < 0 ? live : path_open(live, "upper", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (!code && upper < 0)
        code = cay_fail_errno(err, -upper, op, id);
    if (!code)
        code = layer_stack_open(storage.disk, tree.parent, &nothing, "upper", ret_stack,
                                err);
    storage_done(&storage);
    if (code || ret_stack->count == LAYER_DEPTH_MAX) {
        auto_close(&upper);
        layer_stack_close(ret_stack);
        return code ? code : layer_fail_depth(err);
    }
    memmove(ret_stack->fds + 1, ret_stack->fds, ret_stack->count * sizeof upper);
    ret_stack->fds[0] = upper;
    ret_stack->count++;
    return CAY_OK;
}

/* A tree that is being put together, the highest layer first. */
struct tree {
    struct cay_diff_layer layers[2 * LAYER_DEPTH_MAX + OVERLAY_BELOW_MAX + 1];
    size_t count;
};

static void add_layers(struct tree *tree, const int *fds, size_t count, uint32_t id_base)
{
    for (size_t i = 0; i < count; i++)
        tree->layers[tree->count++] =
            (struct cay_diff_layer){fds[i], CAY_DIFF_MARKS_TRUSTED, id_base};
}

static void add_template(struct tree *tree, const struct template *template)
{
    add_layers(tree, &template->root, template->root >= 0, 0);
    add_layers(tree, template->below, template->below_count, 0);
}

static int compare_trees(const struct tree *before, const struct tree *after,
                         const struct cay_diff_options *options, cay_diff **ret_diff,
                         struct cay_error *err)
{
    return cay_diff_compare(&(struct cay_diff_tree){before->layers, before->count},
                            &(struct cay_diff_tree){after->layers, after->count}, options,
                            ret_diff, err);
}

static int compare(const char *id, const char *template_name,
                   const struct cay_diff_options *options, cay_diff **ret_diff,
                   struct cay_error *err)
{
    struct template template = TEMPLATE_NONE;
    struct tree before = {.count = 0}, after = {.count = 0};
    struct layer_stack stack;

    TRY(check_template(id, template_name, err));
    TRY(open_layers(id, &stack, err));
    int code = template_open(template_name, true, &template, err);
    if (!code) {
        add_layers(&after, stack.fds, stack.count, 0);
        add_template(&before, &template);
        add_template(&after, &template);
        code = compare_trees(&before, &after, options, ret_diff, err);
    }
    template_done(&template);
    layer_stack_close(&stack);
    return code;
}

int cay_sandbox_diff(const char *id, const struct cay_diff_options *options,
                     cay_diff **ret_diff, struct cay_error *err)
{
    struct storage_saved saved;

    *ret_diff = NULL;
    TRY(storage_load(id, &saved, err));
    int code = compare(id, saved.options.template_name, options, ret_diff, err);
    storage_saved_done(&saved);
    return code;
}

/* --- Checkpoints --- */

int native_rollback_full(void *cookie, const char *which,
                         const struct cay_rollback_options *options,
                         struct cay_rollback *ret_rollback, struct cay_error *err)
{
    static const struct checkpoint_differ differ = {cay_diff_compare, cay_diff_changes,
                                                    cay_diff_cut, cay_diff_free};

    return checkpoint_rollback(cookie, which, options, &differ, ret_rollback, err);
}

static void fill_tree(const struct checkpoint_pair *pair, const struct layer_stack *own,
                      struct tree *tree)
{
    tree->count = 0;
    add_layers(tree, own->fds, own->count, pair->id_base);
    add_layers(tree, pair->shared.fds, pair->shared.count, pair->id_base);
    add_template(tree, &pair->template);
}

static int compare_pair(struct native *native, const char *before, const char *after,
                        const struct cay_diff_options *options, cay_diff **ret_diff,
                        struct cay_error *err)
{
    struct checkpoint_pair pair;
    struct tree old, new;

    TRY(checkpoint_pair_open(native, before, after, &pair, err));
    fill_tree(&pair, &pair.before, &old);
    fill_tree(&pair, &pair.after, &new);
    int code = compare_trees(&old, &new, options, ret_diff, err);
    checkpoint_pair_close(&pair);
    return code;
}

int cay_sandbox_diff_checkpoints(const char *id, const char *before, const char *after,
                                 const struct cay_diff_options *options,
                                 cay_diff **ret_diff, struct cay_error *err)
{
    void *native = NULL;

    *ret_diff = NULL;
    TRY(native_open(id, false, &native, err));
    int code = compare_pair(native, before, after, options, ret_diff, err);
    native_free(native);
    return code;
}
