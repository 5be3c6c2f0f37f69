/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BIG_H
#define BASE_BIG_H

#include <stddef.h>

/* malloc(3) for what will be filled at once.  It begins with a line of the processor's
 * cache: the kernel copies into that a tenth faster, and vectors are read from it twice
 * as fast.  From 32 MiB on huge pages are asked for, since touching 100 MiB page by page
 * takes as long as reading them.  free(3) it. */
void *big_alloc(size_t len);

/* Asks for huge pages in memory that somebody else has allocated and nobody has touched.
 */
void big_expect(void *memory, size_t len);

#endif
