/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TAR_READER_H
#define FILES_TAR_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Where the archive comes from and where the messages about it go. */
struct tar_reader {
    ssize_t (*read)(void *cookie, void *data,
                    size_t len); /* 0 at the end, -1 on failure */
    bool (*send)(void *cookie, const void *message, size_t len); /* false: stop */
    void *cookie;
    bool any_compression; /* bzip2, xz and zstd too */
    bool names_only;      /* files are said to be empty */
};

/* Reads a tar archive (ustar, pax, GNU; plain or in one layer of gzip) and says what is
 * in it, as tar-frame.h lays down.  Made to run in a confined process: it opens nothing,
 * and the one judgement it makes is what kind of thing an entry is. */
void tar_read(const struct tar_reader *reader);

#endif
