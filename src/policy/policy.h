/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_POLICY_H
#define POLICY_POLICY_H

#include <limits.h>

#include "base/words.h"
#include "cay/files.h" /* struct cay_strings */
#include "cay/policy.h"
#include "network/groups.h"

/* The engine under the three styles: mounts at virtual points, and for each access either
 * everything the mounts grant or a list of prefixes (a derived policy).  Pure: it
 * compares text, never looks at a file. */

struct mount {
    char *name;      /* as configured: "docs", "/docs"; "/" in the root style */
    char *point;     /* where it lies in the tree all mounts form: "/", "/docs", "/a/b" */
    char *host;      /* absolute; canonical once policy_set_host() was called */
    char *host_was;  /* absolute as configured, before links were resolved */
    char *origin;    /* for errors, or NULL */
    char **suffixes; /* lower case */
    size_t suffix_count;
    int64_t max_file_bytes;
    bool limit_suffixes, writable, write_approval, read_approval;
    enum cay_exec_mode exec;
};

struct prefix {
    size_t mount;
    char *rel;   /* link-free, below the mount; "" is all of it */
    char *label; /* as roots are listed: "docs/sub", "/docs/sub" */
};

struct grant {
    bool all; /* whatever the mounts grant; else only below the prefixes */
    struct prefix *prefixes;
    size_t count;
};

struct cay_policy {
    enum cay_style style;
    struct mount *mounts;
    size_t mount_count;
    size_t *by_length; /* mount indexes, longest point first (stable) */
    struct grant read, write;
    struct network_rules *network; /* or NULL: none */
    struct network_groups groups;  /* for more rules; empty: the built-in ones */
    char *base; /* else NULL: these are a sandbox's own files, in its own spelling, and
                   relative paths start here */
};

/* Where a path's text leads, before any link is looked at. */
struct place {
    size_t mount;
    char rel[PATH_MAX]; /* below the mount: no "." or (but in a sandbox, where links come
                           first) "..", no slash at either end */
};

/* CAY_E_OUTSIDE (the hint lists the readable roots), or CAY_E_INVALID for a name over 255
 * bytes or a path over 4,095. */
int policy_place(const cay_policy *policy, const char *op, const char *path,
                 struct place *ret_place, struct cay_error *err);

/* The access granted at a link-free place: the mount's mode and the prefix lists. */
unsigned policy_access(const cay_policy *policy, size_t mount, const char *rel);

/* Whether a link-free place, or something below it, may be read. */
bool policy_reads_within(const cay_policy *policy, size_t mount, const char *rel);

/* A place that another, longer mount point covers is hidden behind that mount. */
bool policy_is_hidden(const cay_policy *policy, size_t mount, const char *rel);

/* Whether another mount lies somewhere below a place: that directory hides something. */
bool policy_hides_below(const cay_policy *policy, size_t mount, const char *rel);

/* The place as the style spells it: "docs/a", "/docs/a".  Always fits 2 * PATH_MAX. */
bool policy_label(const cay_policy *policy, size_t mount, const char *rel, char *out,
                  size_t room);

/* Whether the label, read as a path, means the place again.  In the root and mounts style
 * some names cannot be spelled: with a '\', with a blank at the end, in the root style
 * with a ':'. */
bool policy_label_means(const cay_policy *policy, const char *label, size_t mount,
                        const char *rel);

/* "Readable paths" or "writable paths": the tops of what is granted, in the contract's
 * order: in the mounts style longest point first, in the others as configured, in derived
 * policies as listed. */
int policy_roots(const cay_policy *policy, unsigned access, struct cay_strings *ret_roots,
                 struct cay_error *err);

/* `why` may be NULL: nothing covers the path. */
int policy_fail_outside(const cay_policy *policy, const char *op, const char *path,
                        const char *why, struct cay_error *err);
int policy_fail_read_only(const cay_policy *policy, const char *op, const char *path,
                          struct cay_error *err);

/* CAY_E_SUFFIX or CAY_E_TOO_LARGE; the file is called `path` in the error.  The suffix is
 * that of the last component of `name`: from its last dot, unless that dot comes first or
 * last.  The error's message is exactly "suffix '.png' not allowed" and the hint
 * "allowed suffixes: .txt, .md" (or "none"); and for sizes "SIZE bytes is over the limit
 * of LIMIT bytes" with thousands separators, hint "the largest file allowed here has
 * LIMIT bytes". */
int policy_check_suffix(const struct mount *mount, const char *op, const char *path,
                        const char *name, struct cay_error *err);
int policy_check_size(const struct mount *mount, const char *op, const char *path,
                      uint64_t bytes, struct cay_error *err);

/* The rule that decides about a link-free place, as one sentence. */
char *policy_explain(const cay_policy *policy, const char *path, size_t mount,
                     const char *rel);

struct policy_fault {
    size_t mount; /* the one at fault, counted from 1; 0: none of them */
    bool is_host; /* its host is; else its name, or a rule of it */
};

/* Like cay_policy_new(), and on failure reports where the fault is. */
int policy_build(const struct cay_policy_config *config, cay_policy **ret_policy,
                 struct policy_fault *ret_fault, struct cay_error *err);

/* Everything of a sandbox, for reading and writing. */
int policy_inside(const char *base, cay_policy **ret_policy, struct cay_error *err);

int policy_copy(const cay_policy *policy, cay_policy **ret_copy, struct cay_error *err);

/* Replaces a mount's host by its canonical path, once the directory is open. */
int policy_set_host(cay_policy *policy, size_t mount, const char *host,
                    struct cay_error *err);

/* A copy of `parent` with these grants; `all` means everything the parent has.  The
 * caller has checked that the prefixes are within the parent's.  They are owned by the
 * callee, also on failure. */
int policy_narrow(const cay_policy *parent, struct grant *read, struct grant *write,
                  cay_policy **ret_child, struct cay_error *err);
void grant_done(struct grant *grant);

/* --- Between the files of policy/ --- */

/* The entry that allows the place, or NULL. */
const struct prefix *grant_find(const struct grant *grant, size_t mount, const char *rel);

/* Fills the list with policy_roots() and ends it. */
const char *grant_list(const cay_policy *policy, unsigned access,
                       struct words_list *list);

/* False if memory is exhausted; `to` needs grant_done() either way. */
bool grant_copy(const struct grant *from, struct grant *to);

/* Fills the list with the mount's suffixes and ends it. */
const char *rules_list_suffixes(const struct mount *mount, struct words_list *list);

#endif
