/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_AGENT_PROGRAM_H
#define CLI_AGENT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "cay/error.h"

enum { PROGRAM_SHOWN_MAX = 16 };

/* A program of this machine, and what a sandbox with the template "host" has to show of
 * it besides /usr. */
struct program {
    char *path; /* without links */
    struct program_shown {
        char *source; /* without links */
        char *target; /* the same place as the program names it */
    } shown[PROGRAM_SHOWN_MAX];
    size_t shown_count;
    char directories[4096]; /* of its interpreters, for PATH: "/a:/b", or "" */
    bool needs_root;        /* something is below /root, which only root enters */
};

/* A name in PATH or an absolute path.  Follows the links and the interpreters of scripts.
 * CAY_E_NOT_FOUND: there is none.  program_done() also after a failure. */
int program_find(const char *name, struct program *ret_program, struct cay_error *err);
void program_done(struct program *program);

#endif
