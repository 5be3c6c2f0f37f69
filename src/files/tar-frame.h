/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TAR_FRAME_H
#define FILES_TAR_FRAME_H

#include <stdint.h>

/* What the confined reader of an archive says about it: a sequence of messages, each a
 * struct tar_frame followed by its payload.  The receiver takes every message for a lie
 * until it has been checked (tar-filter.c).
 *
 *   archive = entry* (TAR_END | TAR_BROKEN)
 *   entry   = TAR_FILE TAR_DATA* TAR_FILE_END | TAR_DIRECTORY | TAR_LINK | TAR_HARD_LINK
 *           | TAR_SPECIAL
 *
 * The payload of an entry's first message is its path and, for both kinds of links, the
 * link's target, without NUL; of TAR_DATA it is file content; others have none. */
enum tar_kind {
    TAR_FILE = 1,
    TAR_DIRECTORY = 2,
    TAR_LINK = 3,
    TAR_HARD_LINK = 4,
    TAR_SPECIAL = 5, /* a device, a FIFO, or what has no usable name */
    TAR_DATA = 6,
    TAR_FILE_END = 7,
    TAR_END = 8,
    TAR_BROKEN = 9
};

enum tar_defect {
    TAR_NOT_TAR = 1,
    TAR_DAMAGED = 2,
    TAR_COMPRESSED_TWICE = 3,
    TAR_UNREADABLE = 4, /* the input failed, not the archive */
    TAR_NO_MEMORY = 5
};

struct tar_frame {
    uint32_t kind;     /* enum tar_kind */
    uint32_t detail;   /* entries: mode bits; TAR_BROKEN: enum tar_defect */
    uint64_t size;     /* TAR_FILE: of the whole file; TAR_DATA: offset in it */
    int64_t mtime;     /* seconds */
    uint32_t mtime_ns; /* and nanoseconds */
    uint32_t path_len;
    uint32_t link_len;
    uint16_t uid, gid; /* TAR_NOBODY for what does not fit */
};

enum { TAR_NOBODY = 65534 };

enum {
    TAR_DATA_MAX = 64 << 10,
    TAR_PATH_MAX = 4095, /* of a path, and of a link's target */
    TAR_MESSAGE_MAX = sizeof(struct tar_frame) + TAR_DATA_MAX
};

#endif
