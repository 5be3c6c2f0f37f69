/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TREE_READ_H
#define FILES_TREE_READ_H

#include <limits.h>

#include "files/handle.h"

/* Goes through a directory tree as the policy shows it, for whoever copies it somewhere:
 * in the order of the paths, a directory before what is in it. */

struct tree_entry {
    const char *rel;             /* below the start */
    const struct target *target; /* what it is: held, with its `st` */
    uint32_t depth;              /* 1 for what is in the start itself */
    int fd; /* of a file: open for reading, and `st` is of now; else -1 */
};

struct tree_read {
    const char *op;
    cay_files *files;
    const struct target *start;
    const struct cay_tar_options *options; /* all set */

    /* 1 if it went through, 0 if it was left out, or a code. */
    int (*take)(void *cookie, const struct tree_entry *entry, struct cay_error *err);
    void *cookie;

    /* What went through so far: names, bytes of files; and what was left out. */
    uint64_t entries, bytes, skipped;
    uint64_t denied;            /* what may not be read, which is not among them... */
    char denied_path[PATH_MAX]; /* ...and the first of it */
};

/* What breaks a rule is left out, and so are special files, but for FIFOs with
 * CAY_TAR_WHOLE. */
int tree_read(struct tree_read *tree, struct cay_error *err);

/* When all else is done: CAY_E_DENIED if something was not for us to read. */
int tree_check_denied(const struct tree_read *tree, struct cay_error *err);

#endif
