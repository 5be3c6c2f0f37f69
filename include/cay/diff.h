/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_DIFF_H
#define CAY_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cay/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The differences between two file trees, each a stack of layers as overlayfs merges
 * them.  The layers may be hostile: no link is followed, no FIFO or device is opened, and
 * time and memory are bounded.  If processes still write to a layer, the result mixes
 * states of before and after. */

/* How a layer marks what it hides in the layers below. */
enum cay_diff_marks {
    CAY_DIFF_MARKS_NONE,    /* a plain directory: a device 0:0 is a device */
    CAY_DIFF_MARKS_TRUSTED, /* trusted.overlay.*: overlays of host root */
    CAY_DIFF_MARKS_USER     /* user.overlay.*: overlays mounted with userxattr */
};

struct cay_diff_layer {
    int fd; /* the directory; copied, so the caller may close it */
    enum cay_diff_marks marks;
    uint32_t id_base; /* the owner that user 0 has in this layer */
};

/* The layers of one tree, the uppermost first.  A directory that both trees name is one
 * shared layer; what both share below is not read. */
struct cay_diff_tree {
    const struct cay_diff_layer *layers;
    size_t count; /* at most CAY_DIFF_LAYERS_MAX */
};

#define CAY_DIFF_LAYERS_MAX 1024

enum cay_diff_flag {
    CAY_DIFF_NO_RENAMES = 1 << 0, /* report a deleted and an added file instead */
    CAY_DIFF_BINARY = 1 << 1,     /* unified: binary files as "GIT binary patch" */
};

struct cay_diff_options {
    size_t size;
    unsigned flags;       /* enum cay_diff_flag */
    uint32_t timeout_ms;  /* 0: none; CAY_E_TIMEOUT after it */
    uint64_t max_changes; /* 0: 1,000,000; the walk ends there, and the diff is cut */
    uint64_t max_text;    /* 0: 32 MiB; a larger file counts as binary */
};

enum cay_change_kind {
    CAY_CHANGE_ADDED,
    CAY_CHANGE_DELETED,
    CAY_CHANGE_MODIFIED, /* the content; `parts` says whether more changed */
    CAY_CHANGE_MODE,     /* not the content, but mode, owner or extended attributes */
    CAY_CHANGE_TYPE,     /* a file became a link, a directory a file, and so on */
    CAY_CHANGE_RENAMED   /* `parts` says whether more than the name changed */
};

enum cay_change_part {
    CAY_CHANGED_CONTENT = 1 << 0, /* bytes of a file, target of a link, device number */
    CAY_CHANGED_MODE = 1 << 1,
    CAY_CHANGED_OWNER = 1 << 2,
    CAY_CHANGED_XATTRS = 1 << 3 /* user.*, security.capability */
};

struct cay_change_side {
    uint32_t mode; /* with the type, as in struct stat; 0 if it does not exist */
    uint32_t uid, gid;
    uint64_t size;
};

struct cay_change {
    enum cay_change_kind kind;
    unsigned parts; /* enum cay_change_part */
    const char *path;
    const char *old_path;  /* of RENAMED, else NULL */
    const char *hard_link; /* of ADDED: another path of the same file, or NULL */
    struct cay_change_side before, after;
    uint32_t similarity; /* of RENAMED: 0 to 100 */
    uint16_t layers[2];  /* for the library: where the two sides are */

    /* Filled in by cay_diff_measure(). */
    bool is_binary;
    uint64_t insertions, deletions; /* lines */
};

typedef struct cay_diff cay_diff;

/* Compares two trees.  The caller frees the diff. */
CAY_PUBLIC CAY_NODISC int cay_diff_compare(const struct cay_diff_tree *before,
                                           const struct cay_diff_tree *after,
                                           const struct cay_diff_options *options,
                                           cay_diff **ret_diff, struct cay_error *err);

/* Compares the files of a native sandbox, running or not, with its template.  Needs root,
 * storage on disk and a stored template, else CAY_E_UNSUPPORTED; CAY_E_NOT_FOUND if the
 * sandbox has no disk. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_diff(const char *id,
                                           const struct cay_diff_options *options,
                                           cay_diff **ret_diff, struct cay_error *err);

/* Compares the files of two checkpoints of a running sandbox, given by number or name, or
 * of one and of now (`after` NULL).  CAY_E_NOT_FOUND: there is no such checkpoint.
 * CAY_E_UNSUPPORTED: a sandbox without checkpoints, or of the template "base". */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_diff_checkpoints(const char *id, const char *before, const char *after,
                             const struct cay_diff_options *options, cay_diff **ret_diff,
                             struct cay_error *err);
CAY_PUBLIC void cay_diff_free(cay_diff *diff); /* NULL is allowed */

/* The changes in the bytewise order of their paths; they live as long as the diff. */
CAY_PUBLIC const struct cay_change *cay_diff_changes(const cay_diff *diff,
                                                     size_t *ret_count);

/* How many entries are missing: beyond max_changes, or in paths over PATH_MAX.  Do
 * not apply such a diff. */
CAY_PUBLIC uint64_t cay_diff_cut(const cay_diff *diff);

/* Reads the files that changed and counts lines. */
CAY_PUBLIC CAY_NODISC int cay_diff_measure(cay_diff *diff, struct cay_error *err);

enum cay_diff_format {
    CAY_DIFF_NAMES,   /* "M path", as git diff --name-status */
    CAY_DIFF_STAT,    /* as git diff --stat --summary */
    CAY_DIFF_UNIFIED, /* for git apply and patch -p1 */
    CAY_DIFF_JSON     /* one object, see below */
};

/* The object of CAY_DIFF_JSON:
 *
 *     {"changes": [...], "insertions": N, "deletions": N, "cut": N}
 *
 * and each change:
 *
 *     {"change": "added" | "deleted" | "modified" | "mode" | "type" | "renamed",
 *      "path": TEXT, "old_path": TEXT, "similarity": 0-100,   (the last two: renamed)
 *      "hard_link": TEXT,                                     (if there is one)
 *      "changed": ["content", "mode", "owner", "xattrs"],     (those that did)
 *      "before": SIDE | null, "after": SIDE | null,
 *      "binary": BOOL, "insertions": N, "deletions": N}       (files and links)
 *
 * SIDE is {"type": "file" | "directory" | "link" | "fifo" | "socket" | "device",
 * "mode": "0644", "uid": N, "gid": N, "size": N}.  Bytes of paths that are not UTF-8 are
 * \udc80 to \udcff. */

/* What a piece of output is, for colours. */
enum cay_diff_line {
    CAY_DIFF_LINE_PLAIN,
    CAY_DIFF_LINE_HEADER,
    CAY_DIFF_LINE_HUNK,
    CAY_DIFF_LINE_ADDED,
    CAY_DIFF_LINE_DELETED
};

/* Gets whole lines with their "\n", but for the graph of CAY_DIFF_STAT, whose lines come
 * in pieces, and for JSON.  Returns 0, or an errno, which ends the output. */
typedef int (*cay_diff_writer)(void *cookie, enum cay_diff_line line, const char *text,
                               size_t len);

CAY_PUBLIC CAY_NODISC int cay_diff_print(cay_diff *diff, enum cay_diff_format format,
                                         cay_diff_writer write, void *cookie,
                                         struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
