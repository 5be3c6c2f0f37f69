/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_TIDY_H
#define POLICY_TIDY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The text of a path brought into its plain form: no "." and no empty components, no
 * slash at either end. */

enum tidy_flag {
    TIDY_BACKSLASH = 1 << 0, /* '\' is a slash too */
    TIDY_KEEP_UP = 1 << 1    /* ".." stays; else it takes the component before it away */
};

struct tidy {
    size_t len;
    bool has_up; /* ".." was there */
    bool climbs; /* and some of them had nothing before them to take away */
    bool fits;   /* if not, a component is over 255 bytes or the path, with a slash in
                    front, over 4,095, and `out` means nothing */
};

/* The text without the ASCII blanks around it. */
const char *tidy_strip(const char *text, size_t *ret_len);

/* Whole components only: "data" covers "data" and "data/a", not "database"; "" covers
 * every path.  Both are plain. */
bool tidy_covers(const char *top, const char *path);

struct tidy tidy_path(const char *text, size_t len, unsigned flags, char out[PATH_MAX]);

#endif
