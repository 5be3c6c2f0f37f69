/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes of a configuration: found in the registry, created by the backend. */
#include "base/error.h"
#include "sandbox/backend.h"

/* A parsed configuration always has a type. */
static int find_for(const cay_config *config, const char *op,
                    const struct cay_backend **ret_backend, struct cay_error *err)
{
    const char *type = cay_config_type(config);

    *ret_backend = cay_backend_find(type);
    if (*ret_backend)
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, type, "unknown backend",
                    "register it, or set `library:`");
}

/* A handle for a sandbox of the configuration, to be filled in by its backend. */
static int begin(const cay_config *config, const char *op, cay_sandbox **ret_sandbox,
                 struct cay_error *err)
{
    const struct cay_backend *backend;
    int code = find_for(config, op, &backend, err);

    if (code)
        return code;
    *ret_sandbox = sandbox_new(backend, err);
    return *ret_sandbox ? CAY_OK : CAY_E_NO_MEMORY;
}

int sandbox_create_marked(const cay_config *config, const char *mark, const char *pool,
                          cay_sandbox **ret_sandbox, struct cay_error *err)
{
    cay_sandbox *sandbox = NULL;
    int code = begin(config, "backend.create", &sandbox, err);

    if (code)
        return code;
    const struct cay_backend *backend = sandbox->backend;
    if (pool && backend->create_pooled)
        code = backend->create_pooled(backend->data, config, mark, pool, &sandbox->cookie,
                                      err);
    else if (mark && backend->create_marked)
        code = backend->create_marked(backend->data, config, mark, &sandbox->cookie, err);
    else
        code = backend->create(backend->data, config, &sandbox->cookie, err);
    return sandbox_finish(sandbox, code, ret_sandbox);
}

int sandbox_find_marked(const cay_config *config, const char *mark,
                        cay_sandbox **ret_sandbox, struct cay_error *err)
{
    static const char op[] = "backend.find";
    cay_sandbox *sandbox = NULL;
    int code = begin(config, op, &sandbox, err);

    if (code)
        return code;
    const struct cay_backend *backend = sandbox->backend;
    code = backend->find_marked
               ? backend->find_marked(backend->data, config, mark, &sandbox->cookie, err)
               : backend_lacks(backend, op, err);
    return sandbox_finish(sandbox, code, ret_sandbox);
}

int cay_backend_create(const cay_config *config, cay_sandbox **ret_sandbox,
                       struct cay_error *err)
{
    return sandbox_create_marked(config, NULL, NULL, ret_sandbox, err);
}

int cay_backend_check(const cay_config *config, struct cay_error *err)
{
    const struct cay_backend *backend;
    int code = find_for(config, "backend.check", &backend, err);

    return code || !backend->check ? code : backend->check(backend->data, config, err);
}

int cay_backend_connect(const cay_config *config, const char *id,
                        cay_sandbox **ret_sandbox, struct cay_error *err)
{
    cay_sandbox *sandbox = NULL;
    int code = begin(config, "backend.connect", &sandbox, err);

    if (code)
        return code;
    const struct cay_backend *backend = sandbox->backend;
    code = backend->connect(backend->data, config, id, &sandbox->cookie, err);
    return sandbox_finish(sandbox, code, ret_sandbox);
}
