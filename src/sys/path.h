/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_PATH_H
#define SYS_PATH_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/stat.h>

/* openat2(2) and related calls.  All return a descriptor (always CLOEXEC) or 0, or a
 * negative errno. */

/* No link of any kind is followed and nothing above `dir` is reached. */
#define PATH_PLAIN (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* Retries EAGAIN, which a concurrent rename causes, a bounded number of times.  "" means
 * `dir` itself. */
int path_open(int dir, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve);

/* Opens an O_PATH descriptor for real: the very same file, whatever its name means by
 * now. -ENOSYS if /proc is not mounted. */
int path_reopen(int fd, int flags);

/* renameat2(2), for which musl has no function before 1.2.6. */
int path_rename(int from_dir, const char *from, int to_dir, const char *to,
                unsigned flags);

/* Sets the mode of a file, but not of one that a link names.  Works where a container's
 * filter does not know fchmodat2(2), which the C library calls for that. */
int path_chmod(int dir, const char *name, unsigned mode);

/* Where it is by now, without links; "" with a negative errno. */
int path_name(int fd, char ret_path[PATH_MAX]);

/* The entries of `dir`, by a new descriptor; NULL and errno if it cannot be read. */
DIR *path_list(int dir);

/* The next entry other than "." and ".."; NULL at the end, or if the list is NULL. */
struct dirent *path_next(DIR *list);

static inline void auto_dir(DIR **list)
{
    if (*list)
        (void)closedir(*list);
}
#define AUTO_DIR __attribute__((cleanup(auto_dir))) DIR *

/* Resolves the links of `rel` one component at a time and never above `root`. An absolute
 * or climbing link counts as one below the root if it gets there by the names of `host`,
 * the root's own path.  With `follow_last` false the last component may be a link.
 *
 * On success `ret_rel` (PATH_MAX bytes) is the link-free path and *ret_fd its O_PATH
 * descriptor with *ret_stat filled in; or *ret_fd is -1 if the file is missing. -EXDEV: a
 * link leads out. -ELOOP: links form a loop. */
int path_resolve(int root, const char *host, const char *rel, int follow_last,
                 char *ret_rel, int *ret_fd, struct stat *ret_stat);

#endif
