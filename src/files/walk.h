/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_WALK_H
#define FILES_WALK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cay/error.h"
#include "sys/fs.h"

/* A walk through a directory tree in the bytewise order of its paths.
 *
 * Every name is looked up below an open directory, and no link is followed unless the
 * caller opens its target.  Memory and the number of descriptors are bounded whatever the
 * size of the tree: of a deep path only the lowest directories stay open; the others are
 * reopened from the root when needed, and must then still be the same directory.  Paths
 * beyond PATH_MAX are skipped.
 *
 * For each name walk_next() reports WALK_NAME; for each that may be a directory it
 * reports WALK_BELOW in addition, where the paths below it sort ("a", "a.txt", "a/b");
 * the caller then enters it or does not. */

enum walk_event { WALK_NAME, WALK_BELOW };

struct walk_step {
    enum walk_event event;
    const char *rel;    /* below the start, as walked: may pass through entered links */
    const char *name;   /* its last component */
    int dir;            /* the directory it is in */
    const char *real;   /* that directory's link-free path below the root */
    uint32_t depth;     /* 1 for what is in the start itself */
    unsigned char type; /* DT_REG, DT_DIR, DT_LNK, ...; never DT_UNKNOWN */
    uint64_t mark;      /* the caller's, of the directory it is in */
};

struct walk;

struct walk_options {
    const struct fs *fs;
    int root;         /* where the paths for reopening start */
    const char *real; /* the start's link-free path below it */
    uint64_t mark;
    uint32_t max_depth;   /* nothing deeper is entered */
    uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none */
    const char *after;    /* path below the start: earlier ones may be skipped, or NULL */
};

/* `dir` is the start, by any kind of descriptor; it is not kept. */
int walk_new(const char *op, int dir, const struct walk_options *options,
             struct walk **ret_walk, struct cay_error *err);
void walk_free(struct walk *walk); /* NULL is fine */

/* 1 and the next step, 0 at the end, or a code.  The step's pointers live until the next
 * call.  Entries that vanish or are unreadable are skipped. */
int walk_next(struct walk *walk, struct walk_step *ret_step, struct cay_error *err);

/* After WALK_BELOW of a real directory: its entries come next. */
int walk_enter(struct walk *walk, uint64_t mark, struct cay_error *err);

/* Whether a directory was skipped as unreadable since the last call of this. */
bool walk_was_denied(struct walk *walk);

/* After WALK_BELOW of a link: `dir`, held by the caller, is its target and `real` the
 * link-free path of that. */
int walk_enter_link(struct walk *walk, int dir, const char *real, uint64_t mark,
                    struct cay_error *err);

/* "dir/name", or just the name if dir is ""; false if that is over PATH_MAX. */
bool walk_join(char out[PATH_MAX], const char *dir, const char *name);

/* Whether an error means that a file is missing or unreadable, and may be skipped; any
 * other must be reported, or a listing would silently be incomplete. */
bool walk_may_skip(int sys_errno);

uint64_t walk_deadline(uint32_t timeout_ms); /* from now; 0 stays "none" */
int walk_check_deadline(const char *op, uint64_t deadline_ns, struct cay_error *err);

/* Removes `name` in `dir` and, if it is a directory, all below it.  Links and mounts are
 * not passed through.  On failure some of it may be deleted. */
int tree_remove(const struct fs *fs, const char *op, int dir, const char *name,
                const char *path, struct cay_error *err);

#endif
