/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TAR_H
#define FILES_TAR_H

#include <limits.h>
#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "cay/files.h"

/* The messages of the confined process that reads an archive: each is a struct tar_frame
 * followed by its payload.  An archive may have taken over that process, so tar-filter.c
 * checks every message.
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
    TAR_SPECIAL = 5, /* a device, a FIFO, or an entry without a usable name */
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
    uint16_t uid, gid; /* TAR_NOBODY for ids above 65535 */
};

enum { TAR_NOBODY = 65534 };

enum {
    TAR_DATA_MAX = 64 << 10,
    TAR_PATH_MAX = 4095, /* of a path, and of a link's target */
    TAR_MESSAGE_MAX = sizeof(struct tar_frame) + TAR_DATA_MAX
};

/* Where the archive comes from and where the messages about it go. */
struct tar_reader {
    ssize_t (*read)(void *cookie, void *data,
                    size_t len); /* 0 at the end, -1 on failure */
    bool (*send)(void *cookie, const void *message, size_t len); /* false: stop */
    void *cookie;
    bool any_compression; /* bzip2, xz and zstd too */
    bool names_only;      /* report every file as empty */
    bool only_expands; /* send the decompressed bytes: TAR_DATA* (TAR_END | TAR_BROKEN) */
};

/* Reads a tar archive (ustar, pax, GNU; plain or in one layer of gzip) and sends the
 * messages above.  It runs in a confined process: it opens nothing, and decides nothing
 * but the type of an entry. */
void tar_read(const struct tar_reader *reader);

/* Turns those messages into items that are safe to act on: paths are plain and relative,
 * links stay inside, sizes and counts are within the limits, and the order is right.
 * Pure: it touches no file. */
struct tar_filter {
    /* Set by the caller. */
    uint64_t max_entries, max_bytes;
    uint32_t max_depth;
    uint32_t
        base_depth; /* directories between the top a link may reach and the archive */
    /* The archive is a whole root file system: links keep their text, and modes all their
     * bits. */
    bool is_root;

    uint64_t entries; /* seen so far, special ones included */
    uint64_t bytes;   /* of content, by the headers */
    bool is_in_file;
    uint64_t file_size, file_at;
    char name[TAR_PATH_MAX + 1]; /* of the entry, as in the archive */
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
 * CAY_E_INVALID for a damaged archive, CAY_E_PROTOCOL for an impossible message.  A
 * link that leads out becomes TAR_SPECIAL.  Pointers live until the next call. */
int tar_filter_take(struct tar_filter *filter, const char *op, const void *message,
                    size_t len, struct tar_item *ret_item, struct cay_error *err);

/* Whether a link with `depth` directories between it and the top leads below the top.
 * ".." may only come first: after a name it starts where that name leads, which the text
 * does not show.  The directories above the link are real ones. */
bool tar_link_stays(const char *target, uint32_t depth);

/* An archive to be read in a confined process. */
struct tar_input {
    const char *op;
    int fd;
    bool any_compression, names_only; /* as in struct tar_reader */
    /* Gets each item that `filter` accepts, TAR_END last; stops unless it is CAY_OK. */
    int (*take)(void *cookie, const struct tar_item *item, struct cay_error *err);
    void *cookie;
};

int tar_receive(const struct tar_input *input, struct tar_filter *filter,
                struct cay_error *err);

/* Decompresses a file in a confined process; a plain one is passed on as it is.  `take`
 * gets the bytes in order, and stops unless it is CAY_OK. */
typedef int tar_take_bytes(void *cookie, const void *data, size_t len,
                           struct cay_error *err);
int tar_expand(const char *op, int fd, tar_take_bytes *take, void *cookie,
               struct cay_error *err);

/* The caller's options with the defaults filled in.  CAY_E_UNSUPPORTED for a flag that is
 * not in `allowed`. */
int tar_take_options(const struct cay_tar_options *given, const char *op,
                     uint32_t allowed, struct cay_tar_options *ret_options,
                     struct cay_error *err);

/* libarchive converts names by the locale of the thread; this one keeps UTF-8 as it is.
 * (locale_t)0 if the system lacks it: names that are not ASCII may then be lost. */
locale_t tar_locale_new(void);
void tar_locale_done(locale_t *locale);
#define AUTO_LOCALE __attribute__((cleanup(tar_locale_done))) locale_t

#endif
