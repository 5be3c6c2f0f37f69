/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_OVERLAY_H
#define NATIVE_OVERLAY_H

#include <stdint.h>

/* A writable root, over a template that stays as it is or over nothing. */
struct overlay {
    int lower;     /* the template's root; -1: there is none, and a disk */
    int disk;      /* a directory with "upper" and "work" that persist; -1: memory */
    uint64_t size; /* of the memory, in bytes */
};

/* A detached mount with the owners of `map`, the user namespace of the sandbox whose root
 * is `id_base` outside; or a negative errno.  -EOPNOTSUPP: the file system of the
 * template, or of the disk, cannot show other owners. */
int overlay_mount(const struct overlay *overlay, int map, uint32_t id_base);

/* The same of two detached mounts, the upper one with "upper" and "work" in it, for
 * kernels that want paths; they are used up. */
int overlay_by_path(int lower, int top);

#endif
