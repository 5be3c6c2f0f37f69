/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/error.h"
#include "sandbox/approve.h"
#include "sandbox/backend.h"

int backend_lacks(const struct cay_backend *backend, const char *op,
                  struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, backend->name,
                    "this backend does not support the operation",
                    "use another backend: native supports it");
}

cay_sandbox *sandbox_new(const struct cay_backend *backend, struct cay_error *err)
{
    cay_sandbox *sandbox = malloc(sizeof *sandbox);

    if (sandbox)
        *sandbox = (cay_sandbox){backend, NULL};
    else
        (void)cay_fail_memory(err, "sandbox.open");
    return sandbox;
}

int sandbox_finish(cay_sandbox *sandbox, int code, cay_sandbox **ret_sandbox)
{
    if (code)
        free(sandbox);
    else
        *ret_sandbox = sandbox;
    return code;
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

int sandbox_before_command(cay_sandbox *sandbox, struct cay_error *err)
{
    const struct cay_checkpoint_options options = {.size = sizeof options,
                                                   .cause = "command"};
    const struct cay_backend *backend = sandbox->backend;
    struct cay_checkpoint checkpoint;

    return backend->checkpoint && backend->checkpoint_each &&
                   backend->checkpoint_each(sandbox->cookie)
               ? backend->checkpoint(sandbox->cookie, &options, &checkpoint, err)
               : CAY_OK;
}

static int before_command(cay_sandbox *sandbox, const struct cay_exec_options *options,
                          struct cay_error *err)
{
    AUTO_APPROVE command = {.is_needed = false};

    TRY(approve_look(sandbox, options, &command, err));
    if (command.is_needed)
        TRY(approve_await(sandbox, &command, err));
    return sandbox_before_command(sandbox, err);
}

int cay_sandbox_exec(cay_sandbox *sandbox, const struct cay_exec_options *options,
                     struct cay_exec_result *ret_result, struct cay_error *err)
{
    TRY(before_command(sandbox, options, err));
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

const char *cay_level_slug(enum cay_level level)
{
    static const char *const slugs[] = {"best",   "root",     "range",
                                        "single", "landlock", "none"};

    return (unsigned)level < sizeof slugs / sizeof *slugs ? slugs[level] : "unknown";
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

int cay_sandbox_get_network(cay_sandbox *sandbox, cay_policy **ret_policy,
                            struct cay_error *err)
{
    if (!sandbox->backend->get_network)
        return backend_lacks(sandbox->backend, "sandbox.network", err);
    return sandbox->backend->get_network(sandbox->cookie, ret_policy, err);
}

int cay_sandbox_change_network(cay_sandbox *sandbox,
                               const struct cay_network_config *config, bool replace,
                               struct cay_error *err)
{
    if (!sandbox->backend->change_network)
        return backend_lacks(sandbox->backend, "sandbox.network", err);
    return sandbox->backend->change_network(sandbox->cookie, config, replace, err);
}

int cay_sandbox_count_network(cay_sandbox *sandbox, struct cay_network_counts *ret_counts,
                              struct cay_error *err)
{
    if (!sandbox->backend->count_network)
        return backend_lacks(sandbox->backend, "sandbox.network", err);
    return sandbox->backend->count_network(sandbox->cookie, ret_counts, err);
}

int cay_sandbox_network_events(cay_sandbox *sandbox, uint64_t after,
                               struct cay_network_event **ret_events, size_t *ret_count,
                               struct cay_error *err)
{
    if (!sandbox->backend->network_events)
        return backend_lacks(sandbox->backend, "sandbox.events", err);
    return sandbox->backend->network_events(sandbox->cookie, after, ret_events, ret_count,
                                            err);
}

int cay_sandbox_checkpoint(cay_sandbox *sandbox,
                           const struct cay_checkpoint_options *options,
                           struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    static const struct cay_checkpoint_options usual = {.size = sizeof usual};
    struct cay_checkpoint_options known;

    if (!sandbox->backend->checkpoint)
        return backend_lacks(sandbox->backend, "sandbox.checkpoint", err);
    TRY(cay_take_struct(&known, sizeof known, options ? options : &usual,
                        "sandbox.checkpoint", err));
    return sandbox->backend->checkpoint(sandbox->cookie, &known, ret_checkpoint, err);
}

int cay_sandbox_rollback_with(cay_sandbox *sandbox, const char *which,
                              const struct cay_rollback_options *options,
                              struct cay_rollback *ret_rollback, struct cay_error *err)
{
    static const struct cay_rollback_options usual = {.size = sizeof usual};
    struct cay_rollback_options known;

    *ret_rollback = (struct cay_rollback){.ended = NULL};
    if (!sandbox->backend->rollback)
        return backend_lacks(sandbox->backend, "sandbox.rollback", err);
    TRY(cay_take_struct(&known, sizeof known, options ? options : &usual,
                        "sandbox.rollback", err));
    return sandbox->backend->rollback(sandbox->cookie, which, &known, ret_rollback, err);
}

int cay_sandbox_rollback(cay_sandbox *sandbox, const char *which,
                         struct cay_checkpoint *ret_undone, struct cay_error *err)
{
    struct cay_rollback rollback;
    int code = cay_sandbox_rollback_with(sandbox, which, NULL, &rollback, err);

    *ret_undone = rollback.undone;
    free(rollback.ended);
    return code;
}

int cay_sandbox_remove_checkpoint(cay_sandbox *sandbox, const char *which,
                                  uint64_t *ret_freed, struct cay_error *err)
{
    uint64_t freed = 0;

    if (!sandbox->backend->remove_checkpoint)
        return backend_lacks(sandbox->backend, "sandbox.checkpoint", err);
    int code = sandbox->backend->remove_checkpoint(sandbox->cookie, which, &freed, err);
    if (ret_freed)
        *ret_freed = freed;
    return code;
}

int cay_sandbox_checkpoints(cay_sandbox *sandbox, struct cay_checkpoint **ret_list,
                            size_t *ret_count, struct cay_error *err)
{
    if (!sandbox->backend->checkpoints)
        return backend_lacks(sandbox->backend, "sandbox.checkpoints", err);
    return sandbox->backend->checkpoints(sandbox->cookie, ret_list, ret_count, err);
}

int cay_sandbox_files(cay_sandbox *sandbox, const char *user, cay_files **ret_files,
                      struct cay_error *err)
{
    if (!sandbox->backend->open_files)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "sandbox.files",
                        sandbox->backend->name, "this backend has no file handles",
                        "use the functions of cay/agent.h: cay_file_read() and others");
    return sandbox->backend->open_files(sandbox->cookie, user, ret_files, err);
}

/* --- Processes --- */

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
    int code = before_command(sandbox, options, err);
    if (!code)
        code = backend->processes->start(sandbox->cookie, options, &process->cookie, err);
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
