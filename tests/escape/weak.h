/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_WEAK_H
#define ESCAPE_WEAK_H

#include <stdbool.h>
#include <stddef.h>

/* A confinement of the same kind as a sandbox, made by plain system calls and the
 * library's own filter, from which any layer can be left out: the proof that a probe
 * finds a hole where there is one.  It exists for as long as the probe runs. */
struct weak {
    unsigned layers;     /* enum layer: what is there */
    bool as_user;        /* uid 1000 inside, not 0 */
    const char *program; /* the probe, on the host, */
    int program_fd;      /* open */
    const char *name;    /* its argument */
    char *const *env;
    int leaked; /* left open in the probe's process if FDS is missing */
};

/* Runs the probe and gives what it printed.  False if it could not be run; the output is
 * then what went wrong. */
bool weak_run(const struct weak *weak, char *output, size_t room);

int weak_landlock_abi(void);

#endif
