/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Makes `*room`, which is less than `needed`, at least that. */
bool array_grow(void *array, size_t *room, size_t needed, size_t size);

/* Room for `needed` elements of `size` bytes; `array` is the address of a pointer to
 * them, NULL before the first.  False, with all as it was, if memory is exhausted. */
static inline bool array_reserve(void *array, size_t *room, size_t needed, size_t size)
{
    return needed <= *room || array_grow(array, room, needed, size);
}

#endif
