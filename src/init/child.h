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

/* Kept ready for the next command: empty cgroups, and a child.
 *
 * After a foreground command, which is most often followed by another, a child is cloned
 * in advance.  It waits in its own cgroup for one second; an idle sandbox has none.  If
 * root inside kills it, the next command starts with a clone instead. */

int prefork_take_cgroup(struct exec_cgroup *ret_cgroup); /* 0 or a negative errno */
void prefork_keep_cgroup(struct exec_cgroup *cgroup); /* must be empty and never killed */

/* The child that waits for its request, or NULL.  It stays the caller's to fill in until
 * prefork_take() releases it. */
struct child *prefork_child(void);
pid_t prefork_take(struct exec_cgroup *ret_cgroup);

/* Its pid, to be left out of process lists; 0: none. */
pid_t prefork_pid(void);

/* prefork_want() requests a child; the loop makes it when it is idle. */
void prefork_want(void);
bool prefork_is_wanted(void);
void prefork_make(void);

/* True if `pid` was the preforked child. */
bool prefork_reaped(pid_t pid);

/* Kills it when its second is over; prefork_next_ns() is when. */
void prefork_update(void);
uint64_t prefork_next_ns(void);

#endif
