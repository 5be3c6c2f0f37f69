/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"

#include <stdlib.h>

bool array_grow(void *array, size_t *room, size_t needed, size_t size)
{
    size_t wanted = *room < 64 ? 64 : *room;

    while (wanted < needed)
        wanted *= 2;
    void *grown = reallocarray(*(void **)array, wanted, size);
    if (!grown)
        return false;
    *(void **)array = grown;
    *room = wanted;
    return true;
}
