/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_FSID_H
#define SYS_FSID_H

#include <stdbool.h>
#include <stdint.h>

/* A change of identity clears the dumpable flag of the process.  Between these two calls
 * it may happen, in any thread and in clones that share the memory, and the second call
 * restores the flag. fsid_begin() returns whether it was dumpable. */
bool fsid_begin(void);
void fsid_end(void);

/* Sets the fsuid and fsgid of the calling thread: new files belong to them, and access is
 * checked as theirs. 0 is root again.  False if it had no effect. */
bool fsid_take(uint32_t id);

#endif
