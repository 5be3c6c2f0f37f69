/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_STORE_H
#define NATIVE_MAKE_STORE_H

#include <stdint.h>

/* The tmpfs at the bottom of a sandbox's mount namespace:
 *
 *   root     the sandbox's root is mounted here, and another one later
 *   store/   0700 and owned by the host's root, which has no uid inside
 *     dev      mounted as /dev
 *     upper    the root, or the upper layer of its overlay, if it is in memory
 *     work     the work directory of that overlay
 *     layers   more layers, see layer.h
 *     inherited, ancestors   of a fork, see inherit.h
 *
 * A landlock rule is about an inode, so the rule about everything inside is on this tmpfs
 * and not on the root: it stays in effect when another root is mounted. */
struct store {
    int top; /* a detached mount; -1: this kernel cannot mount parts of it */
    int dir; /* its directory "store" */
    int dev; /* a detached mount of its directory "dev", owned by the host's root */
};
#define STORE_NONE                                                                       \
    {                                                                                    \
        .top = -1, .dir = -1, .dev = -1                                                  \
    }

/* STORE_NONE before Linux 6.15: then the root is at the bottom.  0 or a negative errno.
 */
int store_create(uint64_t size, struct store *ret_store);
void store_done(struct store *store);

/* A directory with this mode and owner, whatever the umask is; -EEXIST as mkdir(2). */
int store_mkdir(int dir, const char *name, unsigned mode, uint32_t owner);

/* A directory with the mode, the owner and the times of the directory `like`. */
int store_mkdir_like(int dir, const char *name, int like);

/* The directory of a layer, which has "upper" and "work", in a store: a descriptor or a
 * negative errno.  Layer 1 is the store itself.  With LAYER_FLAT it is the directory
 * "flat" of that layer, see layer.h. */
enum { LAYER_FIRST = 1, LAYER_DEPTH_MAX = 400, LAYER_FLAT = 1 << 30 };
int store_open_layer(int store, uint32_t id);
int store_open_part(int store, uint32_t id, const char *part);

#endif
