/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_COMMAND_H
#define INIT_COMMAND_H

#include <stdbool.h>
#include <sys/types.h>

#include "init/leaf.h"
#include "init/request.h"

enum { BIRTH_STACK = 24 << 10 };

/* A child between clone and execve.  Until it has executed or died it shares our memory
 * and reads its request there, so this must stay where it is. */
struct birth {
    struct request request;
    const char *search; /* PATH */
    uint32_t alive;     /* cleared by the kernel, or on its holder's word */
    bool is_held;
    int error;        /* why it did not execute */
    const char *step; /* "exec.cwd", "exec.program" */
    char stack[BIRTH_STACK] __attribute__((aligned(16)));
};

/* Before the first. */
void birth_prepare(const struct plan *plan);

struct birth *birth_new(void); /* NULL if memory is exhausted */
void birth_free(struct birth *birth);

/* Starts its request in the leaf (NULL: where we are), as a session of its own, with
 * `stdio` (a terminal if the request asks for one).  The pid, or a negative errno. */
pid_t birth_begin(struct birth *birth, struct leaf *leaf, const int stdio[3]);

bool birth_is_over(const struct birth *birth);

/* Waits until it is over, but not for long: whoever is inside may have stopped it. */
void birth_wait(struct birth *birth);

/* CAY_OK if it executed.  CAY_E_EXEC_FAILED with sys_errno if its program could not be;
 * other codes if it did not come to that. */
int birth_error(const struct birth *birth, struct cay_error *err);

#endif
