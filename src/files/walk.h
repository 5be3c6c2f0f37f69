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
 * Every name is looked up below a directory that is held open, and no link is followed
 * unless the caller opens what it leads to.  Memory is bounded whatever the size of the
 * tree, and so is the number of descriptors: of a deep path only the lowest directories
 * stay open, the others are opened again from the root when needed and must then still be
 * the same directory.  What is beyond PATH_MAX cannot be named and is passed over.
 *
 * For each name walk_next() reports WALK_NAME; for each that may be a directory it
 * reports WALK_BELOW in addition, at the place where the paths below it have their turn
 * ("a", "a.txt", "a/b"); the caller then enters it or does not. */

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
    int root;         /* where paths to reopen by start */
    const char *real; /* the start's link-free path below it */
    uint64_t mark;
    uint32_t max_depth;   /* nothing deeper is entered */
    uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none */
    const char *after; /* path below the start: earlier ones may be left out, or NULL */
};

/* `dir` is the start, by any kind of descriptor; it is not kept. */
int walk_new(const char *op, int dir, const struct walk_options *options,
             struct walk **ret_walk, struct cay_error *err);
void walk_free(struct walk *walk); /* NULL is fine */

/* 1 and the next step, 0 at the end, or a code.  The step's pointers live until the next
 * call.  What vanishes or may not be read is left out. */
int walk_next(struct walk *walk, struct walk_step *ret_step, struct cay_error *err);

/* After WALK_BELOW of a real directory: what is in it comes next. */
int walk_enter(struct walk *walk, uint64_t mark, struct cay_error *err);

/* Whether a directory had to be left out, since the last time this was asked, because we
 * may not read it. */
bool walk_was_denied(struct walk *walk);

/* After WALK_BELOW of a link: `dir`, held by the caller, is where it leads and `real` the
 * link-free path of that. */
int walk_enter_link(struct walk *walk, int dir, const char *real, uint64_t mark,
                    struct cay_error *err);

/* "dir/name", or just the name if dir is ""; false if that is over PATH_MAX. */
bool walk_join(char out[PATH_MAX], const char *dir, const char *name);

/* Whether an error means that something is not there or not for us, and may be left out;
 * any other must be told, or a listing would be short without a word. */
bool walk_may_skip(int sys_errno);

uint64_t walk_deadline(uint32_t timeout_ms); /* from now; 0 stays "none" */
int walk_check_deadline(const char *op, uint64_t deadline_ns, struct cay_error *err);

/* Removes `name` in `dir` and, if it is a directory, all below it.  Links and mounts are
 * not passed through.  On failure some of it may be gone. */
int tree_remove(const struct fs *fs, const char *op, int dir, const char *name,
                const char *path, struct cay_error *err);

#endif
