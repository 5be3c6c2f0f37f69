/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_IMAGE_H
#define NATIVE_RECORD_IMAGE_H

#include <stdint.h>

#include "cay/error.h"

/* A size limit on disk: an ext4 in the file "image" of a directory, on a loop device that
 * the kernel releases with the last mount.  Mounts of an image share one file system.
 * Needs root; `who` and `what` are the operation and the subject of errors. */

/* Whether a limit of this size is possible. */
int image_check(uint64_t bytes, const char *who, const char *what, struct cay_error *err);

/* Whether this host has what an image needs; CAY_E_UNSUPPORTED with the reason. */
int image_check_host(const char *who, const char *what, struct cay_error *err);

/* Creates the file with an empty file system and mounts it: a descriptor, or a code. */
int image_create(int dir, uint64_t bytes, const char *who, const char *what,
                 struct cay_error *err);

/* A detached mount of it: a descriptor, or a code. */
int image_mount(int dir, const char *who, const char *what, struct cay_error *err);

#endif
