/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SANDBOX_BACKEND_H
#define SANDBOX_BACKEND_H

#include "cay/backend.h"

/* One handle.  The table is complete: missing functions are NULL, and functions that
 * cay/backend.h requires are set. */
struct cay_sandbox {
    const struct cay_backend *backend;
    void *cookie;
};

/* A handle whose cookie the backend fills in next, or NULL.  It is allocated first:
 * otherwise a created sandbox could be left without a handle. */
cay_sandbox *sandbox_new(const struct cay_backend *backend, struct cay_error *err);

/* Returns the handle if `code` is CAY_OK, else frees it; returns `code`. */
int sandbox_finish(cay_sandbox *sandbox, int code, cay_sandbox **ret_sandbox);

struct cay_process {
    const struct cay_backend *backend; /* a backend that has processes */
    void *cookie;
};

/* The same two for a process. */
cay_process *sandbox_process_new(const struct cay_backend *backend,
                                 struct cay_error *err);
int sandbox_process_finish(cay_process *process, int code, cay_process **ret_process);

/* Like cay_backend_create(), with a mark (or NULL) if the backend supports marks, from a
 * pool (or NULL) if it supports pools; and the sandbox with the mark: CAY_E_NOT_FOUND if
 * there is none, CAY_E_UNSUPPORTED without marks. */
int sandbox_create_marked(const cay_config *config, const char *mark, const char *pool,
                          cay_sandbox **ret_sandbox, struct cay_error *err);
int sandbox_find_marked(const cay_config *config, const char *mark,
                        cay_sandbox **ret_sandbox, struct cay_error *err);

/* CAY_E_UNSUPPORTED: this backend lacks the function. */
int backend_lacks(const struct cay_backend *backend, const char *op,
                  struct cay_error *err);

/* A directory of the host, by the id of the sandbox: for temporary files of a native or
 * local sandbox without its own root.  It is removed with the sandbox. */
#define SANDBOX_HOME "/tmp/cay-%.32s"
#define SANDBOX_TEMP SANDBOX_HOME "/tmp"

/* The tables of the built-in backends, each defined by its backend; src/builtins.c lists
 * them. */
extern const struct cay_backend backend_native;
extern const struct cay_backend backend_local;
extern const struct cay_backend backend_e2b;

#endif
