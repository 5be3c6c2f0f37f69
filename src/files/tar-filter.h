/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TAR_FILTER_H
#define FILES_TAR_FILTER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

#include "cay/error.h"
#include "files/tar-frame.h"

/* Turns the messages about an archive into items that are safe to act on: paths are plain
 * and relative, links stay inside, sizes and counts are within the limits, and the order
 * is that of tar-frame.h.  Pure: it touches no file. */
struct tar_filter {
    /* Set by the caller. */
    uint64_t max_entries, max_bytes;
    uint32_t max_depth;
    uint32_t
        base_depth; /* directories between the top a link may reach and the archive */
    /* The archive is a whole root: links mean something only inside it and are kept as
     * they are, and so are the bits of a mode beyond permissions. */
    bool is_root;

    uint64_t entries; /* seen so far, special ones included */
    uint64_t bytes;   /* of content, as announced */
    bool is_in_file;
    uint64_t file_size, file_at;
    char name[TAR_PATH_MAX + 1]; /* of the entry, as it was given */
    char path[PATH_MAX];
    char link[PATH_MAX];
};

struct tar_item {
    enum tar_kind kind;
    const char *path; /* no ".", "..", doubled or outer slashes; "" is the top itself */
    const char *link; /* TAR_LINK: the target's text; TAR_HARD_LINK: a path like `path` */
    mode_t mode;      /* 0777 at most, 07777 with is_root */
    uint16_t uid, gid;
    uint64_t size; /* TAR_FILE: of the file; TAR_DATA: offset */
    struct timespec mtime;
    const void *data; /* TAR_DATA */
    size_t len;
};

/* CAY_E_OUTSIDE for a name that is absolute or climbs, CAY_E_LIMIT past a limit,
 * CAY_E_INVALID for a damaged archive, CAY_E_PROTOCOL for a message that cannot be.  A
 * link that leads out becomes TAR_SPECIAL.  Pointers live until the next call. */
int tar_filter_take(struct tar_filter *filter, const char *op, const void *message,
                    size_t len, struct tar_item *ret_item, struct cay_error *err);

#endif
