/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_SECCOMP_H
#define SYS_SECCOMP_H

/* Leaves the calling thread what a pure computation needs: reading and writing
 * descriptors it has, memory that cannot be executed, the clock, and its own end.
 * Everything else fails with EPERM, and a call by the wrong architecture's numbers is
 * death.  For good. Needs no_new_privs.  0 or a negative errno. */
int seccomp_allow_computation(void);

#endif
