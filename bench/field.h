/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_FIELD_H
#define BENCH_FIELD_H

#include <cay/files.h>

#include "contest.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* Where contests are held: a fresh directory, and the same through the library. */
struct field {
    int dir;
    cay_files *files;
    bool quick; /* small files and few rounds: to see that it works */

    /* Of the contest that is on. */
    uint64_t bytes;
    char *text; /* so many bytes of lines */
};

/* Makes the directory below `where`. */
void field_open(struct field *field, const char *where, bool quick);
/* Removes it with all that is in it. */
void field_close(struct field *field);

/* Whether files of this size fit, on the file system and in memory, several at a time. */
bool field_has_room(const struct field *field, uint64_t bytes);

unsigned field_rounds(const struct field *field, uint64_t bytes);

/* Numbered lines, in ASCII or with characters of every length.  free() it. */
char *field_lines(uint64_t bytes, bool mixed);

/* Makes a file of the contest's text, on disk and quiet for so long that its index may be
 * remembered. */
void field_make(const struct field *field, const char *name);
void field_settle(const struct field *field);
void field_remove(const struct field *field, const char *name);

/* Ours must succeed; says why not if it does not. */
bool field_ok(int code, const struct cay_error *err);

/* The contests, by table. */
void read_contests(struct field *field, uint64_t bytes);
void write_contests(struct field *field, uint64_t bytes);
void change_contests(struct field *field, uint64_t bytes);
void name_contests(struct field *field, uint64_t bytes);
void tree_contests(struct field *field, uint64_t bytes);
void diff_contests(struct field *field, uint64_t bytes);
void paging_contests(struct field *field, uint64_t bytes);

#endif
