/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_VOLUME_H
#define NATIVE_RECORD_VOLUME_H

#include <stdbool.h>
#include <stddef.h>

#include "cay/volume.h"

/* Volumes are in STATE/volumes/NAME/: "root" with the files and "info", its metadata.
 * A volume with a size has an image instead of "root", see image.h.
 * The owners of root's volumes are those inside, 0 to 65535, and each sandbox sees them
 * shifted into its own range; those of an ordinary user's volumes are the ids that all of
 * its sandboxes map.  A volume is created in a directory ".new-..." and renamed when
 * complete, and renamed to ".old-..." before it is removed. */

#define VOLUME_STORE "volumes"
enum {
    VOLUME_NAMES = CAY_VOLUMES_MAX
}; /* of all volumes of a sandbox, with blanks between them */

bool volume_is_name(const char *name);
int volume_check_name(const char *name, const char *who, struct cay_error *err);
int volume_fail_unknown(const char *name, const char *who, struct cay_error *err);

/* Creates the root in the directory of a new volume, or prepares that of a mount. */
int volume_make_root(int dir, const char *who, struct cay_error *err);
int volume_prepare_root(int dir, const char *name, const char *who,
                        struct cay_error *err);

/* Whether the locked directory `dir` still has that name in the store. */
bool volume_is_current(int store, const char *name, int dir);

/* The root of a volume (O_PATH), and its directory, which is locked: the volume cannot be
 * removed while that is open.  *ret_is_mount: the root is a new mount of its image. */
int volume_open(const char *name, int *ret_dir, int *ret_root, bool *ret_is_mount,
                struct cay_error *err);

/* Appends a name; false if there is no room for it. */
bool volume_add_name(char names[VOLUME_NAMES], const char *name);

/* A sandbox that uses volumes. */
struct volume_user {
    char id[CAY_ID_MAX];
    char names[VOLUME_NAMES]; /* with blanks between them */
    char pool[24];            /* of a spare: the pool that keeps it; else "" */
    bool is_unknown; /* it runs and its record is damaged: it may use any volume */
};

/* All of them, running and stopped.  The caller frees the list. */
struct volume_users {
    struct volume_user *list;
    size_t count;
};
int volume_find_users(struct volume_users *ret_users, struct cay_error *err);
bool volume_is_used_by(const struct volume_user *user, const char *name);

/* Removes what crashed processes left; returns the number. */
size_t volume_sweep(void);

#endif
