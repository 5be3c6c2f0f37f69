/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_HANDLE_H
#define FILES_HANDLE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "cay/files.h"
#include "files/index.h"
#include "policy/policy.h"
#include "sys/fs.h"

/* The parts of every file operation.
 *
 * target_find() turns the caller's path into a target: the policy picks the mount,
 * path_resolve() follows links down from the mount's descriptor, the policy checks the
 * link-free path, and the target holds the file by O_PATH.  From there on only
 * descriptors are used; a name goes to the kernel again only as one last component below
 * a directory that the operation holds open. */

enum { SESSION_INDEXES = 8, SESSION_APPROVALS_MAX = 4096 };

/* Shared by a handle and those derived from it.  The mutex guards the members after it,
 * and is never held while an approver runs. */
struct session {
    atomic_uint references;
    unsigned flags; /* enum cay_files_flag */
    cay_approver approver;
    void *cookie;

    pthread_mutex_t mutex;
    uint64_t *approved; /* hashes of (access, mount, rel): CAY_VERDICT_REMEMBER */
    size_t approved_count;
    struct text_index *indexes[SESSION_INDEXES]; /* most recently used first */
};

struct session *session_new(const struct cay_files_options *options,
                            struct cay_error *err);
struct session *session_ref(struct session *session);
void session_unref(struct session *session);

struct cay_files {
    cay_policy *policy; /* owned; its hosts are canonical */
    int *roots;         /* O_PATH of each mount's directory; -1: the top of fs */
    const struct fs *fs;
    struct session *session;
};

/* A handle on a whole file system, that of a sandbox.  Paths mean what they mean to the
 * kernel there, relative ones from `base`.  The handle, and those derived from it, have
 * references of their own to `fs`. */
int files_open_fs(const struct fs *fs, const char *base, cay_files **ret_files,
                  struct cay_error *err);

struct target {
    const struct fs *fs;
    const char *op;   /* "files.read": names the step in errors */
    const char *path; /* as the caller spelled it */
    size_t mount;
    char rel[PATH_MAX]; /* link-free, below the mount's directory; "" is the directory */
    int fd;             /* O_PATH, or -1 if nothing is there */
    struct stat st;     /* of fd */

    /* What the lookup brought along, by enum fs_find_flag. */
    bool is_open;    /* fd is open for reading */
    int dir;         /* the directory it is in, or -1 */
    int write_error; /* 1: unknown */
};

enum target_how {
    TARGET_FOLLOW = 0,
    TARGET_NO_FOLLOW = FS_NO_FOLLOW, /* a link as the last component is the target */
    TARGET_READ = FS_AND_READ,
    TARGET_CHANGE = FS_AND_CHANGE
};

/* Looks up `path` and requires `access` there (0: only that it is inside some mount).  A
 * missing file is not an error: target->fd is -1.  Always safe to target_done() after,
 * also on failure. */
int target_find(const cay_files *files, const char *op, const char *path, unsigned access,
                unsigned how, struct target *ret_target, struct cay_error *err);
void target_done(struct target *target);
#define AUTO_TARGET __attribute__((cleanup(target_done))) struct target
#define TARGET_NONE                                                                      \
    {                                                                                    \
        .fd = -1, .dir = -1                                                              \
    }

const struct mount *target_mount(const cay_files *files, const struct target *target);

/* Whether the two are the same path of a mount, or `inner` is below `outer`. */
bool target_lies_in(const struct target *inner, const struct target *outer);

/* Whether `text`, the content of the link that the target is, could name a host path: it
 * is absolute, or climbs above the top. */
bool target_link_shows_host(const struct target *target, const char *text);

/* The failure of a system call on the target. */
int target_fail(const struct target *target, int sys_errno, struct cay_error *err);

/* CAY_E_NOT_FOUND unless something is there. */
int target_must_exist(const struct target *target, struct cay_error *err);
/* That, and CAY_E_NOT_A_FILE unless it is a regular file. */
int target_must_be_file(const struct target *target, struct cay_error *err);
int target_must_be_directory(const struct target *target, struct cay_error *err);

/* The mount's suffix rule for the link-free name, and its size rule for `bytes`. */
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

/* All checks of a read, in the documented order: access, existence, regular file, suffix,
 * size, permissions, approval.  The caller owns *ret_fd, a readable descriptor; *ret_stat
 * is its fstat.  `pin` may be NULL. */
int target_open_for_reading(cay_files *files, const char *op, const char *path,
                            const struct cay_pin *pin, struct target *ret_target,
                            int *ret_fd, struct stat *ret_stat, struct cay_error *err);

/* The directory of a target, held by O_PATH, and the directories created above it. */
struct parent {
    const struct fs *fs;
    int fd;
    char name[NAME_MAX + 1]; /* the target's last component */
    int made_in;             /* where the first new directory was created, or -1 */
    char made[PATH_MAX];     /* the new directories, relative to made_in */
};

/* Opens the directory of target->rel, which must not be "".  With `make`, missing
 * directories are created; parent_undo() removes those again if the operation fails. */
int parent_open(const cay_files *files, struct target *target, bool make,
                struct parent *ret_parent, struct cay_error *err);
/* Creates the directory of that name if it is missing; parent_undo() removes it, too. */
int parent_make(struct parent *parent);
void parent_undo(struct parent *parent);
void parent_done(struct parent *parent);
#define AUTO_PARENT __attribute__((cleanup(parent_done))) struct parent
#define PARENT_NONE                                                                      \
    {                                                                                    \
        .fd = -1, .made_in = -1                                                          \
    }

/* Before an approver is asked: fails if parent_open() or a change in that directory
 * would, as far as that shows without touching anything.  *ret_dir is the directory, or
 * the one in which missing ones would be created. */
int parent_check(const cay_files *files, const struct target *target, bool make,
                 struct stat *ret_dir, struct cay_error *err);

/* The longest file that is scanned as text if no policy sets a limit.  A program in a
 * sandbox can create a file of any length from holes, so a longer file must have a 64th
 * of its length stored: some file systems compress. */
#define TARGET_TEXT_MAX (1ull << 30)
uint64_t target_text_max(const struct stat *st);

/* The public form of a mode, and of a struct stat. */
enum cay_type files_type(mode_t mode);
void stat_of(const struct stat *st, struct cay_stat *ret_stat);

/* The result that cay_files_open() would have; removes the directories it creates. */
int files_try(const cay_policy *policy, struct cay_error *err);

/* --- Approval (approve.c) --- */

/* Asks the approver if the rules of the mounts require it.  `shown` is what the approver
 * sees; size and other are filled in here, path and summary if they are NULL.  After an
 * approval the targets are looked up again and must be unchanged: CAY_E_CHANGED.  `other`
 * may be NULL. */
int approve(cay_files *files, struct cay_approval *shown, struct target *target,
            unsigned access, struct target *other, unsigned other_access,
            struct cay_error *err);

/* Whether approve() would ask: if not, nothing to show need be prepared. */
bool approval_wanted(const cay_files *files, const struct target *target,
                     unsigned access);

void target_pin(const struct target *target, struct cay_pin *ret_pin);
/* CAY_E_CHANGED unless `pin` is NULL or still describes the target or, if that is a link,
 * the file it leads to. */
int target_check_pin(const cay_files *files, const struct target *target,
                     const struct cay_pin *pin, struct cay_error *err);

/* CAY_E_INVALID unless the descriptor is open for `access`, O_RDONLY or O_WRONLY. */
int files_check_descriptor(int fd, int access, const char *op, struct cay_error *err);

#endif
