/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"

#include "harness.h"

TEST(an_array_grows_and_keeps_what_is_in_it)
{
    AUTO_FREE uint32_t *numbers = NULL;
    size_t room = 0;

    for (uint32_t i = 0; i < 1000; i++) {
        ASSERT(array_reserve(&numbers, &room, i + 1, sizeof *numbers));
        ASSERT(room > i);
        numbers[i] = i;
    }
    for (uint32_t i = 0; i < 1000; i++)
        ASSERT_INT(numbers[i], i);
    const uint32_t *before = numbers;
    ASSERT(array_reserve(&numbers, &room, 1000, sizeof *numbers));
    ASSERT(numbers == before);
}

TEST(what_does_not_fit_into_memory_changes_nothing)
{
    AUTO_FREE char *bytes = NULL;
    size_t room = 0;

    ASSERT(array_reserve(&bytes, &room, 10, 1));
    size_t had = room;
    bytes[9] = 'x';
    ASSERT(!array_reserve(&bytes, &room, had + 1, SIZE_MAX / had));
    ASSERT(!array_reserve(&bytes, &room, SIZE_MAX, 1));
    ASSERT_INT(room, had);
    ASSERT_INT(bytes[9], 'x');
}
