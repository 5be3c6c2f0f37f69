/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_DRAFT_H
#define FILES_DRAFT_H

#include "files/handle.h"

/* A file being written that has no name yet.  It gets one in a single step or vanishes: a
 * reader never sees half of it, and a crash leaves nothing behind (but on file systems
 * without O_TMPFILE, where it has a temporary name while it is written). */
struct draft {
    const struct fs *fs;
    int fd;  /* for reading and writing */
    int dir; /* where it lies; not owned */
    char temp[FS_TEMP_MAX];
};

#define DRAFT_NONE                                                                       \
    {                                                                                    \
        .fd = -1, .dir = -1                                                              \
    }
#define AUTO_DRAFT __attribute__((cleanup(draft_done))) struct draft

/* `dir` is an O_PATH descriptor that outlives the draft; `mode` is subject to the umask.
 * These return 0 or a negative errno. */
int draft_open(const struct fs *fs, int dir, mode_t mode, struct draft *ret_draft);

/* Takes over mode, owner and extended attributes of the file that is to be replaced, if
 * there is one.  -EPERM if not all of that can be kept: then only the file itself can. */
int draft_like(const struct draft *draft, const struct target *target);
int draft_open_like(int dir, const struct target *target, uint64_t room,
                    struct draft *ret_draft);

enum draft_commit { DRAFT_REPLACE = 0, DRAFT_NEW = 1 /* -EEXIST if the name is taken */ };

/* Gives it the name `name` in its directory; with `durable` both are on disk after. */
int draft_commit(struct draft *draft, const char *name, enum draft_commit how,
                 bool durable);

/* Drops what was not committed. */
void draft_done(struct draft *draft);

#endif
