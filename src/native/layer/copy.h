/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_COPY_H
#define NATIVE_LAYER_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { COPY_MAPPED_MAX = 256 };

/* Files of the live layer that processes write to through a shared mapping, by inode: a
 * write to a page that is dirty already changes no time. */
struct copy_mapped {
    bool is_all; /* any file may be one */
    size_t count;
    uint64_t inodes[COPY_MAPPED_MAX];
};

/* Adds those of frozen processes; `live` is the directory of the live layer.  0 or a
 * negative errno. */
int copy_find_mapped(pid_t init, const pid_t *pids, size_t count, int live,
                     struct copy_mapped *ret_mapped);

struct copy_job {
    int store;
    uint32_t from; /* the live layer */
    uint32_t last; /* an older copy of it, or 0 */
    uint32_t to;   /* a new layer, without a record */
    bool has_usr;
    const struct copy_mapped *mapped;
    uint64_t end_ms; /* -ETIME after it */
};

/* Copies a layer while its processes are frozen.  A file that has not changed since the
 * older copy becomes a link to that one.  *ret_is_same: nothing has.  0 or a negative
 * errno. */
int copy_layer(const struct copy_job *job, bool *ret_is_same);

/* Copies one entry of any kind out of a layer to a live root, a directory without what is
 * in it; that may exist.  `st` has the owner that it gets.  0 or a negative errno. */
int copy_entry(int from, int to, const char *name, const struct stat *st);

#endif
