/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_VISIT_H
#define NATIVE_MAKE_VISIT_H

#include <sys/types.h>

/* Work in the mount namespace of a running sandbox, by a short-lived process of the
 * host's root that is in no other namespace of it: nothing inside sees it.  PID 1 cannot
 * do it, it has no privilege over mounts after its setup. */

/* The mount namespace of a sandbox, by the pid of its PID 1, or a negative errno.  The
 * caller checks afterwards that the sandbox lives: the pid may be another process's. */
int visit_open(pid_t init);

/* Calls `run` (IN_CLONE) in a process that shares the memory and the descriptors of this
 * one, which waits for it; "/" is the bottom of the sandbox's namespace.  Its result, or
 * a negative errno. */
int visit_run(int namespace, int (*run)(void *cookie), void *cookie);

/* The same in a process with descriptors of its own.  This process continues when `run`
 * has returned a descriptor or a negative errno, which is then 0 or that errno, and does
 * not wait until the kernel has released what the descriptor refers to: the root of a
 * file system with many files in its cache takes long. */
int visit_run_and_close(int namespace, int (*run)(void *cookie), void *cookie);

/* A detached mount of the sandbox's store or, from 0 on, of that of an ancestor, see
 * inherit.h; or a negative errno. -ENOENT: it has none. */
enum { VISIT_OWN_STORE = -1 };
int visit_open_store(int namespace, int ancestor);

/* The same read-only, with owners shifted by `map`. */
int visit_shift_store(int namespace, int ancestor, int map);

#endif
