/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_CREATE_H
#define NATIVE_MAKE_CREATE_H

#include "native/process/handle.h"

/* A request that is sent as soon as there is a connection, before the other end is ready
 * to answer; once more for each rung that is tried. */
struct native_first {
    int (*send)(struct native *native, void *cookie, struct cay_error *err);
    void *cookie;
};

/* Makes a sandbox and waits until it is ready: fills in all but the room for output. `id`
 * is one that no other has or has had, or NULL: it is drawn.  `first` may be NULL. */
int native_create(const struct cay_sandbox_options *options, const char *id,
                  const struct native_first *first, struct native *native,
                  struct cay_error *err);

/* The same for the backend "local", where nothing keeps it in: of the options it takes
 * those of commands (env, user, workdir), ttl_ms and ephemeral. */
int native_create_local(const struct cay_sandbox_options *options, const char *id,
                        struct native *native, struct cay_error *err);

/* Brings one on disk back, into an empty handle. */
int native_start(const char *id, struct native *native, struct cay_error *err);

/* The working directory of the options, for their user, in one that runs. */
int native_check_defaults(void *cookie, const struct cay_sandbox_options *options,
                          struct cay_error *err);
int native_make_workdir(void *cookie, const struct cay_sandbox_options *options,
                        struct cay_error *err);

#endif
