/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_NATIVE_H
#define NATIVE_NATIVE_H

#include "backend/native/runtime.h"

/* One handle on a native sandbox. */
struct native {
    struct record record;
    int pidfd;  /* of its init, or -1 */
    int leash;  /* closing it ends an ephemeral sandbox, or -1 */
    int socket; /* a connection that is free, or -1 */
    char **env; /* for every command; NULL-terminated */
};

/* Makes a sandbox and waits until it is ready: fills in record, pidfd and leash. */
int native_create(const struct cay_sandbox_options *options, struct native *native,
                  struct cay_error *err);

/* Connections to its init: the handle's own, and one more. */
int native_connect(struct native *native, struct cay_error *err);
int native_dial(const struct record *record, int *ret_socket, struct cay_error *err);

/* Ends it and removes every trace. */
void native_remove(const struct record *record, int pidfd);

/* Removes what sandboxes that ended without being killed, or whose makers crashed, have
 * left; the number of them. */
int native_collect(size_t *ret_count, struct cay_error *err);

int native_files(void *cookie, const char *user, cay_files **ret_files,
                 struct cay_error *err);
int native_exec(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err);

#endif
