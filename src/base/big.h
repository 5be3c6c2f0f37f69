/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BIG_H
#define BASE_BIG_H

#include <stdbool.h>
#include <stddef.h>

/* Large buffers that are filled from start to end.  Page faults cost more than reading a
 * file into the buffer; with large pieces (MADV_POPULATE_WRITE) they cost less than half.
 */

/* malloc(3) aligned to a cache line: the kernel copies into it a tenth faster, and
 * vectors are loaded from it twice as fast.  If it is untouched, fill it in pieces and
 * call big_touch() before each.  Free it with free(3). */
void *big_alloc(size_t len, bool *ret_untouched);

/* The same for memory that another function has allocated; true if it is untouched. */
bool big_expect(void *memory, size_t len);

/* Has the kernel make the pages of a piece that is filled next, all at once. */
void big_touch(void *memory, size_t len);

#endif
