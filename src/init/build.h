/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_BUILD_H
#define INIT_BUILD_H

#include "init/plan.h"

/* Making the file systems of a plan, by descriptor: detached mounts that are put in place
 * later.  The library does it where it has the privilege, while cay-init is still being
 * started; else cay-init does.  All return a negative errno on failure. */

/* A tmpfs with at most `inodes` files; its top belongs to uid and gid. */
int build_tree(const struct plan_step *step, unsigned uid, unsigned gid);

/* Another mount of the part of `tree` that is at `path`; -EINVAL where the kernel cannot,
 * as `tree` is mounted nowhere yet. */
int build_part(int tree, const char *path, unsigned flags);

/* Makes a DIRECTORY, FILE, LINK or NODE below `tree`, owned by whoever calls. */
int build_entry(const struct plan_step *step, const char *path, const char *data,
                int tree);

/* The FILE alone. */
int build_file(const struct plan_step *step, const char *path, const char *data,
               int tree);

/* /proc of our processes, and terminals that belong to group `gid` (-1: to nobody's). */
int build_proc(void);
int build_terminals(int gid);

/* A copy of the mount that holds the host's `source`, and the part of it below. */
int build_bind(const char *source, unsigned flags);

#endif
