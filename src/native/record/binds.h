/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_BINDS_H
#define NATIVE_RECORD_BINDS_H

#include <limits.h>

#include "cay/sandbox.h"

/* Host directories and files that are shown inside: those asked for one by one, and those
 * of a policy. */

struct bind {
    char *source; /* as the caller spells it */
    char *target; /* absolute; no ".", ".." or doubled slashes */
    bool writable;
    int fd; /* what `source` was when it was looked at */
    bool is_directory;
    uint32_t uid, gid;               /* who owns it */
    uint32_t inside_uid, inside_gid; /* and who that is inside */
    uint64_t inode;
};

struct binds {
    struct bind *list; /* sorted: what is mounted below another comes after it */
    size_t count;
};

/* Opens every source; what cannot be shown is an error that says why.  `are_known`: they
 * were saved by bind_path(), and what has become a link since is not followed.  The
 * template is its root, or -1 for the host. */
int binds_open(const struct cay_sandbox_options *options, bool are_known, int template,
               struct binds *ret_binds, struct cay_error *err);
void binds_done(struct binds *binds);
bool binds_are_writable(const struct binds *binds); /* any of them */

/* Where it is, for those who cannot be handed `fd`: without links, in `path`. */
const char *bind_path(const struct bind *bind, char path[PATH_MAX]);

/* A detached mount of it in which its owner is somebody inside; the owners of everything
 * else below have no number there, and nobody else has one in what is made there.  A
 * negative errno; -EOPNOTSUPP: its file system cannot do that. */
int bind_mount(const struct bind *bind, uint32_t id_base);

#endif
