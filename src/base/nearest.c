/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define NAME_MAX_LEN 64

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits (insert, remove, replace, swap two neighbours) that turn one name into the
 * other. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][NAME_MAX_LEN + 1] = {0}, a_len = strlen(a), b_len = strlen(b);

    if (a_len > NAME_MAX_LEN || b_len > NAME_MAX_LEN)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        const size_t *second = rows[(i + 1) % 3], *last = rows[(i + 2) % 3];
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            row[j] = lesser(last[j - 1] + (a[i - 1] != b[j - 1]),
                            lesser(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = lesser(row[j], second[j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

const char *nearest_name(const char *word, const void *names, size_t stride, size_t count)
{
    const char *nearest = NULL;
    /* One edit in a short word, two in a longer one: "wait" is not "cat". */
    size_t len = strlen(word), least = len < 6 ? 2 : 3;

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
