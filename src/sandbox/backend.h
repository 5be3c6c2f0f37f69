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

/* Registers a copy of the table, completed.  CAY_E_EXISTS if its name is taken, unless
 * by this very table and `again` is fine. */
int backend_add(const struct cay_backend *backend, bool again, const char *op,
                const struct cay_backend **ret_backend, struct cay_error *err);

/* The complete form of a table of any `size`.  CAY_E_INVALID says what is wrong with it.
 */
struct backend_copy {
    struct cay_backend backend;
    struct cay_file_backend files;
    struct cay_process_backend processes;
};
int backend_complete(const struct cay_backend *given, const char *op,
                     struct backend_copy *ret_copy, struct cay_error *err);

/* A directory of the host, by the id of the sandbox: what a native or local one without a
 * root of its own has for temporary files.  It goes with the sandbox. */
#define SANDBOX_HOME "/tmp/cay-%.32s"
#define SANDBOX_TEMP SANDBOX_HOME "/tmp"

/* Those that are built in; the list of them is in registry.c. */
extern const struct cay_backend backend_native;
extern const struct cay_backend backend_local;
extern const struct cay_backend backend_e2b;

#endif
