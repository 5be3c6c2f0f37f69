/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"

#include <stdlib.h>

bool array_grow(void *array, size_t *room, size_t needed, size_t size)
{
    size_t wanted = *room < 64 ? 64 : *room, bytes;

    while (wanted < needed)
        if (__builtin_mul_overflow(wanted, 2, &wanted))
            return false;
    if (__builtin_mul_overflow(wanted, size, &bytes))
        return false;
    void *grown = realloc(*(void **)array, bytes);
    if (!grown)
        return false;
    *(void **)array = grown;
    *room = wanted;
    return true;
}
