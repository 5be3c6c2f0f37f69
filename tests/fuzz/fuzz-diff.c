/* SPDX-License-Identifier: Apache-2.0 */

/* The lines of any two texts: those that are not changed are the same on both sides, with
 * any number of steps, and equal texts have no changes.  The input is: two bytes of steps
 * (0: enough), two bytes for the length of the first text, and both texts. */
#include <stdlib.h>
#include <string.h>

#include "diff/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

static void check_same(const struct lines_text *old, size_t i,
                       const struct lines_text *new, size_t j)
{
    size_t len = old->starts[i + 1] - old->starts[i];

    demand(len == new->starts[j + 1] - new->starts[j]);
    demand(memcmp(old->text + old->starts[i], new->text + new->starts[j], len) == 0);
}

static void check_script(const struct lines *lines)
{
    const struct lines_text *old = &lines->sides[0], *new = &lines->sides[1];
    size_t i = 0, j = 0;

    for (;;) {
        while (i < old->count && old->changed[i])
            i++;
        while (j < new->count &&new->changed[j])
            j++;
        if (i == old->count || j == new->count)
            break;
        check_same(old, i++, new, j++);
    }
    demand(i == old->count && j == new->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lines lines;

    if (size < 4)
        return 0;
    uint64_t steps = (uint64_t)(data[0] | data[1] << 8);
    bool is_limited = steps != 0;
    size_t first = (size_t)(data[2] | data[3] << 8);
    const char *text = (const char *)data + 4;
    size -= 4;
    first = first < size ? first : size;
    if (!is_limited)
        steps = UINT64_MAX / 2;
    demand(lines_compare(text, first, text + first, size - first, &steps, &lines) == 0);
    check_script(&lines);
    const struct lines_text *old = &lines.sides[0], *new = &lines.sides[1];
    bool is_same = old->count == new->count &&first ==
                   size - first &&memcmp(text, text + first, first) == 0;
    for (size_t i = 0; is_same && i < old->count; i++)
        demand(!old->changed[i] && !new->changed[i]);
    lines_done(&lines);
    return 0;
}
