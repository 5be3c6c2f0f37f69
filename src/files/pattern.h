/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_PATTERN_H
#define FILES_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cay/error.h"

/* Glob patterns over relative paths, one component at a time, so that a walk can carry
 * its position in the pattern along and look only where something can still match.
 *
 *   *  ?  [a-z]  [!a-z]   within one name; "?" and "[...]" take one UTF-8 character, or
 * one byte where the name is not UTF-8.  A "[" that is never closed stands for itself;
 * there is no escape: "[*]" is a star.
 *   **                    as a whole component any number of directories, none included;
 *                         at the end everything below; inside a component the same as "*"
 *
 * Names that start with a dot are ordinary.  "." and empty components are left out, but
 * with a slash at its end a pattern means directories only. */

enum { PATTERN_LENGTH_MAX = 4096, PATTERN_COMPONENTS_MAX = 63 };

enum pattern_kind {
    PATTERN_LITERAL,
    PATTERN_WILD,
    PATTERN_ANY_DEPTH /* "**" */
};

struct pattern {
    char *text; /* the components, each NUL-terminated */
    size_t count;
    bool only_directories; /* for the caller to see to: names have no type here */
    struct pattern_component {
        enum pattern_kind kind;
        const char *text;
    } components[PATTERN_COMPONENTS_MAX];
};

/* NULL or "" is every name at any depth.  CAY_E_INVALID for a pattern that is absolute,
 * climbs, or is too long. */
int pattern_compile(const char *op, const char *text, struct pattern *ret_pattern,
                    struct cay_error *err);
void pattern_done(struct pattern *pattern);

/* A set of positions: bit i says that component i is the next to be matched; bit `count`,
 * that the whole pattern is.  No bit: nothing below can match. */
typedef uint64_t pattern_state;

pattern_state pattern_start(const struct pattern *pattern);

/* From a directory's state to that of `name` in it.  "**" does not pass through links. */
pattern_state pattern_step(const struct pattern *pattern, pattern_state state,
                           const char *name, bool is_link);
bool pattern_accepts(const struct pattern *pattern, pattern_state state);

/* Whether something below a name that has this state can match. */
bool pattern_goes_deeper(const struct pattern *pattern, pattern_state state);

/* The whole of a relative path, for lists of exclusions. */
bool pattern_matches_path(const struct pattern *pattern, const char *path);

#endif
