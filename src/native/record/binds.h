/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_BINDS_H
#define NATIVE_RECORD_BINDS_H

#include <limits.h>

#include "cay/sandbox.h"
#include "native/record/volume.h"

/* Bind mounts of host directories, files and volumes: those of the options, and those of
 * a policy. */

struct bind {
    char *source; /* as the caller spells it; of a volume: its name */
    char *target; /* absolute; no ".", ".." or doubled slashes */
    bool writable;
    int fd;        /* O_PATH descriptor of `source` */
    int volume;    /* the locked directory of a volume; -1: of the host */
    int changes;   /* what takes the changes, with "upper" and "work"; -1: the source */
    int claim;     /* the locked directory of a try; -1: it is none */
    bool is_mount; /* `fd` is a mount of its own, not attached: a volume with a size */
    bool is_directory;
    uint32_t uid, gid;               /* owner on the host */
    uint32_t inside_uid, inside_gid; /* owner inside the sandbox */
    uint64_t inode;
};

struct binds {
    struct bind *list; /* sorted: a mount below another one comes after it */
    size_t count;
    char volumes[VOLUME_NAMES]; /* names, with blanks between them */
};

/* Opens every source; the error names the one that cannot be mounted.  `are_known`: the
 * sources were saved by bind_path(), so symbolic links are not followed.  `template` is
 * the root of the template, or -1 for the host. */
int binds_open(const struct cay_sandbox_options *options, bool are_known, int template,
               struct binds *ret_binds, struct cay_error *err);
void binds_done(struct binds *binds);
bool binds_are_writable(const struct binds *binds); /* at least one of the host's */

/* The path of the source without symbolic links, in `path`, for users that cannot be
 * handed `fd`. */
const char *bind_path(const struct bind *bind, char path[PATH_MAX]);

/* A detached idmapped mount in which the owner of the source is inside_uid and
 * inside_gid.  All other owners are unmapped, and only that owner can create files there.
 * The owners in a volume are those inside.  A negative errno on failure; -EOPNOTSUPP: the
 * file system does not support idmapped mounts. */
int bind_mount(const struct bind *bind, uint32_t id_base);

/* The same for `changes`.  The overlay creates files there as host root, which has an id
 * on this mount for that. */
int bind_mount_changes(const struct bind *bind, uint32_t id_base);

#endif
