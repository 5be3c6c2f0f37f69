/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_GLOB_H
#define BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cay/error.h"

/* Glob patterns over relative paths, one component at a time: a walk carries its position
 * in the pattern along and enters only directories below which something can match.
 *
 *   *  ?  [a-z]  [!a-z]   within one name; "?" and "[...]" match one UTF-8 character, or
 *                         one byte where the name is not UTF-8.  A "[" that is never
 *                         closed matches itself; there is no escape: "[*]" is a star.
 *   **                    as a whole component: any number of directories, also none;
 *                         inside a component the same as "*"
 *
 * Empty components and "." are dropped.  A slash at the end of a pattern sets
 * `only_directories`, which the caller checks: a name has no type here. */

enum { GLOB_LENGTH_MAX = 4096, GLOB_COMPONENTS_MAX = 63 };

enum glob_kind {
    GLOB_LITERAL,
    GLOB_WILD,
    GLOB_ANY_DEPTH /* "**" */
};

enum glob_flag {
    GLOB_HIDE_DOTS =
        1 << 0,            /* only a "." in the pattern matches one that starts a name */
    GLOB_NO_DEPTH = 1 << 1 /* "**" is the same as "*" */
};

struct glob {
    char *text; /* the components, each NUL-terminated */
    size_t count;
    unsigned flags; /* enum glob_flag */
    bool only_directories;
    struct glob_component {
        enum glob_kind kind;
        const char *text;
    } components[GLOB_COMPONENTS_MAX];
};

/* Splits any pattern, also an absolute one or one without components.  CAY_E_INVALID if
 * it has too many; glob_done() frees the result. */
int glob_split(const char *op, const char *text, unsigned flags, struct glob *ret_glob,
               struct cay_error *err);

/* A pattern for what lies below a directory.  NULL or "" matches every name at any depth,
 * and so does a "**" at the end, below its directory.  CAY_E_INVALID for a pattern that
 * is absolute, contains "..", is too long or has no components. */
int glob_compile(const char *op, const char *text, struct glob *ret_glob,
                 struct cay_error *err);
void glob_done(struct glob *glob);

bool glob_match_name(const char *wild, const char *name);

/* Whether a component, which is not GLOB_ANY_DEPTH, matches a name. */
bool glob_match_component(const struct glob *glob, size_t component, const char *name);

/* A set of positions: bit i is set if component i is matched next, bit `count` if the
 * whole pattern matched.  0: nothing below can match. */
typedef uint64_t glob_state;

glob_state glob_start(const struct glob *glob, size_t component);

/* From a directory's state to that of `name` in it.  "**" does not pass through links. */
glob_state glob_step(const struct glob *glob, glob_state state, const char *name,
                     bool is_link);
bool glob_accepts(const struct glob *glob, glob_state state);

/* Whether something below a name that has this state can match. */
bool glob_goes_deeper(const struct glob *glob, glob_state state);

/* Whether the components from `component` on match a whole relative path. */
bool glob_matches_path(const struct glob *glob, size_t component, const char *path);

#endif
