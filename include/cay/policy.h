/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_POLICY_H
#define CAY_POLICY_H

#include <stdbool.h>

#include "cay/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A policy says which host directories a caller may see, under which names, and what may
 * be done there.  Nothing is visible until a mount shows it.  It is pure data: making one
 * touches no file; cay_files_open() (files.h) is what opens the directories.  Immutable
 * once made, so threads may share it. */
typedef struct cay_policy cay_policy;

/* How paths are spelled.  One engine serves all three.
 *
 *   ROOT    one directory that is "/".     /a/b  or  a/b
 *   PATHS   named directories.             name/a/b, name:a/b, name, or a host path
 *   MOUNTS  directories at mount points.   /point/a/b  or  point/a/b
 *
 * ROOT and MOUNTS take '\' for '/' and ignore blanks around the path; PATHS takes every
 * byte as it is.  Names are case-sensitive bytes.  "." and ".." are taken out of the
 * text before a mount is chosen (ROOT refuses ".." altogether), a path that climbs above
 * its top is outside, and so are NUL, a leading "~" and drive letters.  Of two mounts
 * that cover a path the longer one decides. */
enum cay_style { CAY_STYLE_ROOT = 1, CAY_STYLE_PATHS = 2, CAY_STYLE_MOUNTS = 3 };

enum cay_access {
    CAY_ACCESS_READ = 1 << 0,
    CAY_ACCESS_WRITE = 1 << 1,
    /* In questions: to the name itself, which is what a delete or a move acts on; a link
     * in the last place is not followed. */
    CAY_ACCESS_NAME = 1 << 2
};

/* What programs in a sandbox may do below a mount; the file tools do not look at it. */
enum cay_exec_mode {
    CAY_EXEC_DEFAULT = 0, /* as the mode says, but read-only if a rule needs our checks */
    CAY_EXEC_RO = 1,
    CAY_EXEC_RW = 2
};

#define CAY_NO_LIMIT (-1)

/* One directory and its rules.  Zero it, set `size`, fill in what matters.  Strings are
 * copied. */
struct cay_mount {
    size_t size;         /* sizeof(struct cay_mount) */
    const char *name;    /* PATHS: the name.  MOUNTS: the mount point.  ROOT: NULL */
    const char *host;    /* host directory; relative ones start at the base directory */
    bool writable;       /* mode rw rather than ro */
    bool write_approval; /* writing needs an approver's yes */
    bool read_approval;  /* reading needs one */
    bool limit_suffixes; /* only `suffixes` (each with its dot, any case) are allowed */
    const char *const *suffixes;
    size_t suffix_count;
    int64_t max_file_bytes; /* that may be read or written, or CAY_NO_LIMIT */
    enum cay_exec_mode exec;
    const char *origin; /* where it was written, for errors: "cay.yaml:7: paths.docs" */
};

/* A mount with the defaults of the documents: read-only, writes approved, no limits. */
#define CAY_MOUNT_INIT                                                                   \
    {                                                                                    \
        .size = sizeof(struct cay_mount), .write_approval = true,                        \
        .max_file_bytes = CAY_NO_LIMIT                                                   \
    }

struct cay_policy_config {
    size_t size; /* sizeof(struct cay_policy_config) */
    enum cay_style style;
    const struct cay_mount *mounts; /* ROOT: exactly one; MOUNTS: at least one */
    size_t mount_count;
    const char *base; /* where relative hosts start; NULL is the current directory */
};

/* CAY_E_INVALID names the mount and the rule it breaks (a name twice, a mount point that
 * does not start with "/", a negative limit).  The caller owns the result. */
CAY_PUBLIC CAY_NODISC int cay_policy_new(const struct cay_policy_config *config,
                                         cay_policy **ret_policy, struct cay_error *err);

/* Reads YAML or JSON (JSON is YAML): one of `root`, `paths`, `mounts`, at the top level
 * or below `policy:`; see cay-policy(5).  Unknown keys, keys given twice, wrong types and
 * aliases are CAY_E_INVALID with the line and the key.  `name` stands for the text in
 * errors.  Relative hosts start at `base` (NULL: the current directory). */
CAY_PUBLIC CAY_NODISC int cay_policy_parse(const char *text, size_t len, const char *name,
                                           const char *base, cay_policy **ret_policy,
                                           struct cay_error *err);

/* The same from a file of at most 1 MiB; `base` NULL is the file's own directory. */
CAY_PUBLIC CAY_NODISC int cay_policy_load(const char *file, const char *base,
                                          cay_policy **ret_policy, struct cay_error *err);

CAY_PUBLIC void cay_policy_free(cay_policy *policy); /* NULL is fine */

CAY_PUBLIC enum cay_style cay_policy_style(const cay_policy *policy);
CAY_PUBLIC size_t cay_policy_mount_count(const cay_policy *policy);

/* Fills `ret_mount` (its `size` must be set) with pointers into the policy, valid while
 * it lives.  Mounts come in the order of their configuration; false past the last. */
CAY_PUBLIC bool cay_policy_mount(const cay_policy *policy, size_t index,
                                 struct cay_mount *ret_mount);

#ifdef __cplusplus
}
#endif
#endif
