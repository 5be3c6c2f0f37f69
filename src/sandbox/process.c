/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/error.h"
#include "cay/sandbox.h"
#include "sandbox/backend.h"

struct cay_process {
    const struct process_backend *backend;
    void *cookie;
};

static int wrap(const struct process_backend *backend, int code, void *cookie,
                cay_process **ret_process, struct cay_error *err)
{
    if (code)
        return code;
    cay_process *process = malloc(sizeof *process);
    if (!process) {
        backend->free(cookie);
        return cay_fail_memory(err, "process.open");
    }
    *process = (cay_process){backend, cookie};
    *ret_process = process;
    return CAY_OK;
}

int cay_process_start(cay_sandbox *sandbox, const struct cay_exec_options *options,
                      cay_process **ret_process, struct cay_error *err)
{
    const struct process_backend *backend = sandbox->backend->processes;
    void *cookie = NULL;

    if (!backend)
        return backend_lacks(sandbox->backend, "process.start", err);
    int code = backend->start(sandbox->cookie, options, &cookie, err);
    return wrap(backend, code, cookie, ret_process, err);
}

int cay_process_attach(cay_sandbox *sandbox, const char *which, cay_process **ret_process,
                       struct cay_error *err)
{
    const struct process_backend *backend = sandbox->backend->processes;
    void *cookie = NULL;

    if (!backend)
        return backend_lacks(sandbox->backend, "process.attach", err);
    int code = backend->attach(sandbox->cookie, which, &cookie, err);
    return wrap(backend, code, cookie, ret_process, err);
}

int cay_process_list(cay_sandbox *sandbox, struct cay_process_info **ret_infos,
                     size_t *ret_count, struct cay_error *err)
{
    const struct process_backend *backend = sandbox->backend->processes;

    if (!backend)
        return backend_lacks(sandbox->backend, "process.list", err);
    return backend->list(sandbox->cookie, ret_infos, ret_count, err);
}

void cay_process_free(cay_process *process)
{
    if (process)
        process->backend->free(process->cookie);
    free(process);
}

int cay_process_pid(const cay_process *process)
{
    return process->backend->pid(process->cookie);
}

int cay_process_fd(const cay_process *process)
{
    return process->backend->fd(process->cookie);
}

int cay_process_read(cay_process *process, int *ret_stream, void *data, size_t room,
                     size_t *ret_len, uint64_t *ret_dropped, struct cay_error *err)
{
    return process->backend->read(process->cookie, ret_stream, data, room, ret_len,
                                  ret_dropped, err);
}

int cay_process_skip(cay_process *process, struct cay_error *err)
{
    return process->backend->skip(process->cookie, err);
}

int cay_process_write(cay_process *process, const void *data, size_t len,
                      size_t *ret_written, struct cay_error *err)
{
    return process->backend->write(process->cookie, data, len, ret_written, err);
}

int cay_process_close_input(cay_process *process, struct cay_error *err)
{
    return process->backend->close_input(process->cookie, err);
}

int cay_process_resize(cay_process *process, uint16_t rows, uint16_t columns,
                       struct cay_error *err)
{
    return process->backend->resize(process->cookie, rows, columns, err);
}

int cay_process_signal(cay_process *process, int signal, struct cay_error *err)
{
    return process->backend->signal(process->cookie, signal, err);
}

int cay_process_kill(cay_process *process, struct cay_error *err)
{
    return process->backend->kill(process->cookie, err);
}

int cay_process_wait(cay_process *process, uint64_t timeout_ms,
                     struct cay_exec_result *ret_result, struct cay_error *err)
{
    return process->backend->wait(process->cookie, timeout_ms, ret_result, err);
}
