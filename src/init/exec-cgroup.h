/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_EXEC_CGROUP_H
#define INIT_EXEC_CGROUP_H

#include <stdbool.h>

/* The cgroup of one command: every process that the command starts stays in it, so
 * killing it kills the whole tree, setsid and double forks included.  Without cgroups a
 * subreaper does that (subreaper.h).  All return 0 or a negative errno. */
struct exec_cgroup {
    int fd;     /* O_PATH of its directory, or the socket to the subreaper; -1: none */
    int events; /* cgroup.events */
    unsigned number;
    bool has_subreaper;
};

#define EXEC_CGROUP_NONE                                                                 \
    {                                                                                    \
        .fd = -1, .events = -1                                                           \
    }

/* Before the first of the following. */
void exec_cgroup_prepare(bool has_cgroup);

int exec_cgroup_open(unsigned number, struct exec_cgroup *ret_cgroup);
int exec_cgroup_kill(const struct exec_cgroup *cgroup);
bool exec_cgroup_is_empty(const struct exec_cgroup *cgroup);

/* Removes it if it is empty; else it stays until the sandbox ends. */
void exec_cgroup_close(struct exec_cgroup *cgroup);

#endif
