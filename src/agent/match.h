/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_MATCH_H
#define AGENT_MATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Patterns as Python's fnmatch and glob have them: "*", "?", "[a-z]" and "[!a-z]" within
 * a name; nothing escapes anything; names are compared character by character. */

bool match_name(const char *pattern, const char *name);

/* Whether it is more than a name. */
bool match_has_magic(const char *pattern);

enum { MATCH_PARTS_MAX = 256 };

/* A pattern for paths, taken apart at its slashes. */
struct match {
    const char *parts[MATCH_PARTS_MAX];
    size_t count;
    bool with_dots;  /* names that start with a dot are ordinary */
    bool with_stars; /* "**" is any number of directories, none that starts with a dot */
    char *text;
};

/* Empty parts and "." are left out.  False for lack of memory; `ret_match->count` is over
 * MATCH_PARTS_MAX if it has too many. */
bool match_parse(const char *pattern, struct match *ret_match);
void match_done(struct match *match);

/* Whether the parts from `first` on match a relative path. */
bool match_path(const struct match *match, size_t first, const char *path);

/* Whether one part matches one name, dots considered. */
bool match_part(const struct match *match, size_t part, const char *name);

bool match_is_stars(const struct match *match, size_t part);

#endif
