/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SANDBOX_BACKEND_H
#define SANDBOX_BACKEND_H

#include "cay/sandbox.h"

/* What runs sandboxes of one kind.  The cookies are the backend's own state for one
 * handle.  What a backend cannot do is NULL, and the caller hears that it is unsupported;
 * create, open, free, id, layers, exec and kill are always there. */
struct backend {
    const char *name;
    int (*create)(const struct cay_sandbox_options *options, void **ret_cookie,
                  struct cay_error *err);
    int (*open)(const char *id, void **ret_cookie, struct cay_error *err);
    void (*free)(void *cookie);
    const char *(*id)(const void *cookie);
    unsigned (*layers)(const void *cookie);
    int (*inspect)(void *cookie, struct cay_sandbox_info *ret_info,
                   struct cay_error *err);
    int (*list)(struct cay_sandbox_info **ret_infos, size_t *ret_count,
                struct cay_error *err);
    int (*pause)(void *cookie, struct cay_error *err);
    int (*resume)(void *cookie, struct cay_error *err);
    int (*set_ttl)(void *cookie, uint64_t ttl_ms, struct cay_error *err);
    int (*kill)(void *cookie, struct cay_error *err);
    int (*start)(void *cookie, struct cay_error *err);
    int (*remove)(void *cookie, struct cay_error *err);
    int (*collect)(size_t *ret_count, struct cay_error *err);
    int (*files)(void *cookie, const char *user, cay_files **ret_files,
                 struct cay_error *err);
    int (*exec)(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err);
    const struct process_backend *processes;
    int (*dial)(void *cookie, uint16_t port, int *ret_fd, struct cay_error *err);
};

/* `cookie` is the sandbox's, `process` the process's. */
struct process_backend {
    int (*start)(void *cookie, const struct cay_exec_options *options, void **ret_process,
                 struct cay_error *err);
    int (*attach)(void *cookie, const char *which, void **ret_process,
                  struct cay_error *err);
    int (*list)(void *cookie, struct cay_process_info **ret_infos, size_t *ret_count,
                struct cay_error *err);
    void (*free)(void *process);
    int (*pid)(const void *process);
    int (*fd)(const void *process);
    int (*read)(void *process, int *ret_stream, void *data, size_t room, size_t *ret_len,
                uint64_t *ret_dropped, struct cay_error *err);
    int (*skip)(void *process, struct cay_error *err);
    int (*write)(void *process, const void *data, size_t len, size_t *ret_written,
                 struct cay_error *err);
    int (*close_input)(void *process, struct cay_error *err);
    int (*resize)(void *process, uint16_t rows, uint16_t columns, struct cay_error *err);
    int (*signal)(void *process, int signal, struct cay_error *err);
    int (*kill)(void *process, struct cay_error *err);
    int (*wait)(void *process, uint64_t timeout_ms, struct cay_exec_result *ret_result,
                struct cay_error *err);
};

extern const struct backend backend_native;

/* CAY_E_UNSUPPORTED: this backend has no such thing. */
int backend_lacks(const struct backend *backend, const char *op, struct cay_error *err);

struct cay_sandbox {
    const struct backend *backend;
    void *cookie;
};

#endif
