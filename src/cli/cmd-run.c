/* SPDX-License-Identifier: Apache-2.0 */
/* cay run, exec and shell: a command in a sandbox. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/hint.h"
#include "cli/signals.h"
#include "cli/stream.h"
#include "json/json.h"

/* A command in a sandbox that the caller waits for. */
struct execute {
    struct call *call;
    struct sandbox_plan plan;
    cay_sandbox *sandbox;
    cay_process *process; /* freed last, by execute_done(): that takes time */
    bool is_fresh;        /* the sandbox is created for this command */
    int signal;           /* afterwards: end by this signal, if not 0 */
};

enum { STATUS_CANNOT_RUN = 126, STATUS_NOT_FOUND = 127 };

static struct hint hint_of(const struct execute *execute)
{
    return (struct hint){execute->sandbox, &execute->plan.exec,
                         execute->is_fresh ? &execute->plan.sandbox : NULL};
}

/* --- The result --- */

static void find_limits(const struct execute *execute, uint64_t *ret_memory,
                        uint32_t *ret_pids)
{
    const struct cay_sandbox_options *wish = &execute->plan.sandbox;
    struct cay_sandbox_info info = {.id = ""};

    if (execute->is_fresh) {
        info.memory_bytes = wish->memory_bytes ? wish->memory_bytes : CAY_MEMORY_DEFAULT;
        info.pids = wish->pids ? wish->pids : CAY_PIDS_DEFAULT;
    } else {
        (void)!cay_sandbox_inspect(execute->sandbox, &info, NULL);
    }
    *ret_memory = info.memory_bytes;
    *ret_pids = info.pids;
}

/* The limits that the command hit. */
static void put_limits(struct json *json, const struct execute *execute,
                       const struct cay_exec_result *result)
{
    uint64_t memory;
    uint32_t pids;

    json_set_uint(json, "memory_kills", result->memory_kills);
    json_set_uint(json, "refused_forks", result->refused_forks);
    if (result->cause != CAY_CAUSE_MEMORY && !result->memory_kills &&
        !result->refused_forks)
        return;
    find_limits(execute, &memory, &pids);
    json_set_uint(json, "memory_limit", memory);
    json_set_uint(json, "pids_limit", pids);
}

static void put_words(struct json *json, const char *key, const char *words)
{
    json_put_key(json, key);
    json_put_bytes(json, words, strlen(words));
}

/* Why the command was not started, or which file it may have missed. */
static void put_reason(struct json *json, const struct execute *execute,
                       const struct cay_exec_result *result)
{
    struct hint hint = hint_of(execute);
    char room[HINT_ROOM];
    bool has_failed = result->cause == CAY_CAUSE_EXITED && result->exit_code != 0;

    if (result->cause == CAY_CAUSE_NOT_STARTED) {
        json_set_int(json, "errno", result->exec_errno);
        json_set_text(json, "message", cay_errno_words(result->exec_errno));
        put_words(json, "subject", execute->plan.exec.argv[0]);
        put_words(json, "hint", hint_program(&hint, result->exec_errno, room));
    } else if (has_failed) {
        const char *word = hint_failure(&hint, result->exit_code, room);
        if (!word)
            return;
        put_words(json, "subject", word);
        put_words(json, "hint", room);
    }
}

static int print_json(const struct execute *execute, const struct cay_exec_result *result,
                      struct cay_error *err)
{
    struct output *output = &execute->call->output;

    struct json *json = output_json(output);
    json_set_text(json, "cause", show_cause(result->cause));
    json_set_int(json, "exit_code", result->exit_code);
    json_set_int(json, "signal", result->signal);
    json_put_key(json, "stdout");
    json_put_bytes(json, result->out, result->out_len);
    json_put_key(json, "stderr");
    json_put_bytes(json, result->error, result->error_len);
    json_set_uint(json, "stdout_dropped", result->out_dropped);
    json_set_uint(json, "stderr_dropped", result->error_dropped);
    json_set_uint(json, "wall_us", result->wall_us);
    json_set_uint(json, "user_us", result->user_us);
    json_set_uint(json, "system_us", result->system_us);
    json_set_uint(json, "peak_memory", result->peak_memory);
    put_limits(json, execute, result);
    put_reason(json, execute, result);
    return output_finish(output, err);
}

/* A limit can also hit a descendant while the command itself continues. */
static void report_limits(const struct execute *execute,
                          const struct cay_exec_result *result)
{
    bool is_killed = result->cause == CAY_CAUSE_MEMORY;
    char room[QUANTITY_ROOM];
    uint64_t memory;
    uint32_t pids;

    if (!is_killed && !result->memory_kills && !result->refused_forks)
        return;
    find_limits(execute, &memory, &pids);
    const char *how =
        execute->is_fresh ? "raise it with" : "create the sandbox with a larger";
    if (is_killed || result->memory_kills)
        fprintf(stderr, "cay: %skilled: memory limit %s (%s -m)\n",
                is_killed ? "" : "note: a process inside was ",
                quantity_bytes(memory, room), how);
    if (result->refused_forks)
        fprintf(stderr,
                "cay: note: a process inside was not started: limit of %u processes (%s "
                "--pids)\n",
                pids, how);
}

static void report_failure(const struct execute *execute,
                           const struct cay_exec_result *result)
{
    struct hint hint = hint_of(execute);
    char room[HINT_ROOM];
    const char *word = hint_failure(&hint, result->exit_code, room);

    if (!word)
        return;
    fputs("cay: note: ", stderr);
    show_name(stderr, word);
    fputs(": ", stderr);
    show_name(stderr, room);
    fputc('\n', stderr);
}

static void report_not_started(const struct execute *execute, int exec_errno)
{
    struct hint hint = hint_of(execute);
    char room[HINT_ROOM];

    fprintf(stderr, "cay: %s: ", cay_code_slug(CAY_E_EXEC_FAILED));
    show_name(stderr, execute->plan.exec.argv[0]);
    fprintf(stderr, ": %s (", cay_errno_words(exec_errno));
    show_name(stderr, hint_program(&hint, exec_errno, room));
    fputs(")\n", stderr);
}

/* Explains an exit status on standard error. */
static void report_text(const struct execute *execute,
                        const struct cay_exec_result *result)
{
    report_limits(execute, result);
    switch (result->cause) {
    case CAY_CAUSE_TIMEOUT:
        fprintf(stderr, "cay: killed: timeout of %llu ms (raise it with --timeout)\n",
                (unsigned long long)execute->plan.exec.timeout_ms);
        break;
    case CAY_CAUSE_GONE:
        fputs("cay: killed: the sandbox ended (its time to live expired, or it was "
              "killed)\n",
              stderr);
        break;
    case CAY_CAUSE_NOT_STARTED:
        report_not_started(execute, result->exec_errno);
        break;
    case CAY_CAUSE_EXITED:
        if (result->exit_code != 0)
            report_failure(execute, result);
        break;
    case CAY_CAUSE_MEMORY:
    case CAY_CAUSE_SIGNALLED:
    case CAY_CAUSE_OUTPUT_LIMIT:
        break;
    }
}

/* --- Running it --- */

static int take_kept(struct tail *kept, struct cay_exec_result *result,
                     struct cay_error *err)
{
    free(result->out);
    free(result->error);
    result->out_dropped = kept[0].dropped;
    result->error_dropped = kept[1].dropped;
    result->out = tail_take(&kept[0], &result->out_len);
    result->error = tail_take(&kept[1], &result->error_len);
    return result->out && result->error ? CAY_OK : cay_fail_memory(err, "cli.execute");
}

static int report(struct execute *execute, struct cay_exec_result *result,
                  struct cay_error *err)
{
    int code = CAY_OK;

    if (execute->call->options.as_json)
        code = print_json(execute, result, err);
    else
        report_text(execute, result);
    return code ? code : result->exit_code;
}

static int execute_not_started(struct execute *execute, struct cay_error *err)
{
    struct cay_exec_result result = {
        .cause = CAY_CAUSE_NOT_STARTED,
        .exec_errno = err->sys_errno,
        .exit_code = err->sys_errno == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN,
    };

    return report(execute, &result, err);
}

static int finish(struct execute *execute, cay_process *process, struct tail *kept,
                  struct cay_error *err)
{
    struct cay_exec_result result;
    int code = cay_process_wait(process, UINT64_MAX, &result, err);

    if (code)
        return code;
    int status = result.exit_code;
    /* A program that handled the signal and exited decides the status. */
    if (result.cause == CAY_CAUSE_EXITED && execute->signal != SIGPIPE)
        execute->signal = 0;
    if (execute->call->options.as_json)
        code = take_kept(kept, &result, err);
    if (!code && !execute->signal)
        status = report(execute, &result, err);
    cay_exec_done(&result);
    return code ? code : status;
}

static int stream_process(struct execute *execute, cay_process *process,
                          struct cay_error *err)
{
    const struct options *options = &execute->call->options;
    struct tail kept[2] = {0};
    struct stream stream = {
        .process = process,
        .passes_input = options->interactive,
        .is_raw = options->interactive && options->tty,
        .kept = options->as_json ? kept : NULL,
    };

    tail_init(&kept[0], CAY_OUTPUT_DEFAULT);
    tail_init(&kept[1], CAY_OUTPUT_DEFAULT);
    int code = stream_run(&stream, err);
    execute->signal = stream.signal;
    if (!code)
        code = finish(execute, process, kept, err);
    tail_done(&kept[0]);
    tail_done(&kept[1]);
    return code;
}

static int execute_wait(struct execute *execute, struct cay_error *err)
{
    struct sandbox_plan *plan = &execute->plan;
    bool is_asked = plan->sandbox.approve || plan->sandbox.from;
    int code = CAY_OK;

    if (execute->is_fresh && !is_asked)
        code = cay_sandbox_run(&plan->sandbox, &plan->exec, &execute->sandbox,
                               &execute->process, err);
    else if (execute->is_fresh)
        code = cay_sandbox_create(&plan->sandbox, &execute->sandbox, err);
    if (!code && !execute->process)
        code =
            sandbox_program.start(execute->sandbox, &plan->exec, &execute->process, err);

    if (execute->is_fresh) /* while the command runs: see cmd-sandbox.c */
        cay_sandbox_tidy();
    if (execute->is_fresh && execute->sandbox && !execute->call->options.quiet)
        hint_level(execute->sandbox, plan->sandbox.require);
    if (!code && execute->is_fresh)
        code = forward_publish(execute->sandbox, &execute->call->options.ports, err);
    if (!code && execute->is_fresh && sandbox_plan_asks_egress(plan))
        code = sandbox_program.watch_egress(execute->sandbox, err);
    if (!code)
        code = stream_process(execute, execute->process, err);
    else if (code == CAY_E_EXEC_FAILED)
        code = execute_not_started(execute, err);
    return code;
}

static void execute_done(struct execute *execute)
{
    cay_process_free(execute->process);
    cay_sandbox_free(execute->sandbox);
}

/* --- run --- */

int run_in_new(struct call *call, plan_adjuster *adjust, void (*after)(void *cookie),
               void *cookie, struct cay_error *err)
{
    struct execute execute = {.call = call, .is_fresh = true};
    struct sandbox_plan *plan = &execute.plan;
    const char *const *argv = call->line.arguments;

    TRY(sandbox_plan(&call->options, call->configured, argv, plan, err));
    int status = adjust ? adjust(plan, cookie, err) : CAY_OK;
    plan->sandbox.ephemeral = true;
    /* A rule that is remembered is for the next run here, too. */
    bool approves = plan->sandbox.approve || sandbox_plan_asks_egress(plan);
    if (approves && !plan->sandbox.approve_scope && !plan->sandbox.name &&
        getcwd(plan->scope, sizeof plan->scope))
        plan->sandbox.approve_scope = plan->scope;
    plan->exec.flags |= CAY_EXEC_LAST;
    signals_catch();
    if (!status)
        status = execute_wait(&execute, err);
    if (execute.sandbox)
        (void)!cay_sandbox_remove(execute.sandbox, NULL);
    execute_done(&execute);
    sandbox_plan_done(plan);
    if (after && status >= 0)
        after(cookie);
    if (execute.signal)
        signals_die(execute.signal);
    return status;
}

int cmd_run(struct call *call, struct cay_error *err)
{
    return run_in_new(call, NULL, NULL, NULL, err);
}

/* --- exec and shell --- */

static int start_detached(struct execute *execute, struct cay_error *err)
{
    struct call *call = execute->call;
    AUTO(cay_process) process = NULL;
    int code =
        sandbox_program.start(execute->sandbox, &execute->plan.exec, &process, err);

    if (code == CAY_E_EXEC_FAILED)
        return execute_not_started(execute, err);
    if (code)
        return code;
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        json_set_int(json, "pid", cay_process_pid(process));
        json_set_text(json, "tag", call->options.tag);
    } else {
        fprintf(call->output.file, "%d\n", cay_process_pid(process));
    }
    code = output_finish(&call->output, err);
    execute->signal = signals_take();
    if (code || execute->signal) /* the caller sees a failure */
        (void)!cay_process_kill(process, NULL);
    return code;
}

static int exec_in(struct execute *execute, const char *const *argv,
                   struct cay_error *err)
{
    const struct call *call = execute->call;
    int status =
        sandbox_plan(&call->options, call->configured, argv, &execute->plan, err);

    if (status)
        return status;
    signals_catch();
    execute->plan.exec.approve = execute->plan.approve;
    status =
        call->options.detach ? start_detached(execute, err) : execute_wait(execute, err);
    sandbox_plan_done(&execute->plan);
    return status;
}

int cmd_exec(struct call *call, struct cay_error *err)
{
    struct execute execute = {.call = call};
    int status = find_sandbox(call->line.arguments[0], &execute.sandbox, err);

    if (!status)
        status = exec_in(&execute, call->line.arguments + 1, err);
    execute_done(&execute);
    if (execute.signal)
        signals_die(execute.signal);
    return status;
}

/* bash if the sandbox has it. */
static const char *choose_shell(const struct execute *execute)
{
    cay_files *files = NULL;
    bool has_bash = true;

    if (cay_sandbox_files(execute->sandbox, execute->call->options.user, &files, NULL) ==
        CAY_OK)
        has_bash = cay_files_exists(files, "/bin/bash", NULL) == 1 ||
                   cay_files_exists(files, "/usr/bin/bash", NULL) == 1;
    cay_files_free(files);
    return has_bash ? "bash" : "sh";
}

int cmd_shell(struct call *call, struct cay_error *err)
{
    struct execute execute = {.call = call};
    const char *argv[] = {NULL, NULL};

    call->options.interactive = call->options.tty = true;
    int status = find_sandbox(call->line.arguments[0], &execute.sandbox, err);
    if (!status)
        status = terminal_require("shell", "cay exec -i ID -- sh reads from a pipe", err);
    if (!status) {
        argv[0] = choose_shell(&execute);
        status = exec_in(&execute, argv, err);
    }
    execute_done(&execute);
    if (execute.signal)
        signals_die(execute.signal);
    return status;
}
