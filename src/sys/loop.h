/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_LOOP_H
#define SYS_LOOP_H

/* A detached mount, nosuid and nodev, of the ext4 in the regular file `image`.  Mounts of
 * the same file share a loop device, which the kernel releases with the last of them.
 * Needs root.  A negative errno on failure; -EOPNOTSUPP: there are no loop devices. */
int loop_mount(int image);

#endif
