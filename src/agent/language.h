/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_LANGUAGE_H
#define AGENT_LANGUAGE_H

#include <stddef.h>

struct buf;

/* Languages of cay_code_run(), which runs code as a program. */

enum {
    LANGUAGE_COUNT = 15,
    LANGUAGE_NAMES = 4,
    LANGUAGE_PROGRAMS = 4,
    LANGUAGE_ARGUMENTS = 2
};

struct language {
    const char *names[LANGUAGE_NAMES]; /* the first is that of results */
    /* Tried in this order; and the arguments before the file. */
    const char *programs[LANGUAGE_PROGRAMS];
    const char *arguments[LANGUAGE_ARGUMENTS];
    const char *file; /* the name of the code's file, the last argument; NULL: on stdin */
    const char
        *line; /* a line for sh that runs the file $1 with the program $0; or NULL */
};

extern const struct language language_table[LANGUAGE_COUNT];

/* By any of its names, in any case; NULL: unknown. */
const struct language *language_find(const char *name);

/* Appends a line for bash that runs the code, which is NUL-terminated, as a program of a
 * language that has a file. */
void language_put_script(const struct language *language, const char *code,
                         struct buf *out);

#endif
