/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_FIND_H
#define INIT_FIND_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

/* Where a path below our root leads: an O_PATH descriptor with its fstat; -ENOENT with
 * ret_place filled in if nothing is there; or another negative errno with that empty. The
 * place is without links and slashes at its ends. */
int find_place(int root, const char *path, bool follow, char ret_place[PATH_MAX],
               struct stat *ret_stat);

#endif
