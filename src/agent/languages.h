/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_LANGUAGES_H
#define AGENT_LANGUAGES_H

#include <stdbool.h>
#include <stddef.h>

/* How the code comes to the interpreter. */
enum language_way {
    LANGUAGE_FILE = 1, /* as a file, its last argument */
    LANGUAGE_INPUT = 2 /* as its input */
};

enum { LANGUAGE_PROGRAMS = 4, LANGUAGE_ARGUMENTS = 3 };

struct language {
    const char *name;
    const char *aliases[4];
    enum language_way way;
    bool is_python;   /* its errors are understood */
    const char *file; /* what the file is called */
    /* Those that are tried, in this order, and what comes before the file. */
    const char *programs[LANGUAGE_PROGRAMS];
    const char *arguments[LANGUAGE_ARGUMENTS];
};

/* By name or alias, in any case; NULL if there is none. */
const struct language *language_find(const char *name);
const struct language *language_at(size_t index); /* NULL past the last */

#endif
