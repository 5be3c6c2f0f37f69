/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_MASK_H
#define INIT_MASK_H

#include <stdbool.h>

/* What of /proc is not for those inside.  Paths are "proc/NAME"; failures are reported.
 */

/* Whether the kernel does not have it, or keeps it from everybody inside.  `proc` is the
 * new one, mounted or not. */
bool mask_is_needless(int proc, const char *path);

/* Hides it in the new root, which is ".", by a mount over it: /dev/null over a file, an
 * empty directory over another. */
void mask(const char *path);
void mask_make_read_only(const char *path);

/* When all are hidden. */
void mask_done(void);

#endif
