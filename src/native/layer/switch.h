/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_SWITCH_H
#define NATIVE_LAYER_SWITCH_H

#include <sys/types.h>

enum { SWITCH_MOUNTS_MAX = 256 };

/* A mount on the root. */
struct switch_mount {
    int id;
    char path[4096]; /* relative to the root */
};

/* Where a switch failed, for the message. */
struct switch_failure {
    const char *step;
    char path[4096]; /* "" if it is not about one */
};

/* Replaces the root by `root`, and the mount on /usr by `usr` unless that is -1; both are
 * detached mounts.  Every other mount on the old root appears on the new one.  The old
 * one becomes read-only and is detached.  `init` is the pid of
 * PID 1.  Returns 0 or a negative errno, and then nothing has changed. -EBUSY: a file of
 * the old root is open for writing. */
int switch_root(int namespace, pid_t init, int root, int usr,
                struct switch_failure *ret_failure);

/* After a switch whose process died: only the root of PID 1 stays, and it is writable.
 * Returns 0 or a negative errno. */
int switch_repair(int namespace, pid_t init);

#endif
