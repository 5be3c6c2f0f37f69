/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_SHARED_FILES_H
#define NATIVE_MAKE_SHARED_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Files of the host's that all sandboxes are shown: one copy for all of them, in a
 * directory of the runtime directory whose name says of which versions it is.  In there
 * each has the last part of its own name. */
struct shared_file {
    const char *path; /* "etc/services" */
    bool is_there;    /* a regular file, not too large, that everybody may read */
};

/* The directory that has them as they are now, made if need be; tells which there are.
 * False if it cannot be. */
bool shared_open(struct shared_file *files, size_t count, char ret_path[PATH_MAX]);

/* Such a file itself, for reading: a descriptor, or -1. */
int shared_open_host(const char *path, size_t *ret_len);

/* Removes what makers that died have left, and where no sandbox lives other versions. */
void shared_sweep(struct shared_file *files, size_t count);

#endif
