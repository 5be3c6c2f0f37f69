/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include <stddef.h>
#include <stdio.h>

#include "cay/sandbox.h"

/* Writes text for eyes: what a terminal would obey (control characters), what would turn
 * the line around (bidirectional overrides) and what is not UTF-8 is written as \n, \x1b
 * or \u202e.  A tab stays.  At most `limit` characters, then "..."; SIZE_MAX for all. */
void show_text(FILE *file, const char *text, size_t len, size_t limit);

/* "timeout"; NULL for 0. */
const char *show_cause(enum cay_cause cause);

/* "paused"; "none" for 0. */
const char *show_state(enum cay_state state);

/* All of a NUL-terminated string. */
void show_name(FILE *file, const char *name);

#endif
