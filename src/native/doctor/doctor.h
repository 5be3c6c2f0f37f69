/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_DOCTOR_DOCTOR_H
#define NATIVE_DOCTOR_DOCTOR_H

#include <stdbool.h>

#include "cay/sandbox.h"

enum { DOCTOR_MAX = 48 };

/* The checks so far, and what later ones need to know of earlier ones. */
struct doctor {
    struct cay_check *checks; /* DOCTOR_MAX of them */
    size_t count;
    bool is_root; /* may map any ids */
    bool lacks_capabilities;
    bool has_namespaces; /* user namespaces, with mounts in them */
    bool has_own_root;   /* and a fresh /proc: all that a root of its own takes */
};

/* One line.  The detail is a format. */
void doctor_say(struct doctor *doctor, enum cay_finding finding, const char *facility,
                const char *fix, const char *detail, ...)
    __attribute__((format(printf, 5, 6)));

/* As above, for something that is there or is not: an errno says why not. */
void doctor_tell(struct doctor *doctor, const char *facility, int error,
                 enum cay_finding otherwise, const char *fix, const char *fine,
                 const char *not_fine);

void doctor_namespaces(struct doctor *doctor);
void doctor_limits(struct doctor *doctor);
void doctor_host(struct doctor *doctor);

/* The number in a file of /proc/sys, or -1. */
long doctor_number(const char *path);

#endif
