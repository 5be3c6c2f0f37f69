/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_FSID_H
#define SYS_FSID_H

#include <stdbool.h>
#include <stdint.h>

/* A change of identity makes the whole process undumpable, for good.  Between these two
 * it may happen, in any thread and in clones that share our memory, and what it was when
 * the first came is restored.  fsid_begin() tells whether it was dumpable. */
bool fsid_begin(void);
void fsid_end(void);

/* What the calling thread makes from now on belongs to that user and group of the same
 * number; it may do what they may.  0 is back to root.  False if it had no effect. */
bool fsid_take(uint32_t id);

#endif
