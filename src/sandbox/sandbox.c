/* SPDX-License-Identifier: Apache-2.0 */
#include "cay/sandbox.h"

#include <stdlib.h>

#include "base/error.h"
#include "sandbox/backend.h"

struct cay_sandbox {
    const struct backend *backend;
    void *cookie;
};

static int wrap(const struct backend *backend, int code, void *cookie,
                cay_sandbox **ret_sandbox, struct cay_error *err)
{
    if (code)
        return code;
    cay_sandbox *sandbox = malloc(sizeof *sandbox);
    if (!sandbox) {
        backend->free(cookie);
        return cay_fail_memory(err, "sandbox.open");
    }
    *sandbox = (cay_sandbox){backend, cookie};
    *ret_sandbox = sandbox;
    return CAY_OK;
}

int cay_sandbox_create(const struct cay_sandbox_options *options,
                       cay_sandbox **ret_sandbox, struct cay_error *err)
{
    void *cookie = NULL;
    int code = backend_native.create(options, &cookie, err);

    return wrap(&backend_native, code, cookie, ret_sandbox, err);
}

int cay_sandbox_open(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    void *cookie = NULL;
    int code = backend_native.open(id, &cookie, err);

    return wrap(&backend_native, code, cookie, ret_sandbox, err);
}

void cay_sandbox_free(cay_sandbox *sandbox)
{
    if (sandbox)
        sandbox->backend->free(sandbox->cookie);
    free(sandbox);
}

const char *cay_sandbox_id(const cay_sandbox *sandbox)
{
    return sandbox->backend->id(sandbox->cookie);
}

unsigned cay_sandbox_layers(const cay_sandbox *sandbox)
{
    return sandbox->backend->layers(sandbox->cookie);
}

int cay_sandbox_exec(cay_sandbox *sandbox, const struct cay_exec_options *options,
                     struct cay_exec_result *ret_result, struct cay_error *err)
{
    return sandbox->backend->exec(sandbox->cookie, options, ret_result, err);
}

void cay_exec_done(struct cay_exec_result *result)
{
    free(result->out);
    free(result->error);
    *result = (struct cay_exec_result){0};
}

int cay_sandbox_kill(cay_sandbox *sandbox, struct cay_error *err)
{
    return sandbox->backend->kill(sandbox->cookie, err);
}

int cay_sandbox_collect(size_t *ret_count, struct cay_error *err)
{
    return backend_native.collect(ret_count, err);
}
