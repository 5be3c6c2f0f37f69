/* SPDX-License-Identifier: Apache-2.0 */
#include "base/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct words_number words_number(uint64_t number)
{
    struct words_number out;
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%" PRIu64, number);
    size_t len = 0;

    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            out.text[len++] = ',';
        out.text[len++] = digits[i];
    }
    out.text[len] = '\0';
    return out;
}

static const size_t room_for_the_rest = sizeof ", and 18446744073709551615 more";

void words_add(struct words_list *list, const char *item)
{
    size_t len = strlen(item);

    if (list->left_out || list->len + 2 + len + room_for_the_rest > sizeof list->text) {
        list->left_out++;
        return;
    }
    if (list->len) {
        memcpy(list->text + list->len, ", ", 2);
        list->len += 2;
    }
    memcpy(list->text + list->len, item, len + 1);
    list->len += len;
}

const char *words_end(struct words_list *list)
{
    char *end = list->text + list->len;
    size_t room = sizeof list->text - list->len;

    if (list->left_out && list->len)
        snprintf(end, room, ", and %zu more", list->left_out);
    else if (list->left_out)
        snprintf(end, room, "%zu, too long to show", list->left_out);
    else if (!list->len)
        snprintf(end, room, "none");
    return list->text;
}
