/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/backend.h"

#include <stdlib.h>

#include "base/error.h"

int backend_lacks(const struct cay_backend *backend, const char *op,
                  struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, backend->name,
                    "this kind of sandbox cannot do that",
                    "use another backend for it: native can");
}

int sandbox_wrap(const struct cay_backend *backend, void *cookie,
                 cay_sandbox **ret_sandbox, struct cay_error *err)
{
    cay_sandbox *sandbox = malloc(sizeof *sandbox);

    if (!sandbox) {
        backend->free(cookie);
        return cay_fail_memory(err, "sandbox.open");
    }
    *sandbox = (cay_sandbox){backend, cookie};
    *ret_sandbox = sandbox;
    return CAY_OK;
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
    return sandbox->backend->layers ? sandbox->backend->layers(sandbox->cookie) : 0;
}

const struct cay_backend *cay_sandbox_backend(const cay_sandbox *sandbox)
{
    return sandbox->backend;
}

int cay_sandbox_state(cay_sandbox *sandbox, enum cay_state *ret_state,
                      struct cay_error *err)
{
    return sandbox->backend->state(sandbox->cookie, ret_state, err);
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

const char *cay_layer_slug(unsigned layer)
{
    static const char *const slugs[] = {"user", "pid",    "mount",   "network",  "ipc",
                                        "uts",  "cgroup", "seccomp", "landlock", "memory",
                                        "pids", "cpu",    "disk"};

    for (size_t i = 0; i < sizeof slugs / sizeof *slugs; i++)
        if (layer == 1u << i)
            return slugs[i];
    return NULL;
}

const char *cay_rung_slug(enum cay_rung rung)
{
    static const char *const slugs[] = {"best",   "root",     "range",
                                        "single", "landlock", "none"};

    return (unsigned)rung < sizeof slugs / sizeof *slugs ? slugs[rung] : "unknown";
}

int cay_sandbox_inspect(cay_sandbox *sandbox, struct cay_sandbox_info *ret_info,
                        struct cay_error *err)
{
    if (!sandbox->backend->inspect)
        return backend_lacks(sandbox->backend, "sandbox.inspect", err);
    return sandbox->backend->inspect(sandbox->cookie, ret_info, err);
}

int cay_sandbox_pause(cay_sandbox *sandbox, struct cay_error *err)
{
    if (!sandbox->backend->pause)
        return backend_lacks(sandbox->backend, "sandbox.pause", err);
    return sandbox->backend->pause(sandbox->cookie, err);
}

int cay_sandbox_resume(cay_sandbox *sandbox, struct cay_error *err)
{
    if (!sandbox->backend->resume)
        return backend_lacks(sandbox->backend, "sandbox.resume", err);
    return sandbox->backend->resume(sandbox->cookie, err);
}

int cay_sandbox_set_ttl(cay_sandbox *sandbox, uint64_t ttl_ms, struct cay_error *err)
{
    if (!sandbox->backend->set_ttl)
        return backend_lacks(sandbox->backend, "sandbox.ttl", err);
    return sandbox->backend->set_ttl(sandbox->cookie, ttl_ms, err);
}

int cay_sandbox_start(cay_sandbox *sandbox, struct cay_error *err)
{
    if (!sandbox->backend->start)
        return backend_lacks(sandbox->backend, "sandbox.start", err);
    return sandbox->backend->start(sandbox->cookie, err);
}

int cay_sandbox_remove(cay_sandbox *sandbox, struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;

    return (backend->remove ? backend->remove : backend->kill)(sandbox->cookie, err);
}

int cay_sandbox_dial(cay_sandbox *sandbox, uint16_t port, int *ret_fd,
                     struct cay_error *err)
{
    if (!sandbox->backend->dial)
        return backend_lacks(sandbox->backend, "sandbox.dial", err);
    return sandbox->backend->dial(sandbox->cookie, port, ret_fd, err);
}

int cay_sandbox_files(cay_sandbox *sandbox, const char *user, cay_files **ret_files,
                      struct cay_error *err)
{
    if (!sandbox->backend->open_files)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "sandbox.files",
                        sandbox->backend->name,
                        "files of this kind of sandbox have no handle",
                        "use the functions of cay/agent.h: cay_read_file() and others");
    return sandbox->backend->open_files(sandbox->cookie, user, ret_files, err);
}
