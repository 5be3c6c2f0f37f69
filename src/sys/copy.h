/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_COPY_H
#define SYS_COPY_H

#include <stdint.h>

/* Copies up to `max` bytes from the position of `from`, or to its end, by the fastest way
 * the kernel has.  Holes are kept if the other is a file positioned at its end. 0 or a
 * negative errno; *ret_copied is right either way. */
int copy_bytes(int from, int to, uint64_t max, uint64_t *ret_copied);

#endif
