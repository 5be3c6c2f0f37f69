/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include <limits.h>
#include <stdbool.h>

#include "cli/hint.h"

enum { SCRIPT_LINE_MAX = 256 };

/* What follows "#!", as the kernel takes it: only a blank or the end of the line ends the
 * name.  `sought` is what it asks env(1) for, or empty. */
struct script {
    char interpreter[SCRIPT_LINE_MAX], sought[SCRIPT_LINE_MAX];
};

/* False if the line starts otherwise. */
bool script_parse(const char *line, struct script *ret_script);

/* What is there inside, and what of it the command's user can reach: nobody but root can
 * enter /root.  Without `all` there is only one user.  Relative paths start where the
 * command does. */
struct view {
    const struct hint *hint;
    cay_files *all, *own;
    bool is_in_place; /* no root of its own: the host's names are seen, few can be read */
};

void view_open(const struct hint *hint, struct view *ret_view);
void view_close(struct view *view);

/* A path as cay cp takes it. */
void view_place(const struct view *view, const char *path, char room[PATH_MAX]);

/* 1, 0, or -1 if it cannot be told. */
int view_has(const struct view *view, const char *path);
bool view_reaches(const struct view *view, const char *path);
bool view_is_taken(const struct view *view, const char *path); /* also by a dead link */

/* False if it cannot be read, or is no script. */
bool view_script(const struct view *view, const char *path, struct script *ret_script);

/* PATH of the command, or of a sandbox that was given none. */
const char *view_path(const struct view *view);
/* A program by its name, as that finds it; false if it does not, or cannot be reached. */
bool view_find(const struct view *view, const char *name, char room[PATH_MAX]);

#endif
