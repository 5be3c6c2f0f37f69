/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIFF_CONTENT_H
#define DIFF_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "diff/diff.h"

/* Reads what a layer has at a path.  No link is followed; only regular files and
 * directories are opened, never a device, not even one that replaces a file meanwhile. */

/* A descriptor for reading, or a negative errno: -ENXIO if it is neither. */
int content_open(const cay_diff *diff, uint16_t layer, const char *path);

/* The same for what was a file or a directory a moment ago: faster where the layer's
 * mount has nodev.  There a FIFO may be opened that replaces it in between, without
 * blocking. */
int content_open_seen(const cay_diff *diff, uint16_t layer, const char *path,
                      bool is_directory);

/* The target of a link in `text`, of PATH_MAX bytes; its length or a negative errno. */
ssize_t content_link(const cay_diff *diff, uint16_t layer, const char *path, char *text);

/* 1 if both files have the same bytes, 0 if not, or a code.  Files over CONTENT_SAME_MAX
 * count as different. */
#define CONTENT_SAME_MAX (UINT64_C(4) << 30)
int content_same(const cay_diff *diff, int before, int after, struct cay_error *err);

/* Whether the extended attributes that count are the same. */
bool content_same_xattrs(const cay_diff *diff, int before, int after);

/* One side of a change as git sees it: the bytes of a file or the target of a link.
 * Empty, too, if the side does not exist. */
struct content {
    struct buf bytes;
    bool is_binary; /* git's rule, or too large, or unreadable */
    bool is_whole;  /* bytes has all of it */
};

int content_load(const cay_diff *diff, const struct cay_change *change,
                 enum diff_side side, struct content *ret_content, struct cay_error *err);
void content_done(struct content *content);

#endif
