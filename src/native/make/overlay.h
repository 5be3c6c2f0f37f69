/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_OVERLAY_H
#define NATIVE_MAKE_OVERLAY_H

#include <stddef.h>
#include <stdint.h>

enum { OVERLAY_BELOW_MAX = 63 };

/* A writable root, over a read-only template or over nothing. */
struct overlay {
    int lower;          /* the template's root; -1: none, only a disk */
    const int *below;   /* layers under it, the highest first */
    size_t below_count; /* at most OVERLAY_BELOW_MAX */
    /* Layers of another sandbox above the template's, the highest first, and their parts
     * above /usr. */
    const int *layers, *usr_layers;
    size_t layer_count;
    int usr;       /* a layer above the host's /usr; -1: /usr is the template's */
    int usr_above; /* a layer above both, below usr_layers; -1: none */
    int top;   /* the directory with "upper" and "work"; -1: of the disk or in memory */
    int disk;  /* a directory with a persistent "upper" and "work"; -1: memory */
    int store; /* the directory of a struct store for memory; -1: a new tmpfs */
    uint64_t size; /* of that tmpfs, in bytes */
};

/* A detached mount with owners shifted by `map`, the user namespace of the sandbox whose
 * root is `id_base` on the host; or a negative errno.  -EOPNOTSUPP: the file system of
 * the template, the disk or /usr does not support idmapped mounts.  If the overlay has a
 * layer above /usr, *ret_usr is a second mount, a writable view of the host's /usr; else
 * -1. */
int overlay_mount(const struct overlay *overlay, int map, uint32_t id_base, int *ret_usr);

/* A detached mount of a disk, whose owners are those inside, for the host: of a sandbox
 * whose root is `id_base`; or a negative errno. */
int overlay_open_disk(int disk, uint32_t id_base);

/* A detached overlay of `lowers`, top first, and the directories `upper` and `work` of
 * `top`; or a negative errno.  From Linux 6.13 on. */
int overlay_create(const int *lowers, size_t count, int top, const char *upper,
                   const char *work);

/* What is below the layers of a sandbox: detached mounts of the template's layers with
 * owners shifted by `map`, the highest first.  0 or a negative errno; the caller calls
 * overlay_below_done() also then. */
struct overlay_below {
    int lowers[OVERLAY_BELOW_MAX + 1];
    size_t count;
    int usr[2]; /* the layer above /usr, if there is one, and the view of /usr */
    size_t usr_count;
};
int overlay_below(const struct overlay *overlay, int map,
                  struct overlay_below *ret_below);
void overlay_below_done(struct overlay_below *below);

/* A detached mount of the lower directories, the highest first, under "upper" and "work"
 * of the directory `top`; owners are not shifted.  A negative errno on failure. */
int overlay_mount_plain(const int *lowers, size_t count, int top);

/* The same of one lower directory and of `top`, both detached mounts. */
int overlay_mount_copy(int lower, int top);

/* The layers of the overlays, all detached mounts; -1 for none. */
struct overlay_layers {
    const int *lowers;  /* of the root, the highest first */
    size_t lower_count; /* at least 1 */
    int top;  /* has "upper" and "work", and also "usr" and "usr-work" if `host` is given
               */
    int usr;  /* above the host's /usr */
    int host; /* the host's /usr */
    int usr_above;         /* above both */
    const int *usr_lowers; /* above all of them, the highest first */
    size_t usr_count;
};

/* The same from given layers, for kernels that need paths; closes the layers. */
int overlay_by_path(const struct overlay_layers *layers, int *ret_usr);

#endif
