/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_FIND_H
#define INIT_FIND_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

/* Whether it is an entry of our own below /proc.  The kernel shows a process its own
 * memory map and descriptors whatever its identity for files is, and that is not for
 * callers. */
bool find_is_own(int fd);

/* Where a path below our root leads: an O_PATH descriptor with its fstat; -ENOENT with
 * ret_place filled in if nothing is there; or another negative errno with that empty. The
 * place is without links and slashes at its ends.  Our own entries of /proc are -EACCES.
 */
int find_place(int root, const char *path, bool follow, char ret_place[PATH_MAX],
               struct stat *ret_stat);

#endif
