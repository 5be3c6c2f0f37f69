/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_CREATE_H
#define NATIVE_MAKE_CREATE_H

#include "native/process/handle.h"

/* A command that is sent as soon as the control socket is connected, before PID 1 serves
 * it; sent again for each isolation level that is tried.  The caller frees `process`. */
struct create_first {
    const struct cay_exec_options *options;
    struct process *process;
};

/* Creates a sandbox and waits until it is ready; fills in the handle except for the
 * output buffer.  `id` is unused so far, or NULL: one is drawn.  A spare of a pool keeps
 * its own id, and its record has `id` as its mark.  `inherited` is given for a fork, and
 * `first` may be NULL. */
struct inherited;
int create_sandbox(const struct cay_sandbox_options *options, const char *id,
                   const struct inherited *inherited, struct create_first *first,
                   struct native *native, struct cay_error *err);

/* The same for the backend "local", without isolation.  Of the options it uses env, user,
 * workdir, ttl_ms and ephemeral. */
int create_local(const struct cay_sandbox_options *options, const char *id,
                 struct native *native, struct cay_error *err);

/* Creates a sandbox of the pool with this id that waits to be claimed, see spare.h; it is
 * not offered yet.  The handle's leash ends it.  `inherited`: of a fork, or NULL. */
struct spare_key;
int create_spare(const struct cay_sandbox_options *options,
                 const struct inherited *inherited, const char *pool,
                 struct spare_key *ret_key, struct native *native, struct cay_error *err);

/* Starts a stopped sandbox with storage on disk, into an empty handle. */
int create_from_disk(const char *id, struct native *native, struct cay_error *err);

/* Checks, or creates, the working directory of the options in a running sandbox. */
int create_check_defaults(void *cookie, const struct cay_sandbox_options *options,
                          struct cay_error *err);
int create_workdir(void *cookie, const struct cay_sandbox_options *options,
                   struct cay_error *err);

#endif
