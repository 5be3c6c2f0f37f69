/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BUILD_IGNORE_H
#define BUILD_IGNORE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/glob.h"

/* The patterns of a .dockerignore.  The last one that matches a path or a directory above
 * it decides; one with "!" in front takes the path in again. */
struct ignore {
    struct ignore_rule {
        struct glob glob;
        bool is_kept; /* "!" */
    } * list;
    size_t count, room;
};

int ignore_parse(const char *text, size_t len, struct ignore *ret_ignore,
                 struct cay_error *err);
void ignore_done(struct ignore *ignore);

/* Whether the path below the directory of the build is left out. */
bool ignore_matches(const struct ignore *ignore, const char *path);

/* Whether something below a directory that is left out may be taken in again. */
bool ignore_has_exceptions(const struct ignore *ignore);

#endif
