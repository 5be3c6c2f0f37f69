/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_INSIDE_H
#define FILES_INSIDE_H

#include "cay/files.h"
#include "sys/fs.h"

/* A handle on all of a file system that is not ours: a sandbox's.  Its paths are taken as
 * the kernel takes them, relative ones from `base`.  The handle, and those derived from
 * it, have references of their own to `fs`. */
int files_inside(const struct fs *fs, const char *base, cay_files **ret_files,
                 struct cay_error *err);

#endif
