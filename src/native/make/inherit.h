/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_INHERIT_H
#define NATIVE_MAKE_INHERIT_H

#include <stddef.h>
#include <stdint.h>

#include "cay/error.h"
#include "native/make/overlay.h"
#include "native/make/store.h"
#include "native/record/storage.h"

/* The layers of other sandboxes that a fork has below its own.  Their stores are mounted
 * read-only in the fork's store as "ancestors/N", with the owners of the fork's range, so
 * they exist as long as it does.  The file "inherited" lists the layers.
 *
 * A store on disk has the owners of inside.  A sandbox on disk has no ancestors: its fork
 * begins with one layer of its own, with links to the files of the other sandbox or
 * copies of them, so at most the last store is on disk.  It stays until the last fork in
 * memory has ended, see `below` of struct record. */

#define INHERIT_DIRECTORY "ancestors"
enum { INHERIT_STORES_MAX = 64, INHERIT_INSIDE = 0 };

struct inherited_layer {
    uint32_t store; /* index of stores */
    uint32_t id;
};

struct inherited {
    int namespace;                      /* of the sandbox that is forked; -1: none */
    int stores[INHERIT_STORES_MAX];     /* detached mounts; -1: not opened */
    uint32_t bases[INHERIT_STORES_MAX]; /* the first id of the owners of their files;
                                           INHERIT_INSIDE: of a disk */
    size_t store_count;                 /* 0: no fork */
    struct inherited_layer layers[LAYER_DEPTH_MAX]; /* the highest first */
    size_t layer_count;
    uint64_t template_dev, template_ino; /* of the template below, or 0 */
    /* The checkpoint, whose number is never used again: of a sandbox, in its present life
     * if its checkpoints end with that. */
    char source[CAY_ID_MAX];
    uint64_t life;
    uint32_t checkpoint;
    struct storage disk;    /* the first store, if it is on disk; not removed meanwhile */
    char below[CAY_ID_MAX]; /* the sandbox whose store on disk is the last one, or "" */
    /* Makes all of it the only layer of overlay->disk: 0 or a negative errno. */
    int (*flatten)(const struct inherited *inherited, const struct overlay *overlay,
                   uint32_t id_base);
};

void inherited_init(struct inherited *ret_inherited);
void inherited_done(struct inherited *inherited);

/* Adds a store that is not opened, and a layer below all others.  -E2BIG: there are too
 * many. */
int inherited_add_store(struct inherited *inherited, uint32_t id_base);
int inherited_add_layer(struct inherited *inherited, uint32_t store, uint32_t id);

/* Without the descriptors of the stores.  A store without the file has inherited
 * nothing. */
int inherited_load(int store, struct inherited *ret_inherited, struct cay_error *err);

/* O_PATH descriptors of `part` ("upper" or "usr") of each layer, which the caller closes
 * also after an error; 0 or a negative errno. */
int inherited_open(const struct inherited *inherited, const char *part, int *ret_fds,
                   size_t *ret_count);

/* The same with detached, read-only mounts of the stores, whose files have the owners of
 * the range from `id_base` on, or INHERIT_INSIDE.  0 or a negative errno; the caller
 * calls inherited_done() also then. */
int inherited_shift(const struct inherited *inherited, uint32_t id_base,
                    struct inherited *ret_own);

/* The root of a fork, as overlay_mount(), and the mounts and the file in its store. */
int inherit_mount(const struct inherited *inherited, const struct store *store,
                  const struct overlay *overlay, int map, uint32_t id_base, int *ret_usr);

#endif
