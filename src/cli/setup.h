/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SETUP_H
#define CLI_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "cay/error.h"

/* cay setup: what gives ordinary users more of the kernel.  A plan is a list of changes
 * to one system.  The record of what was changed is written before the first change, so
 * that undo finds everything, also after a crash; each change is undone only where it is
 * still as setup made it.
 *
 * All paths are below the root of that system and have no slash in front: "etc/subuid".
 * Links are followed inside the root only. */

enum setup_kind {
    SETUP_DIRECTORY, /* created */
    SETUP_EMPTY,     /* an empty file, created; it may have lines by now */
    SETUP_RANGE,     /* a line of etc/subuid or etc/subgid, added */
    SETUP_FILE,      /* created, or replaced if setup had created it */
    SETUP_SYSCTL,    /* set; the path is below proc/sys */
    SETUP_KINDS
};

struct setup_change {
    enum setup_kind kind;
    char *path;
    char *text;    /* the line, the content, the value; NULL for a file of the record */
    char *before;  /* the content that is replaced, or NULL; the value that was set */
    uint64_t hash; /* of a file's content */
};

struct setup_list {
    struct setup_change *items;
    size_t count, room;
};

struct setup_text_list {
    char **items;
    size_t count, room;
};

struct setup_user {
    char name[64];
    uint32_t uid;
};

struct setup {
    int root; /* of the system: O_PATH */
    bool is_host;
    struct setup_list recorded; /* of earlier calls; empty if this user cannot read it */
    struct setup_list changes;  /* that are missing */
    struct setup_text_list notes; /* what setup cannot change, and what would help */
};

void setup_list_done(struct setup_list *list);

/* Copies the texts, which may be NULL.  Nothing is created twice. */
int setup_list_add(struct setup_list *list, enum setup_kind kind, const char *path,
                   const char *text, const char *before, struct cay_error *err);

__attribute__((format(printf, 3, 4))) int
setup_note(struct setup *setup, struct cay_error *err, const char *format, ...);

/* --- setup-file.c: files below the root.  All return 0 or a negative errno. --- */

/* A descriptor; with `flags` of open(2).  The last component may not be a link.  An image
 * has no files of the kernel, also where proc is mounted in it: -ENOENT. */
int setup_open(int root, const char *path, int flags);
bool setup_exists(int root, const char *path);

/* The content of a regular file, which replaces that of the buffer. */
int setup_read(int root, const char *path, struct buf *ret_text);

/* A number in a file of the kernel; -1 if there is none. */
long setup_number(int root, const char *path);

/* Replaces a file, or creates it with mode 0644, so that a reader sees the old content or
 * the new.  The owner and the mode stay. */
int setup_write(int root, const char *path, const char *text, size_t len);

/* Writes a value and a newline to a file of the kernel. */
int setup_put(int root, const char *path, const char *value);

/* A directory (S_IFDIR | 0755) or an empty file, unless there is one. */
int setup_make(int root, const char *path, mode_t mode);

/* A directory only if it is empty. */
int setup_remove(int root, const char *path, bool is_directory);

/* Removes the temporary file of a setup_write() that was killed. */
void setup_sweep(int root, const char *path);

/* The locks that useradd and usermod take; they wait 5 s for another process. */
struct setup_lock {
    int directory, file;
    bool users, groups;
};
int setup_lock(int root, struct setup_lock *ret_lock, struct cay_error *err);
void setup_unlock(struct setup_lock *lock);

/* An error about this path. */
int setup_fail(int error, const char *path, struct cay_error *err);

/* --- setup-subids.c --- */

int setup_plan_ranges(struct setup *setup, const struct setup_user *user,
                      struct cay_error *err);

/* --- setup-plan.c --- */

/* Fills in what is missing for these users, and the notes. */
int setup_plan(struct setup *setup, const struct setup_user *users, size_t count,
               struct cay_error *err);

/* The program `cay` that runs; "" if it cannot be found. */
void setup_own_path(char *path, size_t room);

/* --- setup-record.c --- */

int setup_read_record(struct setup *setup, struct cay_error *err);

/* All of setup->changes, or none of them.  CAY_E_CHANGED if they are not what
 * setup_plan() finds under the locks. */
int setup_apply(struct setup *setup, const struct setup_user *users, size_t count,
                struct cay_error *err);

enum setup_state {
    SETUP_AS_MADE, /* undo takes it back */
    SETUP_GONE,    /* there is nothing to undo */
    SETUP_CHANGED, /* undo leaves it */
};
enum setup_state setup_state(const struct setup *setup,
                             const struct setup_change *change);

/* Takes back what is as setup made it, and removes the record. */
int setup_undo(struct setup *setup, struct cay_error *err);

#define SETUP_RECORD    "var/lib/cay/setup"
#define SETUP_SUBUID    "etc/subuid"
#define SETUP_SUBGID    "etc/subgid"
#define SETUP_PROFILE   "etc/apparmor.d/cay"
#define SETUP_DROP_IN   "etc/systemd/system/user@.service.d/50-cay.conf"
#define SETUP_CLONE     "proc/sys/kernel/unprivileged_userns_clone"
#define SETUP_CLONE_MAX "proc/sys/user/max_user_namespaces"
/* Their names sort behind those of the administrator. */
#define SETUP_CLONE_FILE     "etc/sysctl.d/zz-cay-userns-clone.conf"
#define SETUP_CLONE_MAX_FILE "etc/sysctl.d/zz-cay-max-userns.conf"

#endif
