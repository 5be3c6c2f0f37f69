/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_ARCHIVE_H
#define E2B_ARCHIVE_H

#include "e2b/e2b.h"

/* A whole directory in one go, by tar(1) inside: modes and links come along, and a
 * thousand small files take no thousand requests.  CAY_E_UNSUPPORTED if there is no tar.
 * Directories are not counted. */
int e2b_archive_import(void *cookie, const char *user, const char *path, int fd,
                       struct cay_tar_result *ret_result, struct cay_error *err);

#endif
