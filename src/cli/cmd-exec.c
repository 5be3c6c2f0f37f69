/* SPDX-License-Identifier: Apache-2.0 */
/* cay exec and cay shell: a command in a sandbox that is there already. */
#include <stdio.h>

#include "cli/cmd-sandbox.h"
#include "cli/execute.h"
#include "cli/find.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "json/json.h"

static int start_detached(struct execute *execute, struct cay_error *err)
{
    struct sandbox_call *call = execute->call;
    cay_process *process = NULL;
    struct json json;
    int code = cay_process_start(execute->sandbox, &execute->plan.exec, &process, err);

    if (code == CAY_E_EXEC_FAILED)
        return execute_not_started(execute, err);
    if (code)
        return code;
    if (call->options.as_json) {
        output_begin_json(&call->output, &json);
        json_set_int(&json, "pid", cay_process_pid(process));
        json_set_text(&json, "tag", call->options.tag);
        output_end_json(&call->output, &json);
    } else {
        fprintf(call->output.file, "%d\n", cay_process_pid(process));
    }
    code = output_finish(&call->output, err);
    if (code) /* to who gave the order it has failed */
        (void)!cay_process_kill(process, NULL);
    cay_process_free(process);
    return code;
}

static int exec_in(struct execute *execute, const char *const *argv,
                   struct cay_error *err)
{
    const struct sandbox_call *call = execute->call;
    int status =
        sandbox_plan(&call->options, call->configured, argv, &execute->plan, err);

    if (status)
        return status;
    if (call->options.detach) {
        status = start_detached(execute, err);
    } else {
        signals_catch();
        status = execute_wait(execute, err);
    }
    sandbox_plan_done(&execute->plan);
    return status;
}

int cmd_exec(struct sandbox_call *call, struct cay_error *err)
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

/* bash where there is one. */
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

int cmd_shell(struct sandbox_call *call, struct cay_error *err)
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
