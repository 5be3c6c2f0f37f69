/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_FILTER_CALLS_H
#define NATIVE_FILTER_CALLS_H

/* Names of system calls, each list with NULL at its end.  What is in none of them is
 * unknown to us, and to programs inside unknown to the kernel. */
extern const char *const filter_allowed[];
extern const char *const filter_refused[];

/* Refused too where there are no namespaces. */
extern const char *const filter_refused_alone[];

#endif
