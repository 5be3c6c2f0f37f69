/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_CHECKPOINT_H
#define NATIVE_LAYER_CHECKPOINT_H

#include "cay/diff.h"
#include "native/layer/squash.h"
#include "native/make/layer.h"
#include "native/process/handle.h"
#include "native/template/template.h"

/* See cay/sandbox.h. */
int native_checkpoint(void *cookie, const struct cay_checkpoint_options *options,
                      struct cay_checkpoint *ret_checkpoint, struct cay_error *err);
int native_rollback(void *cookie, const char *which,
                    const struct cay_rollback_options *options,
                    struct cay_rollback *ret_rollback, struct cay_error *err);
/* The functions of cay/diff.h, which the small program has not. */
struct checkpoint_differ {
    int (*compare)(const struct cay_diff_tree *before, const struct cay_diff_tree *after,
                   const struct cay_diff_options *options, cay_diff **ret_diff,
                   struct cay_error *err);
    const struct cay_change *(*changes)(const cay_diff *diff, size_t *ret_count);
    uint64_t (*cut)(const cay_diff *diff);
    void (*free)(cay_diff *diff);
};

/* The same with processes that are kept. */
int checkpoint_rollback(struct native *native, const char *which,
                        const struct cay_rollback_options *options,
                        const struct checkpoint_differ *differ,
                        struct cay_rollback *ret_rollback, struct cay_error *err);
int native_remove_checkpoint(void *cookie, const char *which, uint64_t *ret_freed,
                             struct cay_error *err);
int native_checkpoints(void *cookie, struct cay_checkpoint **ret_list, size_t *ret_count,
                       struct cay_error *err);
bool native_checkpoint_each(const void *cookie);

/* The layers of two checkpoints, the highest first; the caller calls
 * checkpoint_pair_close(). */
struct checkpoint_pair {
    struct layer_stack before, after; /* above those that both have */
    struct layer_stack shared;
    struct template template; /* below them all, with owners as inside */
    uint32_t id_base;         /* the owner that user 0 has in the layers */
    struct inherited inherited;
    int mount;
};

/* `after` NULL: the files as they are now. */
int checkpoint_pair_open(struct native *native, const char *before, const char *after,
                         struct checkpoint_pair *ret_pair, struct cay_error *err);
void checkpoint_pair_close(struct checkpoint_pair *pair);

/* The layers of a checkpoint, for a new sandbox; `which` NULL: of one that is made now.
 * The caller calls inherited_done(). */
int checkpoint_inherit(struct native *native, const char *which,
                       struct inherited *ret_inherited, struct cay_error *err);

/* The files of a sandbox as layers, the highest first. */
struct checkpoint_files {
    struct merge_source upper[LAYER_DEPTH_MAX + 1], usr[LAYER_DEPTH_MAX + 1];
    size_t count, usr_count;         /* usr: if the template has a layer above /usr */
    const struct template *template; /* below them */
};
typedef int checkpoint_use(void *cookie, const struct checkpoint_files *files,
                           struct cay_error *err);

/* Calls `use` with the layers of a checkpoint, which do not change meanwhile; `which`
 * NULL: of one that is made now. */
int checkpoint_visit(struct native *native, const char *op, const char *which,
                     enum cay_checkpoint_mode mode, checkpoint_use *use, void *cookie,
                     struct cay_error *err);

/* The same of a sandbox on disk that is stopped: its files as they are. */
int checkpoint_visit_stopped(const char *id, const char *op, checkpoint_use *use,
                             void *cookie, struct cay_error *err);

#endif
