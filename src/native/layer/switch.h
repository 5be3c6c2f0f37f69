/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_SWITCH_H
#define NATIVE_LAYER_SWITCH_H

#include <sys/types.h>

/* Work in the mount namespace of a running sandbox, by a short-lived process of the
 * host's root that is in no other namespace of it: nothing inside sees it.  PID 1 cannot
 * do it, it has no privilege over mounts after its setup. */

/* The mount namespace of a sandbox, by the pid of its PID 1, or a negative errno.  The
 * caller checks afterwards that the sandbox lives: the pid may be another process's. */
int switch_open(pid_t init);

/* A detached mount of the sandbox's store, or a negative errno. -ENOENT: it has none. */
int switch_open_store(int namespace);

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

#endif
