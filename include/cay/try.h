/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_TRY_H
#define CAY_TRY_H

#include "cay/diff.h"
#include "cay/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A try is a copy-on-write view of a directory of the host.  A sandbox that shows it, by
 * a struct cay_bind with `changes`, reads the directory and never changes it; what it
 * writes is kept below $CAY_HOME until it is applied to the directory or discarded.  A
 * try outlives its sandboxes and may be used by one after another. */

struct cay_try_options {
    size_t size;
    const char *dir;  /* of the host */
    const char *note; /* what it is for, such as a command; or NULL */
    const char
        *race; /* the `race` of another try with which this one competes; or NULL */
};

struct cay_try_info {
    char id[CAY_ID_MAX];
    char dir[4096];        /* without links */
    char note[256];        /* shortened if necessary */
    int64_t created_ms;    /* since 1970 */
    char race[CAY_ID_MAX]; /* the id of the first try of its race: its own if it has none
                            */
};

/* CAY_E_UNSUPPORTED: the directory contains the state directory of Cay. */
CAY_PUBLIC CAY_NODISC int cay_try_create(const struct cay_try_options *options,
                                         struct cay_try_info *ret_info,
                                         struct cay_error *err);

/* The directory for `changes` of a struct cay_bind whose source is `dir`.  One sandbox at
 * a time can show it: CAY_E_BUSY. */
CAY_PUBLIC CAY_NODISC int cay_try_changes(const char *id, char ret_path[4096],
                                          struct cay_error *err);

/* The newest first.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_try_list(struct cay_try_info **ret_infos, size_t *ret_count,
                                       struct cay_error *err);

/* A try by its id or the beginning of one, or with NULL the newest one of `dir` or of a
 * directory above it: CAY_E_INVALID if other tries of its race exist. */
CAY_PUBLIC CAY_NODISC int cay_try_find(const char *id, const char *dir,
                                       struct cay_try_info *ret_info,
                                       struct cay_error *err);

/* Compares the directory as it is now with the view that sandboxes have of it. */
CAY_PUBLIC CAY_NODISC int cay_try_diff(const char *id,
                                       const struct cay_diff_options *options,
                                       cay_diff **ret_diff, struct cay_error *err);

/* Removes the try with its changes.  CAY_E_BUSY while a sandbox shows it. */
CAY_PUBLIC CAY_NODISC int cay_try_discard(const char *id, struct cay_error *err);

/* --- Checkpoints --- */

/* While a sandbox shows the try, each of these but the list is CAY_E_BUSY.  The
 * directory is not part of a checkpoint: what was applied stays applied. */

/* Copies what the try has changed so far.  `name` may be NULL. */
CAY_PUBLIC CAY_NODISC int cay_try_checkpoint(const char *id, const char *name,
                                             struct cay_checkpoint *ret_checkpoint,
                                             struct cay_error *err);

/* Makes the changes those of a checkpoint, given by number or name (the newest with that
 * name), or the newest one (NULL).  What had changed since the last one becomes one,
 * *ret_undone, so that a rollback can be undone; its id is 0 if nothing had. */
CAY_PUBLIC CAY_NODISC int cay_try_rollback(const char *id, const char *which,
                                           struct cay_checkpoint *ret_undone,
                                           struct cay_error *err);

/* By number; `files` and `bytes` are those that the try had changed, 0 for what a
 * rollback has undone.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_try_checkpoints(const char *id,
                                              struct cay_checkpoint **ret_list,
                                              size_t *ret_count, struct cay_error *err);

CAY_PUBLIC CAY_NODISC int cay_try_remove_checkpoint(const char *id, const char *which,
                                                    struct cay_error *err);

/* --- Apply --- */

enum cay_apply_flag {
    CAY_APPLY_CHECK = 1 << 0,          /* change nothing: only report */
    CAY_APPLY_SKIP_CONFLICTS = 1 << 1, /* apply the others */
    CAY_APPLY_IDLE = 1 << 3,           /* CAY_E_BUSY while a sandbox shows the try */
    CAY_APPLY_MERGE = 1 << 2 /* merge the lines of conflicting files where git(1) has a
                                common version and no lines overlap */
};

struct cay_apply_options {
    size_t size;
    unsigned flags; /* enum cay_apply_flag */
    /* Only these paths, relative to the directory, and what is below them; NULL: all. */
    const char *const *paths;
    size_t path_count;
    /* Of those only these, without what is below them, and the new directories that they
     * need; NULL: all.  What is held back has to be in `paths`, too. */
    const char *const *only;
    size_t only_count;
};

enum cay_apply_verdict {
    CAY_APPLY_DONE,
    CAY_APPLY_MERGED,
    CAY_APPLY_CONFLICT, /* the directory has changed there since the try was created */
    CAY_APPLY_HELD      /* it could run commands of the user or leads out, and `paths`
                           does not name it; or it is a device, a socket or a FIFO */
};

struct cay_applied {
    const char *path;
    enum cay_change_kind kind;
    enum cay_apply_verdict verdict;
    const char *reason; /* of a conflict or what is held back; else NULL */
};

typedef struct cay_apply_report cay_apply_report;

/* Changes the directory: all of it or nothing.  With a conflict, nothing is changed
 * unless a flag says otherwise: CAY_E_CHANGED, with a report.  If the process is killed,
 * the next call of a function for this try restores the directory.  The caller frees the
 * report, which is NULL after other errors. */
CAY_PUBLIC CAY_NODISC int cay_try_apply(const char *id,
                                        const struct cay_apply_options *options,
                                        cay_apply_report **ret_report,
                                        struct cay_error *err);

/* In the order of their paths; they live as long as the report. */
CAY_PUBLIC const struct cay_applied *cay_apply_entries(const cay_apply_report *report,
                                                       size_t *ret_count);
CAY_PUBLIC void cay_apply_free(cay_apply_report *report); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
