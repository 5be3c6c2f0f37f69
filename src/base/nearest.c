/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define NAME_MAX_LEN 64

/* Edits (insert, remove, replace) that turn one name into the other. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LEN + 1], a_len = strlen(a), b_len = strlen(b);

    if (a_len > NAME_MAX_LEN || b_len > NAME_MAX_LEN)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            row[j] = best < corner + 1 ? best : corner + 1;
        }
    }
    return row[b_len];
}

const char *nearest_name(const char *word, const void *names, size_t stride, size_t count)
{
    const char *nearest = NULL;
    size_t len = strlen(word), least = 3; /* two edits at most */

    for (size_t i = 0; i < count; i++) {
        const char *name;
        memcpy(&name, (const char *)names + i * stride, sizeof name);
        bool is_beginning = len > 2 && strncmp(name, word, len) == 0;
        size_t steps = is_beginning ? 1 : distance(word, name);
        if (steps < least && steps < len) {
            least = steps;
            nearest = name;
        }
    }
    return nearest;
}
