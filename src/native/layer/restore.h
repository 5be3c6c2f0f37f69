/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_RESTORE_H
#define NATIVE_LAYER_RESTORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cay/diff.h"

/* Changes of a diff that are made to the root of a sandbox, whose processes are frozen.
 * The old files are replaced, not written to. */
struct restore {
    int root;                           /* O_PATH */
    const struct cay_diff_layer *after; /* the layers of the tree to restore */
    size_t after_count;
    uint32_t id_base; /* of the owners in the root */
    const struct cay_change *changes;
    size_t count;
    struct restore_file *files; /* that are replaced or removed */
    size_t file_count;
    int work; /* the copies, until they have their names */
};

/* Finds the files, before anything changes; 0 or a negative errno.  The caller calls
 * restore_done() in any case, while the processes are frozen: it removes the copies. */
int restore_init(struct restore *restore);
void restore_done(struct restore *restore);

/* Whether a process has one of them; a negative errno on failure. */
int restore_concerns(const struct restore *restore, pid_t pid);

/* Copies the files that the next function renames, which takes nearly all of the time:
 * 0 or a negative errno, -ETIME if it did not end in time.  Nothing has changed. */
int restore_stage(struct restore *restore, uint64_t end_ms);

/* 0 or a negative errno: then a part has changed. */
int restore_apply(const struct restore *restore);

#endif
