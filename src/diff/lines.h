/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIFF_LINES_H
#define DIFF_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The lines that two texts do not have in common: a shortest edit script by Myers'
 * algorithm in linear space.  A line includes its "\n". */

enum { LINES_MAX = 1 << 21 }; /* of one text */

struct lines_text {
    const char *text; /* the caller's */
    uint32_t *starts; /* of each line, and the end of the last */
    bool *changed;
    size_t count;
};

struct lines {
    struct lines_text sides[2]; /* before, after */
};

/* Compares texts of less than 4 GiB.  Takes what it needs from *steps; if they are used
 * up, the rest counts as replaced.  0, -ENOMEM, or -E2BIG if a text has more than
 * LINES_MAX lines. */
int lines_compare(const char *before, size_t before_len, const char *after,
                  size_t after_len, uint64_t *steps, struct lines *ret_lines);
void lines_done(struct lines *lines);

#endif
