/* SPDX-License-Identifier: Apache-2.0 */
#ifndef APPLY_APPLY_H
#define APPLY_APPLY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "cay/try.h"
#include "diff/diff.h"

/* Applies the changes of a diff to the directory that is its lowest layer.
 *
 * check.c decides about each change, stage.c prepares new files in a directory of the
 * same file system, journal.c moves them to their places so that every step can be
 * undone. Every path is opened from the directory, without links and mounts: names in the
 * directory may change meanwhile, and those of the diff come from a sandbox. */

#define APPLY_OP "try.apply"

#define APPLY_PLAIN (PATH_PLAIN | RESOLVE_NO_XDEV)

/* A file that has this inode and change time is as the last apply left it. */
struct apply_known {
    char *path;
    uint64_t ino; /* 0: the path is new, as an apply that was undone has checked */
    struct timespec ctime;
    bool is_new; /* it replaces another one with this path */
};

/* What the directory was when the try was created: whatever changed after `time` was
 * changed by somebody else, unless it is in the list, which is sorted by path. */
struct apply_base {
    struct timespec time;
    struct apply_known *known;
    size_t known_count, known_room;
};

enum apply_kind {
    APPLY_NOTHING = 0,
    APPLY_REMOVE = 'r',           /* a file: into the stage */
    APPLY_REMOVE_DIRECTORY = 'd', /* an empty one */
    APPLY_ADD = 'a',      /* from the stage; what it replaces was removed before */
    APPLY_EXCHANGE = 'x', /* with a file of the stage */
    APPLY_MODE = 'm'
};

struct apply_step {
    char *path;
    enum apply_kind kind;
    unsigned number; /* its name in the stage */
    uint64_t ino;    /* of the new file; of APPLY_MODE and removals: of the old one */
    uint32_t mode, old_mode, uid, gid; /* the last three: of the old one */
    struct stat old; /* as it was checked; the journal has parts of it */
    bool is_merged;  /* the old file was not as the try saw it */
};

struct apply {
    int dir;
    struct stat dir_st;
    const cay_diff *diff; /* without renames */
    int upper;            /* the layer of the sandbox */
    enum cay_diff_marks marks;
    struct apply_base *base;
    const struct cay_apply_options *options;
    int (*save)(void *cookie, const void *data, size_t len, struct cay_error *err);
    void *cookie; /* of save(), which replaces the journal and makes it durable */

    cay_apply_report *report;
    char stage_name[32];
    int stage;
    struct apply_step *steps;
    size_t step_count, step_room;
    bool is_torn; /* the journal is needed to undo the steps */
};

struct cay_apply_report {
    struct cay_applied *list; /* with paths of its own */
    size_t count;
};

/* Opens the directory that a path is in, without links and mounts, and returns the last
 * component; "" is the top itself.  A descriptor or a negative errno. */
int apply_open_parent(int top, const char *path, const char **ret_name);
/* lstat(2) by that. */
int apply_stat(int top, const char *path, struct stat *ret_stat);

/* Fills in the report.  *ret_conflicts is the number of conflicts. */
int apply_check(struct apply *apply, size_t *ret_conflicts, struct cay_error *err);

/* NULL if it is now as it was, else the reason why it is not. */
const char *apply_find_conflict(const struct apply *apply,
                                const struct cay_change *change);

/* Why it is held back, or NULL. */
const char *apply_held(const struct apply *apply, const struct cay_change *change);

/* Whether a link at `path` with this text may lead above the directory, or is absolute.
 */
bool apply_leads_out(const char *path, const char *text);

/* Whether the options name the path or a directory above it. */
bool apply_is_named(const struct cay_apply_options *options, const char *path);

/* Merges both versions of a file into the draft `to`: 1, or 0 if that cannot be done, or
 * a code. */
int apply_merge(const struct apply *apply, const struct cay_change *change, int to,
                struct cay_error *err);

/* Prepares everything in a new stage, and the steps. */
int apply_stage(struct apply *apply, struct cay_error *err);
int apply_remove_stage(int dir, const char *name, struct cay_error *err);

/* Carries the steps out, or undoes all of them. */
int apply_run(struct apply *apply, struct cay_error *err);

/* Completes what a killed process left, by its journal: afterwards the directory is as it
 * was before.  The caller stores `base`, and then removes the journal. */
int apply_recover(int dir, const char *journal, size_t len, struct apply_base *base,
                  struct cay_error *err);

/* Undoing a step changes the change times of the old file and its directory, so both that
 * file and what is new are noted as known. */
int apply_know_restored(int dir, const struct apply_step *steps, size_t count,
                        struct apply_base *base, struct cay_error *err);

/* The journal before there are steps: the stage, and what was checked as new. */
int apply_begin_journal(const struct apply *apply, struct cay_error *err);

/* The whole.  The caller holds the lock of the directory. */
int apply_all(struct apply *apply, struct cay_error *err);

#endif
