/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_MEMFD_H
#define SYS_MEMFD_H

#include <stddef.h>

/* memfd_create(2) for immutable content. */

/* A sealed file of these bytes, at its beginning, or a negative errno.  `flags` are more
 * of memfd_create(). */
int memfd_of(const char *name, unsigned flags, const void *data, size_t len);

/* 0 or a negative errno.  The memfd must have MFD_ALLOW_SEALING. */
int memfd_seal(int fd);

#endif
