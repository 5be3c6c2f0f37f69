/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_MASK_H
#define INIT_MASK_H

#include <stdbool.h>

/* What of /proc is not for those inside.  Paths are "proc/NAME"; failures are reported.
 */

/* Whether the kernel itself keeps it from everybody inside, to judge by the host's /proc.
 * To be asked while that is still to be seen. */
bool mask_is_needless(const char *path);

/* Hides it in the new root, which is ".", by a mount over it: /dev/null over a file, an
 * empty directory over another.  What this kernel does not have needs no hiding. */
void mask(const char *path);
void mask_make_read_only(const char *path);

/* When all are hidden. */
void mask_done(void);

#endif
