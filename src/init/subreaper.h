/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SUBREAPER_H
#define INIT_SUBREAPER_H

#include <stdbool.h>
#include <sys/types.h>

struct child;

/* The cgroup of one command: every process that the command starts stays in it, so
 * killing it kills the whole tree, setsid and double forks included.  Without cgroups a
 * subreaper does that.  All return 0 or a negative errno. */
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
void exec_cgroup_kill(const struct exec_cgroup *cgroup);
bool exec_cgroup_is_empty(const struct exec_cgroup *cgroup);

/* Removes it if it is empty; else it stays until the sandbox ends. */
void exec_cgroup_close(struct exec_cgroup *cgroup);

/* A subreaper tracks the processes of a command where there is no cgroup for it.
 *
 * Each command is started by its own subreaper: a fork of PID 1 with
 * PR_SET_CHILD_SUBREAPER, which adopts every orphan of the command, so that the whole
 * tree is below it and below no other.  To kill the tree, PID 1 kills the subreaper,
 * inherits its processes, and kills every child that is not a subreaper until there is
 * none.
 *
 * The `fd` of such an exec cgroup is the socket to the subreaper. */

/* Like child_start() without a cgroup, in a subreaper that is started for it.  What
 * becomes of the child is reported later, to the loop or to subreaper_wait(). */
pid_t subreaper_start(struct child *child, struct exec_cgroup *cgroup);
void subreaper_wait(const struct child *child, int timeout_ms);

/* A child of PID 1 has exited. */
void subreaper_reaped(pid_t pid);

/* Called after every round of events; subreaper_is_busy(): call it again soon. */
void subreaper_update(void);
bool subreaper_is_busy(void);

/* Kills every tree and returns when all are dead. */
void subreaper_end_all(void);

#endif
