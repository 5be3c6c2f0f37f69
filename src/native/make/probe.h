/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_PROBE_H
#define NATIVE_MAKE_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/record/idmap.h"

/* Finds out whether the kernel permits an operation, by trying it in a process that exits
 * afterwards, together with its namespaces and mounts. */
struct probe {
    uint64_t namespaces;     /* CLONE_NEW... flags of the process */
    int cgroup;              /* cgroup directory to start in, or -1 */
    const struct idmap *map; /* of the user namespace; NULL: one id */
    /* Runs in the process, as root of a new user namespace: 0 or an errno.  The process
     * is a copy of a program that may have threads, so only system calls are safe. */
    int (*inside)(void);
    /* Runs in the caller while the process waits: 0 or an errno.  May be NULL. */
    int (*outside)(pid_t pid);
};

enum probe_step { PROBE_OK, PROBE_CLONE, PROBE_MAP, PROBE_OUTSIDE, PROBE_INSIDE };

struct probe_result {
    enum probe_step step; /* the failed step */
    int error;            /* its errno; 0 if the process was killed */
};

struct probe_result probe_run(const struct probe *probe);

/* A mount point that every host has; probe_mount() mounts there, in the process. */
#define PROBE_DIR "/tmp"
int probe_mount(const char *type, const char *options);

/* Whether sandboxes of this user can have their own root and /proc. */
bool probe_own_root(void);

#endif
