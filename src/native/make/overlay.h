/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_OVERLAY_H
#define NATIVE_MAKE_OVERLAY_H

#include <stdint.h>

/* A writable root, over a template that stays as it is or over nothing. */
struct overlay {
    int lower;     /* the template's root; -1: there is none, and a disk */
    int usr;       /* a layer above the host's /usr; -1: /usr is the template's */
    int disk;      /* a directory with "upper" and "work" that persist; -1: memory */
    uint64_t size; /* of the memory, in bytes */
};

/* A detached mount with the owners of `map`, the user namespace of the sandbox whose root
 * is `id_base` outside; or a negative errno.  -EOPNOTSUPP: the file system of the
 * template, of the disk or of /usr cannot show other owners.  If the overlay has a layer
 * above /usr, *ret_usr is another, with a writable view of the host's /usr; else -1. */
int overlay_mount(const struct overlay *overlay, int map, uint32_t id_base, int *ret_usr);

/* What overlays are made of, all detached mounts; -1 where there is none. */
struct overlay_layers {
    int lower; /* of the root */
    int top;   /* has "upper" and "work", and "usr" and "usr-work" if there is a host */
    int usr;   /* above the host's /usr */
    int host;  /* the host's /usr */
};

/* The same of those, for kernels that want paths; they are used up. */
int overlay_by_path(const struct overlay_layers *layers, int *ret_usr);

#endif
