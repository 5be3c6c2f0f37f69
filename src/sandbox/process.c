/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/error.h"
#include "sandbox/backend.h"

cay_process *sandbox_process_new(const struct cay_backend *backend, struct cay_error *err)
{
    cay_process *process = malloc(sizeof *process);

    if (process)
        *process = (cay_process){backend, NULL};
    else
        (void)cay_fail_memory(err, "process.open");
    return process;
}

int sandbox_process_finish(cay_process *process, int code, cay_process **ret_process)
{
    if (code)
        free(process);
    else
        *ret_process = process;
    return code;
}

int cay_process_start(cay_sandbox *sandbox, const struct cay_exec_options *options,
                      cay_process **ret_process, struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;

    if (!backend->processes)
        return backend_lacks(backend, "process.start", err);
    cay_process *process = sandbox_process_new(backend, err);
    if (!process)
        return CAY_E_NO_MEMORY;
    int code = backend->processes->start(sandbox->cookie, options, &process->cookie, err);
    return sandbox_process_finish(process, code, ret_process);
}

int cay_process_attach(cay_sandbox *sandbox, const char *which, cay_process **ret_process,
                       struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;

    if (!backend->processes || !backend->processes->attach)
        return backend_lacks(backend, "process.attach", err);
    cay_process *process = sandbox_process_new(backend, err);
    if (!process)
        return CAY_E_NO_MEMORY;
    int code = backend->processes->attach(sandbox->cookie, which, &process->cookie, err);
    return sandbox_process_finish(process, code, ret_process);
}

int cay_process_list(cay_sandbox *sandbox, struct cay_process_info **ret_infos,
                     size_t *ret_count, struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;

    if (!backend->processes || !backend->processes->list)
        return backend_lacks(backend, "process.list", err);
    return backend->processes->list(sandbox->cookie, ret_infos, ret_count, err);
}

void cay_process_free(cay_process *process)
{
    if (process)
        process->backend->processes->free(process->cookie);
    free(process);
}

int cay_process_pid(const cay_process *process)
{
    return process->backend->processes->pid(process->cookie);
}

int cay_process_fd(const cay_process *process)
{
    return process->backend->processes->fd(process->cookie);
}

int cay_process_read(cay_process *process, int *ret_stream, void *data, size_t room,
                     size_t *ret_len, uint64_t *ret_dropped, struct cay_error *err)
{
    return process->backend->processes->read(process->cookie, ret_stream, data, room,
                                             ret_len, ret_dropped, err);
}

int cay_process_skip(cay_process *process, struct cay_error *err)
{
    if (!process->backend->processes->skip)
        return backend_lacks(process->backend, "process.skip", err);
    return process->backend->processes->skip(process->cookie, err);
}

int cay_process_write(cay_process *process, const void *data, size_t len,
                      size_t *ret_written, struct cay_error *err)
{
    if (!process->backend->processes->write)
        return backend_lacks(process->backend, "process.write", err);
    return process->backend->processes->write(process->cookie, data, len, ret_written,
                                              err);
}

int cay_process_close_input(cay_process *process, struct cay_error *err)
{
    if (!process->backend->processes->close_input)
        return backend_lacks(process->backend, "process.input", err);
    return process->backend->processes->close_input(process->cookie, err);
}

int cay_process_resize(cay_process *process, uint16_t rows, uint16_t columns,
                       struct cay_error *err)
{
    if (!process->backend->processes->resize)
        return backend_lacks(process->backend, "process.resize", err);
    return process->backend->processes->resize(process->cookie, rows, columns, err);
}

int cay_process_signal(cay_process *process, int signal, struct cay_error *err)
{
    if (!process->backend->processes->signal)
        return backend_lacks(process->backend, "process.signal", err);
    return process->backend->processes->signal(process->cookie, signal, err);
}

int cay_process_kill(cay_process *process, struct cay_error *err)
{
    return process->backend->processes->kill(process->cookie, err);
}

int cay_process_wait(cay_process *process, uint64_t timeout_ms,
                     struct cay_exec_result *ret_result, struct cay_error *err)
{
    return process->backend->processes->wait(process->cookie, timeout_ms, ret_result,
                                             err);
}
