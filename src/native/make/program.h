/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_PROGRAM_H
#define NATIVE_MAKE_PROGRAM_H

#include <stdbool.h>

struct cay_error;

enum program {
    PROGRAM_INIT, /* cay-init: PID 1 */
    PROGRAM_NET,  /* cay-net: src/relay */
    PROGRAM_TLS   /* cay-net-tls: src/tls */
};

/* A new descriptor of the program for execveat(2), not below `lowest`, or a negative
 * error code.  `is_shared`: the one file of this user for all sandboxes, if that is
 * possible. Only for a process that does not run as this user: it must not be able to
 * write to the file.
 */
int program_open(enum program which, bool is_shared, int lowest, struct cay_error *err);

/* Removes files of other versions. */
void program_sweep(void);

#endif
