/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_PLAIN_H
#define BENCH_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The floors: each operation as a short program would do it that trusts its paths, with
 * the same outcome as ours.  `name` lies in the directory `dir`.  A failure ends the
 * benchmark, so nothing is cleaned up after one: false, and errno is set. */

/* open, fstat, malloc, read, close.  free() it. */
char *plain_read(int dir, const char *name, size_t *ret_len);

/* open; then malloc, pread and free for every `step` bytes; close. */
bool plain_read_in_steps(int dir, const char *name, size_t step);

/* open; read into one buffer of 256 KiB until the file ends; close. */
bool plain_pass(int dir, const char *name);

/* open, malloc, pread, free, close; the second with the file open already. */
bool plain_page(int dir, const char *name, uint64_t offset, size_t len);
bool plain_page_of(int fd, uint64_t offset, size_t len);

/* open O_EXCL of a temporary name, write, close, rename. */
bool plain_write_atomic(int dir, const char *name, const void *data, size_t len);

/* open, write, ftruncate, close. */
bool plain_write_in_place(int dir, const char *name, const void *data, size_t len);

/* open O_APPEND, write, close. */
bool plain_append(int dir, const char *name, const void *data, size_t len);

/* Both files opened; read and write of 256 KiB, or copy_file_range; fchmod, futimens. */
bool plain_copy(int dir, const char *from, const char *to);
bool plain_copy_range(int dir, const char *from, const char *to);

/* The whole file read, memmem to find the text and to see that it is the only one, three
 * writes to a temporary file, fchmod, rename. */
bool plain_edit(int dir, const char *name, const char *old_text, const char *new_text);

/* How many names a directory has, by readdir; the second by scandir, which copies and
 * sorts them as ours does. */
size_t plain_list(int dir, const char *name);
size_t plain_list_sorted(int dir, const char *name);

/* In how many places the text occurs: the whole file read, memmem. */
size_t plain_search(int dir, const char *name, const char *text);

#endif
