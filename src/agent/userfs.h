/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_USERFS_H
#define AGENT_USERFS_H

#include "cay/agent.h"

/* The files of a sandbox as one user sees them.
 *
 * A sandbox on this machine has a cay_files handle, and each function here is one call of
 * it.  A remote sandbox has only the functions of a struct cay_file_backend, which take
 * paths and move whole files through descriptors; userfs.c makes up for what they lack.
 * `files` is NULL for a remote one: its calls are slow, and not possible while a command
 * runs. */
struct userfs {
    cay_sandbox *sandbox; /* NULL: a directory of the host */
    const char *user;     /* as the caller gave it; NULL: the default */
    char *base;           /* the working directory, absolute; see userfs_base() */
    char *temp;           /* see userfs_temp() */

    cay_files *files;

    const struct cay_file_backend *backend;
    void *cookie;
};

#define AUTO_USERFS __attribute__((cleanup(userfs_close))) struct userfs

/* `user` must outlive it.  Always safe to userfs_close() after, also on failure. */
int userfs_open(cay_sandbox *sandbox, const char *user, struct userfs *ret_fs,
                struct cay_error *err);
void userfs_close(struct userfs *fs);

/* Where relative paths start; "/" if that is unknown.  NULL if out of memory. */
const char *userfs_base(struct userfs *fs);

/* Where commands may create temporary files: /tmp, but for a sandbox without a root of
 * its own SANDBOX_TEMP, or TMPDIR inside if its backend is not built in.  NULL if out of
 * memory. */
const char *userfs_temp(struct userfs *fs);

/* The path as an absolute one, without "." and doubled slashes; free() it. */
char *userfs_absolute(struct userfs *fs, const char *path);

/* "dir/name", or the name alone if the directory is ""; free() it. */
char *userfs_join(const char *dir, const char *name);

/* --- Content --- */

/* Up to `max` bytes from `offset` on, and a NUL; offset and max together at most
 * CAY_READ_MAX.  *ret_total is the size of the file. */
int userfs_read(struct userfs *fs, const char *path, uint64_t offset, uint64_t max,
                struct cay_content *ret_content, uint64_t *ret_total,
                struct cay_error *err);
int userfs_read_all(struct userfs *fs, const char *path, struct cay_content *ret_content,
                    struct cay_error *err);
int userfs_read_to(struct userfs *fs, const char *path, int fd, struct cay_stat *ret_stat,
                   struct cay_error *err);

/* `flags` are those of enum cay_write_flag; `pin` is NULL or comes from userfs_pin(). */
int userfs_write(struct userfs *fs, const char *path, const void *data, size_t len,
                 unsigned flags, const struct cay_pin *pin, struct cay_error *err);
int userfs_write_from(struct userfs *fs, const char *path, int fd, unsigned flags,
                      uint64_t *ret_bytes, struct cay_error *err);

/* False if there is no pin: a remote file can change unnoticed. */
bool userfs_pin(struct userfs *fs, const char *path, struct cay_pin *ret_pin);

/* --- Names --- */

int userfs_stat(struct userfs *fs, const char *path, bool no_follow,
                struct cay_stat *ret_stat, struct cay_error *err);

/* The entries of a directory, or all below it: names of every type, relative to it, links
 * as themselves; `stat` beyond the type only with `with_stat`.  CAY_E_NOT_FOUND or
 * CAY_E_NOT_A_DIRECTORY if there is no directory. */
int userfs_list(struct userfs *fs, const char *path, bool recursive, bool with_stat,
                struct cay_listing *ret_listing, struct cay_error *err);
int userfs_read_link(struct userfs *fs, const char *path, char **ret_target,
                     struct cay_error *err);

/* Bits of enum cay_access, or a code. */
int userfs_access(struct userfs *fs, const char *path, const struct cay_stat *stat,
                  struct cay_error *err);
int userfs_mkdir(struct userfs *fs, const char *path, unsigned flags,
                 struct cay_error *err);

/* Mode 0700.  CAY_E_EXISTS if something is there. */
int userfs_mkdir_private(struct userfs *fs, const char *path, struct cay_error *err);
int userfs_remove(struct userfs *fs, const char *path, struct cay_error *err);

/* Sets the permission bits of those entries of a listing, now below `top`, whose `is_new`
 * is set.  For remote sandboxes, by chmod(1) inside.  An entry that chmod refuses keeps
 * its mode: not every file system has modes. */
int userfs_set_modes(struct userfs *fs, const char *top,
                     const struct cay_listing *listing, const bool *is_new,
                     struct cay_error *err);

/* --- The user --- */

/* By the sandbox's own /etc/passwd. */
struct identity {
    bool is_known;
    uint32_t uid, gid;
};

struct identity userfs_identity(struct userfs *fs);

/* What a file's mode grants: bits of enum cay_access.  An unknown user counts as the
 * owner. */
int identity_access(const struct identity *identity, const struct cay_stat *stat);

#endif
