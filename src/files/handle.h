/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_HANDLE_H
#define FILES_HANDLE_H

#include <limits.h>
#include <sys/stat.h>

#include "cay/files.h"
#include "policy/policy.h"
#include "sys/fs.h"

/* What every file operation is built from.
 *
 * An operation turns the caller's text into a target with target_find(): the policy picks
 * the mount, path_resolve() follows links down from the mount's descriptor, the policy
 * judges the link-free place so found, and the target then holds that very file by
 * O_PATH. From there on only descriptors are used; a name is given to the kernel again
 * only as one last component below a directory the operation holds. */

struct session; /* approvals and reading indexes; shared by a handle and its children */

struct cay_files {
    cay_policy *policy; /* our own; its hosts are canonical */
    int *roots;         /* O_PATH of each mount's directory; -1: the top of fs */
    const struct fs *fs;
    struct session *session;
};

/* A child of `parent` whose policy has these grants (taken over). */
int handle_narrow(const cay_files *parent, struct grant *read, struct grant *write,
                  cay_files **ret_child, struct cay_error *err);

struct target {
    const struct fs *fs;
    const char *op;   /* "files.read": names the step in errors */
    const char *path; /* as the caller spelled it */
    size_t mount;
    char rel[PATH_MAX]; /* link-free, below the mount's directory; "" is the directory */
    int fd;             /* O_PATH, or -1 if nothing is there */
    struct stat st;     /* of fd */

    /* What was brought along with it, if asked for (enum fs_find_flag). */
    bool is_open;    /* fd is open for reading */
    int dir;         /* the directory it is in, or -1 */
    int write_error; /* 1: not known */
};

enum target_how {
    TARGET_FOLLOW = 0,
    TARGET_NO_FOLLOW = FS_NO_FOLLOW, /* a link in the last place is the target itself */
    TARGET_READ = FS_AND_READ,
    TARGET_CHANGE = FS_AND_CHANGE
};

/* Finds where `path` leads and requires `access` there (0: only that it lies inside some
 * mount).  What is missing is no failure: target->fd is -1.  Always safe to
 * target_done() after, also on failure. */
int target_find(const cay_files *files, const char *op, const char *path, unsigned access,
                unsigned how, struct target *ret_target, struct cay_error *err);
void target_done(struct target *target);
#define AUTO_TARGET __attribute__((cleanup(target_done))) struct target
#define TARGET_NONE                                                                      \
    {                                                                                    \
        .fd = -1, .dir = -1                                                              \
    }

const struct mount *target_mount(const cay_files *files, const struct target *target);

/* Whether `text`, that of the link which the target is, names what lies around its root:
 * it is absolute, or climbs above the top. */
bool target_link_tells_host(const struct target *target, const char *text);

/* The failure of a system call on the target. */
int target_fail(const struct target *target, int sys_errno, struct cay_error *err);

/* CAY_E_NOT_FOUND unless something is there. */
int target_must_exist(const struct target *target, struct cay_error *err);
/* That, and CAY_E_NOT_A_FILE unless it is a regular file. */
int target_must_be_file(const struct target *target, struct cay_error *err);
int target_must_be_directory(const struct target *target, struct cay_error *err);

/* The mount's suffix rule for the link-free name; its size rule for what is there. */
int target_check_suffix(const cay_files *files, const struct target *target,
                        struct cay_error *err);
int target_check_size(const cay_files *files, const struct target *target, uint64_t bytes,
                      struct cay_error *err);

/* Opens the regular file the target holds (checked again after opening); flags O_RDONLY,
 * O_WRONLY, O_RDWR, O_APPEND. */
int target_open(const struct target *target, int flags, int *ret_fd,
                struct cay_error *err);

/* Whether the file or directory the target holds may be read: 0 or a negative errno. */
int target_try_read(const struct target *target);

/* Everything a read needs, in the contract's order: access, existence, regular file,
 * suffix, size, permissions, approval (op is what the approver is told).  The caller owns
 * *ret_fd, a readable descriptor; *ret_stat is its fstat.  `pin` may be NULL. */
int target_open_for_reading(cay_files *files, const char *op, const char *path,
                            const struct cay_pin *pin, struct target *ret_target,
                            int *ret_fd, struct stat *ret_stat, struct cay_error *err);

/* The directory a target lies in, held by O_PATH, and what was made to get there. */
struct parent {
    const struct fs *fs;
    int fd;
    char name[NAME_MAX + 1]; /* the target's last component */
    int made_in;             /* where the first new directory was made, or -1 */
    char made[PATH_MAX];     /* the new directories, relative to made_in */
};

/* Opens the directory of target->rel, which must not be "".  With `make`, missing
 * directories are created; parent_undo() removes those again if the operation fails. */
int parent_open(const cay_files *files, struct target *target, bool make,
                struct parent *ret_parent, struct cay_error *err);
/* Makes the directory of that name, unless it is there; parent_undo() removes it, too. */
int parent_make(struct parent *parent);
void parent_undo(struct parent *parent);
void parent_done(struct parent *parent);
#define AUTO_PARENT __attribute__((cleanup(parent_done))) struct parent
#define PARENT_NONE                                                                      \
    {                                                                                    \
        .fd = -1, .made_in = -1                                                          \
    }

/* For who is about to ask: fails if parent_open(), or what is done there then, is bound
 * to, as far as can be told without touching anything.  *ret_dir is the directory, or
 * the one that new ones would be made in. */
int parent_check(const cay_files *files, const struct target *target, bool make,
                 struct stat *ret_dir, struct cay_error *err);

/* How long a file may be that is passed over as text, where no policy says.  Whoever is
 * in a sandbox can make one of any length from nothing, of holes; elsewhere what is
 * stored counts, many times, for some file systems compress. */
#define TARGET_TEXT_MAX (1ull << 30)
uint64_t target_text_max(const struct stat *st);

/* The public form of a struct stat. */
void stat_of(const struct stat *st, struct cay_stat *ret_stat);

/* What cay_files_open() would say; nothing stays of what it would make. */
int files_try(const cay_policy *policy, struct cay_error *err);

/* --- Approval (approve.c) --- */

/* Asks, if the rules of the mounts want it.  `shown` is what the approver sees; its size
 * and other members are filled in here, path and summary if they are NULL.  After a yes
 * the targets are found again and must be as they were: CAY_E_CHANGED.  `other` may be
 * NULL. */
int approve(cay_files *files, struct cay_approval *shown, struct target *target,
            unsigned access, struct target *other, unsigned other_access,
            struct cay_error *err);

/* Whether approve() would ask: lets a caller skip the work of preparing what is shown. */
bool approval_wanted(const cay_files *files, const struct target *target,
                     unsigned access);

void target_pin(const struct target *target, struct cay_pin *ret_pin);
/* CAY_E_CHANGED unless `pin` is NULL or still describes the target, or what the target
 * leads to if it is a link. */
int target_check_pin(const cay_files *files, const struct target *target,
                     const struct cay_pin *pin, struct cay_error *err);

struct session *session_new(const struct cay_files_options *options,
                            struct cay_error *err);
struct session *session_ref(struct session *session);
void session_unref(struct session *session);

#endif
