/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_CHILD_H
#define INIT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "init/request.h"
#include "init/subreaper.h"

enum { CHILD_STACK = 24 << 10 };

/* A child between clone and execve.  Until it has executed or died it shares PID 1's
 * memory and descriptors and reads its request here, so none of that may change. */
struct child {
    struct request request;
    const char *search; /* PATH */
    uint32_t alive;     /* cleared by the kernel when it has executed or died, or when its
                           subreaper reports that */
    uint32_t released;  /* set by PID 1: the request is complete */
    uint32_t running;   /* set by the child when it has seen `released` */
    bool has_subreaper;
    int error;        /* errno, if it did not execute */
    const char *step; /* "exec.cwd", "exec.program" */
    char stack[CHILD_STACK] __attribute__((aligned(16)));
};

/* Before the first child, and before a process inside can replace /dev/null. */
void child_prepare(const struct plan *plan);

struct child *child_new(void); /* NULL if memory is exhausted */
void child_free(struct child *child);

/* Clones a child into the cgroup; it waits for child_release(), which may have been
 * called already.  Without a cgroup it stays in PID 1's and has its own descriptors at
 * once.  The pid, or a negative errno. */
pid_t child_start(struct child *child, struct exec_cgroup *cgroup);

/* The request is complete: with a terminal stdio[0] is that terminal, and a missing stdin
 * is /dev/null. */
void child_release(struct child *child);

bool child_is_done(const struct child *child);

/* Waits until the child has executed or died, with a short timeout: root inside may have
 * stopped it. */
void child_wait(struct child *child);

/* CAY_OK if it executed.  CAY_E_EXEC_FAILED with sys_errno if execve failed; other codes
 * for an earlier step. */
int child_error(const struct child *child, struct cay_error *err);

#endif
