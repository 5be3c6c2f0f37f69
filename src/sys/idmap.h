/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_IDMAP_H
#define SYS_IDMAP_H

#include <stdint.h>
#include <sys/types.h>

/* Mounts whose files have other owners than on the disk. */

/* A user namespace in which `uid` and `gid` on the disk, and no others, are `to` outside;
 * a descriptor, or a negative errno.  Needs root. */
int idmap_open(uint32_t uid, uint32_t gid, uint32_t to);

/* The user namespace of a process. */
int idmap_of_process(pid_t pid);

/* A detached copy of the mount that holds what `fd` does, from there on, with those
 * attributes (MOUNT_ATTR_*) and owners as in `map`.  -EOPNOTSUPP: the file system there
 * cannot do it. */
int idmap_mount(int fd, int map, uint64_t attributes);

#endif
