/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_COMMAND_H
#define INIT_COMMAND_H

#include <stdbool.h>
#include <sys/types.h>

#include "init/leaf.h"
#include "init/request.h"

enum { BIRTH_STACK = 24 << 10 };

/* A child between clone and execve.  Until it has executed or died it shares our memory
 * and our descriptors, and reads its request here: all of that must stay as it is. */
struct birth {
    struct request request;
    const char *search; /* PATH */
    uint32_t alive;     /* cleared by the kernel when it has executed or died, or on its
                           holder's word */
    uint32_t go;        /* set by us: the request is there */
    uint32_t went;      /* set by the child: it has seen that */
    bool is_held;
    int error;        /* why it did not execute */
    const char *step; /* "exec.cwd", "exec.program" */
    char stack[BIRTH_STACK] __attribute__((aligned(16)));
};

/* Before the first, and before anybody inside can put something else at /dev/null. */
void birth_prepare(const struct plan *plan);

struct birth *birth_new(void); /* NULL if memory is exhausted */
void birth_free(struct birth *birth);

/* A child in the leaf that waits for birth_go(), which may have been called already.
 * Without a leaf it is where we are, and has descriptors of its own at once.  The pid, or
 * a negative errno. */
pid_t birth_begin(struct birth *birth, struct leaf *leaf);

/* Its request is complete: a terminal is its first stdio, and no stdin is /dev/null. */
void birth_go(struct birth *birth);

bool birth_is_over(const struct birth *birth);

/* Waits until it is over, but not for long: whoever is inside may have stopped it. */
void birth_wait(struct birth *birth);

/* CAY_OK if it executed.  CAY_E_EXEC_FAILED with sys_errno if its program could not be;
 * other codes if it did not come to that. */
int birth_error(const struct birth *birth, struct cay_error *err);

#endif
