/* SPDX-License-Identifier: Apache-2.0 */
/* cay run: one command in a fresh sandbox that is gone when the command is. */
#include "cli/cmd-sandbox.h"
#include "cli/execute.h"
#include "cli/signals.h"

int cmd_run(struct sandbox_call *call, struct cay_error *err)
{
    struct execute execute = {.call = call, .is_fresh = true};
    struct sandbox_plan *plan = &execute.plan;
    const char *const *argv = call->line.arguments;

    int status = sandbox_plan(&call->options, call->configured, argv, plan, err);
    if (status)
        return status;
    plan->sandbox.ephemeral = true;
    plan->exec.flags |= CAY_EXEC_LAST;
    signals_catch();
    status = execute_wait(&execute, err);
    if (execute.sandbox)
        (void)!cay_sandbox_remove(execute.sandbox, NULL);
    execute_done(&execute);
    sandbox_plan_done(plan);
    if (execute.signal)
        signals_die(execute.signal);
    return status;
}
