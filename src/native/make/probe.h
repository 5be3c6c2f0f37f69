/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_PROBE_H
#define NATIVE_MAKE_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/record/idmap.h"

/* Finds out whether the kernel lets this user do something, by doing it in a process that
 * is gone afterwards, with its namespaces and all that was mounted in them. */
struct probe {
    uint64_t namespaces;     /* CLONE_NEW... that the process is born into */
    int cgroup;              /* directory it is born into, or -1 */
    const struct idmap *map; /* of a user namespace; NULL: of one id */
    /* In the process, which is root in a new user namespace: 0 or an errno.  It is a copy
     * of a program that may have threads, so system calls only. */
    int (*inside)(void);
    /* Here, while it waits: 0 or an errno.  NULL for nothing. */
    int (*outside)(pid_t pid);
};

enum probe_step { PROBE_OK, PROBE_CLONE, PROBE_MAP, PROBE_OUTSIDE, PROBE_INSIDE };

struct probe_result {
    enum probe_step step; /* that failed */
    int error;            /* its errno; 0 if the process was killed */
};

struct probe_result probe_run(const struct probe *probe);

/* Something to mount on that every host has; and to do so, in the process. */
#define PROBE_DIR "/tmp"
int probe_mount(const char *type, const char *options);

/* Whether a sandbox of this user can have a root and a /proc of its own. */
bool probe_own_root(void);

#endif
