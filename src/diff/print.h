/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIFF_PRINT_H
#define DIFF_PRINT_H

#include "base/buf.h"
#include "diff/content.h"
#include "diff/diff.h"
#include "diff/lines.h"

struct printer {
    cay_diff *diff;
    cay_diff_writer write;
    void *cookie;
    struct buf line; /* the line that is being put together */
};

/* A path as git writes it: "\n", quotes and bytes outside of ASCII are escaped, and the
 * whole is then in quotes.  After a prefix blanks need quotes, too: git reads a name in a
 * header without them, patch does not. */
void print_path(struct buf *buf, const char *prefix, const char *path);

/* Writes what is in `line`, and empties it. */
int print_line(struct printer *printer, enum cay_diff_line line, struct cay_error *err);

/* The mode that git has for it: 100644, 100755 or 120000; 0 for anything that git does
 * not store. */
unsigned print_git_mode(uint32_t mode);

/* Both sides of a change, and their lines if neither is binary. */
struct print_sides {
    struct content before, after;
    struct lines lines;
    bool is_binary;
};

/* A side whose flag is not set counts as empty. */
int print_load(cay_diff *diff, const struct cay_change *change, bool before, bool after,
               struct print_sides *ret_sides, struct cay_error *err);
void print_unload(struct print_sides *sides);

int stat_print(struct printer *printer, struct cay_error *err);
int unified_print(struct printer *printer, struct cay_error *err);

/* The line "index ..." with git's names of both contents. */
void binary_index(struct printer *printer, const struct cay_change *change,
                  const struct print_sides *sides);

/* That line and "GIT binary patch", which needs both sides whole. */
int binary_print(struct printer *printer, const struct cay_change *change,
                 const struct print_sides *sides, struct cay_error *err);

#endif
