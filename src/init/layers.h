/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_LAYERS_H
#define INIT_LAYERS_H

#include <stddef.h>
#include <stdint.h>

/* The root of an ordinary user's sandbox, mounted in its own user namespace.  Its files
 * belong to the ids of that namespace, so that no mount has to shift them.  Both return a
 * detached mount or a negative errno; the arguments are detached mounts. */

/* The directory "upper" of the disk. */
int layers_disk(int disk);

/* An overlay over the lower layers, the highest first, with "upper" and "work" on the
 * disk; disk -1: in a tmpfs of at most `size` bytes.  -EOPNOTSUPP: the file system above
 * has no user xattrs. */
enum { LAYERS_MAX = 64 };
int layers_overlay(const int *lowers, size_t count, int disk, uint64_t size);

#endif
