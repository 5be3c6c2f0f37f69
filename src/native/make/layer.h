/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_LAYER_H
#define NATIVE_MAKE_LAYER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "cay/sandbox.h"
#include "native/make/inherit.h"

/* The layers of a sandbox, in its store (store.h) or, with storage on disk, in the
 * directory "disk" (native/record/storage.h) through an idmapped mount: 1 is the store's
 * own "upper", N is "layers/N/upper".  Each has "work" beside it and, over a writable
 * /usr, "usr" and "usr-work".  A sealed layer has a file "layer" in its directory: it is
 * a checkpoint.  Its parent is the checkpoint before it; the layer below it is another
 * one if the parent is a copy of a layer that processes wrote to.  The layer that the
 * sandbox writes to is named in the file "tree"; without that file it is 1.  A directory
 * in "layers" with neither is left from a crash.
 *
 * Files of a layer have the owners that the sandbox's ids are on the host, and marks of
 * kind trusted.overlay.* */

enum { LAYERS_MAX = 10000 };

/* A removed checkpoint is not listed; its layer stays while others are on it.  That of a
 * forked one stays, since forks have it below their own. */
enum layer_flag { LAYER_REMOVED = 1 << 0, LAYER_FORKED = 1 << 1 };

struct layer_tree {
    uint32_t live;   /* the layer that the sandbox writes to */
    uint32_t parent; /* the layer below it, or 0 */
    uint32_t copy;   /* the last copy of the live layer, over the same parent, or 0 */
    uint32_t origin; /* the checkpoint before, if it is neither of these */
    uint32_t last;   /* the highest number of a layer so far; 0: unknown */
    uint32_t next;   /* the layer that replaces it, or 0: a switch may have happened */
    uint32_t next_parent;
    uint64_t device; /* of the root before that switch */
};

/* Waits for the lock of a store, which the caller releases by closing it: 0 or a negative
 * errno. -EWOULDBLOCK: another process changes the layers. */
int layer_lock(int store);

/* The checkpoint that the live layer's files come from, or 0. */
static inline uint32_t layer_tree_origin(const struct layer_tree *tree)
{
    return tree->origin ? tree->origin : tree->copy ? tree->copy : tree->parent;
}

int layer_tree_load(int store, struct layer_tree *ret_tree, struct cay_error *err);
/* Without fsync the file may be an older one after a power failure. */
int layer_tree_save(int store, const struct layer_tree *tree, bool is_durable,
                    struct cay_error *err);

/* The switch to the next layer has happened, or may as well have. */
int layer_tree_adopt(int store, struct layer_tree *tree, struct cay_error *err);

/* A new layer that nothing refers to yet: its number, or a code.  Its "upper" has the
 * owner and mode of that of layer `like`, which are those of the root.  The caller saves
 * the tree; until then the next call replaces the layer. */
int layer_create(int store, struct layer_tree *tree, uint32_t like, bool has_usr,
                 struct cay_error *err);

/* Reserves the space that the next layer and its record need, so that a sandbox that has
 * filled its disk can be rolled back; layer_create() uses it. */
void layer_reserve(int store);

/* Whether nothing has changed since the layer was created; a negative errno on failure.
 */
int layer_is_empty(int store, uint32_t id);

/* Names a layer a checkpoint: the live one of the tree, or a copy of that. */
int layer_seal(int store, uint32_t id, const struct layer_tree *tree, const char *name,
               const char *cause, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err);

/* The record of a sealed layer; CAY_E_NOT_FOUND: it is not sealed. */
int layer_save(int store, const struct cay_checkpoint *checkpoint, struct cay_error *err);
int layer_load(int store, uint32_t id, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err);

/* The layer below a sealed layer that another one is on, or 0. */
int layer_find_below(int store, uint32_t id, uint32_t *ret_below, struct cay_error *err);

int layer_fail_depth(struct cay_error *err);

/* What a layer stands for in a stack: *ret_shown is the layer, or its flat one, and
 * *ret_below the next layer below that, or 0.
 *
 * A flat layer is that layer and many below it in one, so that no stack gets deep:
 * "flat" in the directory of the layer, with the file "below".  Its files are links to
 * theirs.  The others stay, since other layers may be on each of them. */
int layer_step(int store, uint32_t id, uint32_t *ret_shown, uint32_t *ret_below,
               struct cay_error *err);
int layer_save_flat(int dir, uint32_t below, struct cay_error *err);

/* Removes the record. */
int layer_unseal(int store, uint32_t id, struct cay_error *err);

/* Removes a checkpoint, and every layer of removed ones that nothing is on any more;
 * *ret_freed is the size of those. */
int layer_remove(int store, struct layer_tree *tree,
                 const struct cay_checkpoint *checkpoint, uint64_t *ret_freed,
                 struct cay_error *err);

/* The origin of the live layer, or the next checkpoint before it that is not removed. */
uint32_t layer_find_visible(int store, const struct layer_tree *tree);

/* Removes a layer that is not used. */
void layer_drop(int store, uint32_t id);

/* All checkpoints in the order of their creation; the caller frees the array.
 * `with_sizes` reads them all. */
int layer_list(int store, bool with_sizes, struct cay_checkpoint **ret_list,
               size_t *ret_count, struct cay_error *err);

/* By number or name, of several the newest. */
int layer_find(int store, const char *which, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err);

/* The layer and those below it, top first, with the inherited ones: O_PATH descriptors of
 * `part` ("upper" or "usr") of each.  The kind of marks is trusted.overlay.* */
struct layer_stack {
    int fds[LAYER_DEPTH_MAX];
    size_t count, above_flat; /* all; those before the first flat one */
    bool has_flat;
};
int layer_stack_open(int store, uint32_t id, const struct inherited *inherited,
                     const char *part, struct layer_stack *ret_stack,
                     struct cay_error *err);
void layer_stack_close(struct layer_stack *stack);

/* The root of a sandbox on disk that is started again, as overlay_mount(). */
int layer_mount(const struct overlay *overlay, int map, uint32_t id_base, int *ret_usr);

#endif
