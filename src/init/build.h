/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_BUILD_H
#define INIT_BUILD_H

#include "init/plan.h"

/* Creates the file systems of a plan as detached mounts, which are attached later.  The
 * library does it where it has the privilege, while cay-init starts; else cay-init does.
 * All return a negative errno on failure. */

/* A tmpfs; its top belongs to uid and gid. */
int build_tree(const struct plan_step *step, unsigned uid, unsigned gid);

/* A second mount of `path` in `tree`; -EINVAL if the kernel cannot clone from a detached
 * mount. */
int build_part(int tree, const char *path, unsigned flags);

/* Creates a DIRECTORY, FILE, LINK or NODE below `tree`, owned by the calling process. */
int build_entry(const struct plan_step *step, const char *path, const char *data,
                int tree);

/* The FILE alone. */
int build_file(const struct plan_step *step, const char *path, const char *data,
               int tree);

/* /proc of this PID namespace, and a devpts whose terminals belong to `gid` (-1: unset).
 */
int build_proc(void);
int build_terminals(int gid);

/* A clone of the mount at the host's `source`. */
int build_bind(const char *source, unsigned flags);

#endif
