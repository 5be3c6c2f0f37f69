/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_SYSCALLS_H
#define NATIVE_MAKE_SYSCALLS_H

#include <seccomp.h>
#include <stddef.h>

/* libseccomp uses a negative number for a name that this architecture or the kernel
 * headers do not know.  The filter would silently leave such a call out, so it does not
 * compile. */
#define CALL(name)                                                                       \
    (SCMP_SYS(name) + 0 * (int)sizeof(struct {                                           \
                          _Static_assert(SCMP_SYS(name) >= 0,                            \
                                         #name " has no number here");                   \
                          int unused;                                                    \
                      }))

/* The system calls that programs inside may make; negative numbers are those that this
 * architecture never had. */
extern const int calls_allowed[];
extern const size_t calls_allowed_count;

/* Known and refused with EPERM, since a fall-back would not help. */
extern const int calls_refused[];
extern const size_t calls_refused_count;

/* Also refused without namespaces. */
extern const int calls_refused_alone[];
extern const size_t calls_refused_alone_count;

#endif
