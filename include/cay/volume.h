/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_VOLUME_H
#define CAY_VOLUME_H

#include "cay/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A volume is a directory with a name that outlives sandboxes.  A struct cay_bind whose
 * source is the name shows it inside, in several sandboxes at once, read-only or not.
 *
 * A file of a volume has the same owner in every sandbox: the number of the user inside
 * that created it.  Only at level "single", where `user` is the only one, files of others
 * belong to nobody.  Every user inside can write to the top directory of a new volume.
 * Set-user-id bits and device nodes in a volume have no effect.
 *
 * Volumes of a user are stored below $CAY_HOME, as templates are.  Sandboxes at level
 * "landlock" cannot have volumes. */

struct cay_volume_options {
    size_t size;
    /* Up to 63 letters, digits, "_", "-" and "."; the first one is a letter, a digit or
     * "_". */
    const char *name;
    /* The size limit, 16 MiB to 16 TiB; 0: none.  The volume is then a file system in a
     * file of this size, whose space is reserved.  Needs root, loop devices and
     * mkfs.ext4(8). */
    uint64_t bytes;
};

struct cay_volume_info {
    char name[CAY_NAME_MAX];
    int64_t created_ms; /* since 1970 */
    uint64_t bytes;     /* the size limit; 0: none */
    uint32_t sandboxes; /* that use it, running or stopped */
};

/* CAY_E_EXISTS: there is a volume with this name.  CAY_E_UNSUPPORTED: this
 * host or user cannot limit the size. */
CAY_PUBLIC CAY_NODISC int cay_volume_create(const struct cay_volume_options *options,
                                            struct cay_error *err);

/* By name.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_volume_list(struct cay_volume_info **ret_infos,
                                          size_t *ret_count, struct cay_error *err);

/* Removes the volume with its files.  CAY_E_BUSY while a sandbox uses it, running or
 * stopped: the hint names it. */
CAY_PUBLIC CAY_NODISC int cay_volume_remove(const char *name, struct cay_error *err);

/* Whether the source of a struct cay_bind names a volume, existing or not: it has no "/"
 * and is neither "." nor "..". */
CAY_PUBLIC bool cay_volume_is_source(const char *source);

#define CAY_VOLUME_PATH "/volume"

/* A new ephemeral sandbox without network in which the volume is at CAY_VOLUME_PATH, for
 * cay_sandbox_files(): names and links in a volume come from sandboxes, so this process
 * does not follow them itself.  The caller owns the handle. */
CAY_PUBLIC CAY_NODISC int cay_volume_open(const char *name, cay_sandbox **ret_sandbox,
                                          struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
