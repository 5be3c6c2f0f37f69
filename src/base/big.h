/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BIG_H
#define BASE_BIG_H

#include <stdbool.h>
#include <stddef.h>

/* Memory for what will be filled from its beginning to its end.  Touching it for the
 * first time, page by page, takes longer than reading a file into it; asked for in large
 * pieces it takes less than half. */

/* malloc(3) of what begins with a line of the processor's cache: the kernel copies into
 * that a tenth faster, and vectors are read from it twice as fast.  If nobody has touched
 * it, fill it in pieces and call big_touch() before each.  free(3) it. */
void *big_alloc(size_t len, bool *ret_untouched);

/* The same for memory that somebody else has allocated; true if it is untouched. */
bool big_expect(void *memory, size_t len);

/* Has the kernel make the pages of a piece that is filled next, all at once. */
void big_touch(void *memory, size_t len);

#endif
