/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_SQUASH_H
#define NATIVE_LAYER_SQUASH_H

#include <stdbool.h>
#include <stdint.h>

#include "native/make/inherit.h"
#include "native/template/template.h"

enum { SQUASH_DEPTH = 32 };

/* A layer, or the same directory of one. */
struct merge_source {
    int fd;
    uint32_t id_base; /* the owner that user 0 has; 0: owners are those inside */
    bool is_shared;   /* its files are never written to again, so links stand for them */
};

/* Makes one layer of several, the highest first, that stays above those below. */
struct merge {
    const struct merge_source *own, *below;
    size_t own_count, below_count;
    bool copies;                             /* what cannot be linked */
    uint64_t end_ms, max_entries, max_bytes; /* -ETIME, -E2BIG, -EFBIG beyond them */
    uint64_t entries, bytes;                 /* so far */
    void *originals;                         /* copied files with several links */
};

/* Into the empty directory `to`.  0 or a negative errno. */
int merge_trees(struct merge *merge, int to);

/* Creates the flat layer of layer `id` (native/make/layer.h) if that many layers lead to
 * the next flat one; `inherited` and `template` are below them.  The store is locked; the
 * layers are sealed, so processes inside do not matter.  0 or a negative errno, and then
 * nothing has changed. */
int squash_layers(int store, uint32_t id, const struct inherited *inherited,
                  const struct template *template);

/* Makes the inherited layers the "upper", and "usr", of the directory `to`: links to
 * their files, or copies where the kernel does not link.  Without a limit of time. */
int squash_copy(const struct inherited *inherited, const struct template *template,
                int to);

#endif
