/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_LIBARCHIVE_H
#define FILES_LIBARCHIVE_H

#include <archive.h>
#include <archive_entry.h>

#include "cay/error.h"

/* libarchive needs a dozen other libraries, and loading them takes longer than creating a
 * sandbox.  So it is loaded when there is an archive to read or write. */

#define LIBARCHIVE_CALLS(X)                                                              \
    X(archive_entry_clear)                                                               \
    X(archive_entry_filetype)                                                            \
    X(archive_entry_free)                                                                \
    X(archive_entry_gid)                                                                 \
    X(archive_entry_hardlink)                                                            \
    X(archive_entry_mtime)                                                               \
    X(archive_entry_mtime_nsec)                                                          \
    X(archive_entry_new)                                                                 \
    X(archive_entry_pathname)                                                            \
    X(archive_entry_perm)                                                                \
    X(archive_entry_set_filetype)                                                        \
    X(archive_entry_set_hardlink)                                                        \
    X(archive_entry_set_mtime)                                                           \
    X(archive_entry_set_pathname)                                                        \
    X(archive_entry_set_gid)                                                             \
    X(archive_entry_set_perm)                                                            \
    X(archive_entry_set_uid)                                                             \
    X(archive_entry_set_size)                                                            \
    X(archive_entry_set_symlink)                                                         \
    X(archive_entry_size)                                                                \
    X(archive_entry_symlink)                                                             \
    X(archive_entry_uid)                                                                 \
    X(archive_errno)                                                                     \
    X(archive_filter_count)                                                              \
    X(archive_read_data_block)                                                           \
    X(archive_read_free)                                                                 \
    X(archive_read_new)                                                                  \
    X(archive_read_next_header)                                                          \
    X(archive_read_open)                                                                 \
    X(archive_read_support_filter_bzip2)                                                 \
    X(archive_read_support_filter_gzip)                                                  \
    X(archive_read_support_filter_xz)                                                    \
    X(archive_read_support_filter_zstd)                                                  \
    X(archive_read_support_format_raw)                                                   \
    X(archive_read_support_format_tar)                                                   \
    X(archive_set_error)                                                                 \
    X(archive_write_close)                                                               \
    X(archive_write_data)                                                                \
    X(archive_write_free)                                                                \
    X(archive_write_header)                                                              \
    X(archive_write_new)                                                                 \
    X(archive_write_open)                                                                \
    X(archive_write_set_bytes_in_last_block)                                             \
    X(archive_write_set_bytes_per_block)                                                 \
    X(archive_write_set_format_pax_restricted)

struct libarchive {
#define X(name) typeof(&name) name;
    LIBARCHIVE_CALLS(X)
#undef X
};

/* Filled in by libarchive_load(), once. */
extern struct libarchive libarchive;

int libarchive_load(const char *op, struct cay_error *err);

#endif
