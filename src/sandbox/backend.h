/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SANDBOX_BACKEND_H
#define SANDBOX_BACKEND_H

#include "cay/sandbox.h"

/* What runs sandboxes of one kind.  The cookie is the backend's own state for one handle.
 */
struct backend {
    const char *name;
    int (*create)(const struct cay_sandbox_options *options, void **ret_cookie,
                  struct cay_error *err);
    int (*open)(const char *id, void **ret_cookie, struct cay_error *err);
    void (*free)(void *cookie);
    const char *(*id)(const void *cookie);
    unsigned (*layers)(const void *cookie);
    int (*exec)(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err);
    int (*kill)(void *cookie, struct cay_error *err);
    int (*collect)(size_t *ret_count, struct cay_error *err);
};

extern const struct backend backend_native;

#endif
