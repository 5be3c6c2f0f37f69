/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_STICKY_H
#define SYS_STICKY_H

#include <sys/stat.h>

/* In a sticky directory only the owner of a name, or of the directory, takes it away.  0
 * or -EPERM, for the calling thread. */
int sticky_may_remove(const struct stat *dir, const struct stat *st);

#endif
