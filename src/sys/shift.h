/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_SHIFT_H
#define SYS_SHIFT_H

#include <stdint.h>
#include <sys/types.h>

/* Mounts whose files have other owners than on the disk. */

/* A user namespace with those maps, as the kernel wants them written: the first number of
 * a line is an id on the disk, the second the one it is shown as.  A descriptor, or a
 * negative errno.  Needs root. */
int shift_map(const char *uids, const char *gids);

/* The user namespace of a process. */
int shift_of_process(pid_t pid);

/* A detached clone of the mount at `fd`, with those attributes (MOUNT_ATTR_*) and owners
 * shifted by `map`. -EOPNOTSUPP: the file system does not support idmapped mounts. */
int shift_mount(int fd, int map, uint64_t attributes);

/* The same of the mount at a path, which may be shifted already: `map` replaces the map
 * it has.  From Linux 6.15 on.  For processes of clone_run(), too. */
int shift_mount_again(const char *path, int map, uint64_t attributes);

/* The same for a new mount that is not attached yet, once: 0 or a negative errno. */
int shift_detached(int mount, int map, uint64_t attributes);

/* As shift_mount() for the directory `path` of a mount that is not attached yet, once,
 * for kernels before 6.15. */
int shift_mount_below(int mount, const char *path, int map, uint64_t attributes);

#endif
