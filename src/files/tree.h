/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TREE_H
#define FILES_TREE_H

#include <limits.h>

#include "files/handle.h"

/* Reads a directory tree as the policy shows it, to copy it: in the order of the paths, a
 * directory before its entries. */

struct tree_entry {
    const char *rel;             /* below the start */
    const struct target *target; /* held, with its `st` */
    uint32_t depth;              /* 1 for what is in the start itself */
    int fd; /* of a file: open for reading, with `st` from after that; else -1 */
};

struct tree_read {
    const char *op;
    cay_files *files;
    const struct target *start;
    const struct cay_tar_options *options; /* with all defaults filled in */

    /* 1 if it was copied, 0 if it was skipped, or a code. */
    int (*take)(void *cookie, const struct tree_entry *entry, struct cay_error *err);
    void *cookie;

    /* So far: entries copied, bytes of their files, entries skipped. */
    uint64_t entries, bytes, skipped;
    uint64_t denied;            /* unreadable entries, not counted as skipped */
    char denied_path[PATH_MAX]; /* the first of them */
};

/* Skips what a rule forbids, and special files other than FIFOs with CAY_TAR_WHOLE. */
int tree_read(struct tree_read *tree, struct cay_error *err);

/* At the end: CAY_E_DENIED if some entries were unreadable. */
int tree_check_denied(const struct tree_read *tree, struct cay_error *err);

#endif
