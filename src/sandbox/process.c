/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/error.h"
#include "sandbox/backend.h"

struct cay_process {
    const struct cay_backend *backend; /* one that has processes */
    void *cookie;
};

static int wrap(const struct cay_backend *backend, void *cookie,
                cay_process **ret_process, struct cay_error *err)
{
    cay_process *process = malloc(sizeof *process);

    if (!process) {
        backend->processes->free(cookie);
        return cay_fail_memory(err, "process.open");
    }
    *process = (cay_process){backend, cookie};
    *ret_process = process;
    return CAY_OK;
}

int cay_process_start(cay_sandbox *sandbox, const struct cay_exec_options *options,
                      cay_process **ret_process, struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;
    void *cookie = NULL;

    if (!backend->processes)
        return backend_lacks(backend, "process.start", err);
    int code = backend->processes->start(sandbox->cookie, options, &cookie, err);
    return code ? code : wrap(backend, cookie, ret_process, err);
}

int cay_process_attach(cay_sandbox *sandbox, const char *which, cay_process **ret_process,
                       struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;
    void *cookie = NULL;

    if (!backend->processes || !backend->processes->attach)
        return backend_lacks(backend, "process.attach", err);
    int code = backend->processes->attach(sandbox->cookie, which, &cookie, err);
    return code ? code : wrap(backend, cookie, ret_process, err);
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
