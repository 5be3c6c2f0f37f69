/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SANDBOX_BACKEND_H
#define SANDBOX_BACKEND_H

#include "cay/backend.h"

/* One handle.  The table is complete: whatever it lacks is NULL, and what backend.h says
 * must be there is there. */
struct cay_sandbox {
    const struct cay_backend *backend;
    void *cookie;
};

/* A handle whose cookie the backend is about to fill in, or NULL.  It comes first: a
 * sandbox that is there and has no handle would be nobody's. */
cay_sandbox *sandbox_new(const struct cay_backend *backend, struct cay_error *err);

/* Hands it out if `code` says that the backend has filled it in; gives `code` back. */
int sandbox_finish(cay_sandbox *sandbox, int code, cay_sandbox **ret_sandbox);

struct cay_process {
    const struct cay_backend *backend; /* one that has processes */
    void *cookie;
};

/* The same two for a process: one that runs and has no handle would be nobody's. */
cay_process *sandbox_process_new(const struct cay_backend *backend,
                                 struct cay_error *err);
int sandbox_process_finish(cay_process *process, int code, cay_process **ret_process);

/* As cay_backend_create(), with a mark if the backend knows marks; and the sandbox that
 * has the mark, CAY_E_NOT_FOUND if there is none, CAY_E_UNSUPPORTED without marks. */
int sandbox_create_marked(const cay_config *config, const char *mark,
                          cay_sandbox **ret_sandbox, struct cay_error *err);
int sandbox_find_marked(const cay_config *config, const char *mark,
                        cay_sandbox **ret_sandbox, struct cay_error *err);

/* CAY_E_UNSUPPORTED: this backend has no such thing. */
int backend_lacks(const struct cay_backend *backend, const char *op,
                  struct cay_error *err);

/* A directory of the host, by the id of the sandbox: what a native or local one without a
 * root of its own has for temporary files.  It goes with the sandbox. */
#define SANDBOX_HOME "/tmp/cay-%.32s"
#define SANDBOX_TEMP SANDBOX_HOME "/tmp"

/* The tables of the built-in backends, each defined by its backend; src/builtins.c lists
 * them. */
extern const struct cay_backend backend_native;
extern const struct cay_backend backend_local;
extern const struct cay_backend backend_e2b;

#endif
