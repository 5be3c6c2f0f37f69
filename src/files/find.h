/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_FIND_H
#define FILES_FIND_H

#include "base/glob.h"
#include "files/handle.h"

/* Finding names by pattern under the policy, for listing and searching. */

/* The directories, or the one file, that a call's `path` means: everything readable for
 * "/", "." and "", otherwise that path.  None of them is below another. */
struct find_scope {
    struct cay_strings roots; /* the targets' paths, unless the caller named one */
    struct target *targets;
    size_t count;
    bool is_named; /* the caller named the one path */
};

struct find_request {
    enum cay_op op;
    const char *path;    /* as the caller spelled it, for the approver */
    const char *pattern; /* of a listing, or NULL */
};

/* Asks for the approvals that reading there needs.  A missing path is in the scope only
 * if the caller named it, with fd -1. */
int find_scope_open(cay_files *files, const char *op, const struct find_request *wanted,
                    struct find_scope *ret_scope, struct cay_error *err);
void find_scope_done(struct find_scope *scope);
#define AUTO_SCOPE __attribute__((cleanup(find_scope_done))) struct find_scope

struct find_filter {
    unsigned flags; /* enum cay_list_flag: the types to report */
    struct glob pattern;
    struct glob *exclude;
    size_t exclude_count;
    const char *after; /* only what sorts after this path, or NULL */
    uint32_t max_depth;
    uint64_t deadline_ns;
    bool must_read; /* CAY_E_DENIED if the start is unreadable; else it counts as empty */
};

/* Compiles the patterns; find_filter_done() also after a failure. */
int find_filter_init(const char *op, const char *pattern, const char *const *exclude,
                     size_t exclude_count, struct find_filter *ret_filter,
                     struct cay_error *err);
void find_filter_done(struct find_filter *filter);
#define AUTO_FILTER __attribute__((cleanup(find_filter_done))) struct find_filter

struct find;

/* `start` is a directory; it and the filter must outlive the find. */
int find_new(cay_files *files, const struct target *start,
             const struct find_filter *filter, struct find **ret_find,
             struct cay_error *err);
void find_free(struct find *find); /* NULL is fine */

/* 1 and what is found next, in the order of paths; 0 at the end; or a code.  `path` is in
 * the policy's spelling and lives until the next call.  Its last component is a name in
 * `dir`, which is the find's; -1 if the hit is what a link leads to. */
struct find_hit {
    const char *path;
    enum cay_type type;
    int dir;
};
int find_next(struct find *find, struct find_hit *ret_hit, struct cay_error *err);

/* The last hit, held by O_PATH: what a link leads to, unless links are reported as
 * themselves.  Belongs to the find until the next call.  NULL if it is gone by now.
 * `flags` may be FS_AND_READ. */
int find_hold(struct find *find, unsigned flags, const struct target **ret_target,
              struct cay_error *err);

/* The number of directories skipped because they are unreadable. */
uint64_t find_denied(const struct find *find);

/* The number of hits skipped because no path leads to them (policy_label_means()). */
uint64_t find_unnamed(const struct find *find);

/* Whether a failure is one of the machine, not of the one file, and must be reported. */
bool find_is_serious(int code);

#endif
