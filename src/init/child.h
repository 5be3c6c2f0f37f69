/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_CHILD_H
#define INIT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "init/exec-cgroup.h"
#include "init/request.h"

enum { CHILD_STACK = 24 << 10 };

/* A child between clone and execve.  Until it has executed or died it shares our memory
 * and our descriptors, and reads its request here: all of that must stay as it is. */
struct child {
    struct request request;
    const char *search; /* PATH */
    uint32_t alive;     /* cleared by the kernel when it has executed or died, or on its
                           holder's word */
    uint32_t released;  /* set by us: the request is there */
    uint32_t running;   /* set by the child: it has seen that */
    bool has_subreaper;
    int error;        /* why it did not execute */
    const char *step; /* "exec.cwd", "exec.program" */
    char stack[CHILD_STACK] __attribute__((aligned(16)));
};

/* Before the first, and before anybody inside can put something else at /dev/null. */
void child_prepare(const struct plan *plan);

struct child *child_new(void); /* NULL if memory is exhausted */
void child_free(struct child *child);

/* A child in the cgroup that waits for child_release(), which may have been called
 * already. Without a cgroup it is where we are, and has descriptors of its own at once.
 * The pid, or a negative errno. */
pid_t child_start(struct child *child, struct exec_cgroup *cgroup);

/* Its request is complete: a terminal is its first stdio, and no stdin is /dev/null. */
void child_release(struct child *child);

bool child_is_done(const struct child *child);

/* Waits until it is over, but not for long: whoever is inside may have stopped it. */
void child_wait(struct child *child);

/* CAY_OK if it executed.  CAY_E_EXEC_FAILED with sys_errno if its program could not be;
 * other codes if it did not come to that. */
int child_error(const struct child *child, struct cay_error *err);

#endif
