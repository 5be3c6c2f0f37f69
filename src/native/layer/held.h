/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_HELD_H
#define NATIVE_LAYER_HELD_H

#include <stdbool.h>
#include <sys/types.h>

/* The files that a frozen process has: open, mapped, its program and its directories. */

enum held_kind {
    HELD_MAPPED_WRITABLE = 1, /* mapped, and opened for writing */
    HELD_ALL = 2
};

/* Calls `found` with an O_PATH descriptor of each, until it returns anything but 0, which
 * is the result; or a negative errno. */
int held_each(pid_t pid, enum held_kind kind, int (*found)(void *cookie, int fd),
              void *cookie);

/* The id of the mount that a file is on, or a negative errno. */
long held_mount(int fd);

/* The path of the file from the root of the sandbox that it is in, without a "/" at the
 * beginning, or a negative errno.  The name of a removed file ends with " (deleted)". */
int held_path(int fd, char *path, size_t room);

#endif
