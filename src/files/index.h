/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_INDEX_H
#define FILES_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cay/error.h"

/* The offsets of characters and lines of a text file: counts at every 64 KiB, so that a
 * page is found by reading two blocks, not the file.  Immutable once built. */

enum text_unit {
    TEXT_CHARS,           /* code points */
    TEXT_UNIVERSAL_CHARS, /* the same, with "\r\n" as one */
    TEXT_LINES            /* lines, each up to and with its "\n" */
};

struct text_mark {
    uint64_t chars, lf, crlf; /* in all bytes before the block */
};

struct text_index {
    atomic_uint references;
    struct stat st; /* of the file when it was counted */
    bool settled;   /* the last change was long enough before: its times can be trusted */
    uint64_t bytes; /* counted; the size at the end of counting */
    struct text_mark total;
    bool ends_open; /* the last line has no "\n" */
    size_t count;
    struct text_mark marks[];
};

/* Reads all of `fd`.  0, -EILSEQ if it is not UTF-8, -EFBIG past `max_bytes`, or another
 * negative errno. */
int text_index_build(int fd, const struct stat *st, uint64_t max_bytes,
                     struct text_index **ret_index);
struct text_index *text_index_ref(struct text_index *index);
void text_index_unref(struct text_index *index);

/* Whether the index still describes the file. */
bool text_index_fits(const struct text_index *index, const struct stat *st);

uint64_t text_index_total(const struct text_index *index, enum text_unit unit);

/* The byte at which unit number `n` begins; the end of the file if there are fewer. */
int text_index_find(const struct text_index *index, int fd, enum text_unit unit,
                    uint64_t n, uint64_t *ret_byte);

/* The same in memory, where `start` are the counts before the text and `before` is the
 * byte before it; `len` if there are fewer units. */
size_t text_unit_find(const char *text, size_t len, enum text_unit unit, uint64_t n,
                      const struct text_mark *start, unsigned char before);

#endif
