/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_CREATE_H
#define NATIVE_MAKE_CREATE_H

#include "native/process/handle.h"

/* A request that is sent as soon as there is a connection, before the other end is ready
 * to answer; once more for each rung that is tried. */
struct create_request {
    int (*send)(struct native *native, void *cookie, struct cay_error *err);
    void *cookie;
};

/* Makes a sandbox and waits until it is ready: fills in all but the room for output. `id`
 * is one that no other has or has had, or NULL: it is drawn.  `first` may be NULL. */
int create_sandbox(const struct cay_sandbox_options *options, const char *id,
                   const struct create_request *first, struct native *native,
                   struct cay_error *err);

/* The same for the backend "local", where nothing keeps it in: of the options it takes
 * those of commands (env, user, workdir), ttl_ms and ephemeral. */
int create_local(const struct cay_sandbox_options *options, const char *id,
                 struct native *native, struct cay_error *err);

/* Brings one on disk back, into an empty handle. */
int create_from_disk(const char *id, struct native *native, struct cay_error *err);

/* The working directory of the options, for their user, in one that runs. */
int create_check_defaults(void *cookie, const struct cay_sandbox_options *options,
                          struct cay_error *err);
int create_workdir(void *cookie, const struct cay_sandbox_options *options,
                   struct cay_error *err);

#endif
