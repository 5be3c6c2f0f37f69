/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIFF_LAYER_H
#define DIFF_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "diff/diff.h"

/* Directories of layers, merged as overlayfs merges them: an entry hides those of the
 * same name below; directories merge until one that is opaque, or something that is not a
 * directory; a whiteout hides and is not there itself.  The roots of the layers are never
 * opaque. */

struct layer_dir {
    uint16_t layer;
    int fd;
    bool has_xattr_whiteouts; /* overlay.opaque is "x" */
};

/* Opens the directory `path` ("": the root) of a layer; 0 or a negative errno, -ENOENT if
 * there is no such directory any more. */
int layer_open_dir(const cay_diff *diff, uint16_t layer, const char *path,
                   struct layer_dir *ret_dir);

struct layer_found {
    uint16_t layer; /* the uppermost that has it; DIFF_NO_LAYER: absent */
    bool is_final;  /* layers below do not matter */
    struct stat st; /* with the owner as inside */
    uint16_t *merged;
    size_t merged_count; /* of a directory: the layers that have it; room for all */
};

/* Looks a name up in some of the directories, from the uppermost; 0 or a negative errno.
 */
int layer_look(const cay_diff *diff, const struct layer_dir *dirs, size_t count,
               const char *name, struct layer_found *found);

/* Continues `found` with what the layers below it have. */
void layer_append(struct layer_found *found, const struct layer_found *below);

#endif
