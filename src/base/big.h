/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BIG_H
#define BASE_BIG_H

#include <stddef.h>

/* malloc(3) for what will be filled at once: from 32 MiB on it asks for huge pages,
 * since touching 100 MiB page by page takes as long as reading them.  free(3) it. */
void *big_alloc(size_t len);

/* Asks for huge pages in memory that somebody else has allocated and nobody has touched.
 */
void big_expect(void *memory, size_t len);

#endif
