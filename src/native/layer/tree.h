/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_TREE_H
#define NATIVE_LAYER_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "cay/sandbox.h"

/* The layers of a sandbox, in its store (native/make/store.h): 1 is the store's own
 * "upper", N is "layers/N/upper".  Each has "work" beside it and, over a writable /usr,
 * "usr" and "usr-work".  A sealed layer has a file "layer" in its directory: it is a
 * checkpoint.  The layer that the sandbox writes to is named in the file "tree"; without
 * that file it is 1.  A directory in "layers" with neither is left from a crash.
 *
 * Files of a layer have the owners that the sandbox's ids are on the host, and marks of
 * kind trusted.overlay.* */

enum { LAYER_FIRST = 1, LAYERS_MAX = 10000, LAYER_DEPTH_MAX = 400 };

struct layer_tree {
    uint32_t live;   /* the layer that the sandbox writes to */
    uint32_t parent; /* the layer below it, or 0 */
    uint32_t next;   /* the layer that replaces it, or 0: a switch may have happened */
    uint32_t next_parent;
    uint64_t device; /* of the root before that switch */
};

int layer_tree_load(int store, struct layer_tree *ret_tree, struct cay_error *err);
int layer_tree_save(int store, const struct layer_tree *tree, struct cay_error *err);

/* The directory of a layer: a descriptor or a negative errno. */
int layer_open(int store, uint32_t id);

/* A new layer that nothing refers to yet: its number, or a code.  Its "upper" has the
 * owner and mode of that of layer `like`, which are those of the root. */
int layer_create(int store, uint32_t like, bool has_usr, struct cay_error *err);

/* Whether nothing has changed since the layer was created; a negative errno on failure.
 */
int layer_is_empty(int store, uint32_t id);

/* The record of a sealed layer; CAY_E_NOT_FOUND: it is not sealed. */
int layer_save(int store, const struct cay_checkpoint *checkpoint, struct cay_error *err);
int layer_load(int store, uint32_t id, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err);

/* Removes the record. */
int layer_unseal(int store, uint32_t id, struct cay_error *err);

/* Removes a layer that is not used. */
void layer_drop(int store, uint32_t id);

/* All checkpoints by number; the caller frees the array.  `with_sizes` reads them all. */
int layer_list(int store, bool with_sizes, struct cay_checkpoint **ret_list,
               size_t *ret_count, struct cay_error *err);

/* By number or name. */
int layer_find(int store, const char *which, struct cay_checkpoint *ret_checkpoint,
               struct cay_error *err);

/* The layer and those below it, top first: O_PATH descriptors of `part` ("upper" or
 * "usr") of each.  The kind of marks is trusted.overlay.* */
struct layer_stack {
    int fds[LAYER_DEPTH_MAX];
    size_t count;
};
int layer_stack_open(int store, uint32_t id, const char *part,
                     struct layer_stack *ret_stack, struct cay_error *err);
void layer_stack_close(struct layer_stack *stack);

#endif
