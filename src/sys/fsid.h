/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_FSID_H
#define SYS_FSID_H

#include <stdint.h>

/* What the calling thread makes from now on belongs to that user and group of the same
 * number; it may do what they may.  0 is back to root. */
void fsid_take(uint32_t id);

#endif
