/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_IO_H
#define SYS_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Whole reads and writes, whatever interrupts them.  Negative errno on failure. */

/* Fills the buffer unless the file ends first; the number of bytes read. */
ssize_t io_pread(int fd, void *data, size_t len, uint64_t offset);

int io_write(int fd, const void *data, size_t len);

/* One read of a file of the kernel, by its path from `dir`; `text` is NUL-terminated in
 * any case.  The number of bytes read. */
ssize_t io_read_text(int dir, const char *path, char *text, size_t room);

/* Calls `note` with each line of such a file, without its end; a line of 4 KiB and more
 * in pieces. */
int io_each_line(const char *path, void (*note)(void *cookie, char *line), void *cookie);

/* Writes the text to such a file, in one write. */
int io_write_text(const char *path, const char *text);

/* read(2), for what may be a terminal. */
ssize_t io_read_some(int fd, void *data, size_t room);

/* Frees the pages that are allocated in [from, to) beyond the end of the file.  The size
 * stays, so bytes that another process appends meanwhile are not cut off; those that it
 * appends to this range after the size was read become zeros. */
void io_free_room(int fd, uint64_t from, uint64_t to);

/* A sealed memfd of these bytes, at its beginning, or a negative errno.  `flags` are more
 * of memfd_create(). */
int io_memfd(const char *name, unsigned flags, const void *data, size_t len);

/* Makes a memfd immutable, which must have MFD_ALLOW_SEALING; 0 or a negative errno. */
int io_seal(int fd);

#endif
