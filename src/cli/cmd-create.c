/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/hint.h"
#include "cli/signals.h"
#include "json/json.h"

static int tell(struct sandbox_call *call, const cay_sandbox *sandbox,
                struct cay_error *err)
{
    struct json json;

    if (call->options.as_json) {
        output_begin_json(&call->output, &json);
        json_set_text(&json, "id", cay_sandbox_id(sandbox));
        output_end_json(&call->output, &json);
    } else {
        fprintf(call->output.file, "%s\n", cay_sandbox_id(sandbox));
    }
    return output_finish(&call->output, err);
}

int cmd_create(struct sandbox_call *call, struct cay_error *err)
{
    struct sandbox_plan plan;
    cay_sandbox *sandbox = NULL;
    int code = sandbox_plan(&call->options, call->configured, NULL, &plan, err);

    if (!code && plan.sandbox.ephemeral)
        code = cay_fail(err, CAY_E_INVALID, 0, "cli.create", call->options.config,
                        "an ephemeral sandbox would end with this command",
                        "leave ephemeral out, or use cay run");
    if (code) {
        sandbox_plan_done(&plan);
        return code;
    }
    signals_catch();
    code = cay_sandbox_create(&plan.sandbox, &sandbox, err);
    if (!code && !call->options.quiet)
        hint_level(sandbox, plan.sandbox.require);
    if (!code)
        code = tell(call, sandbox, err);
    /* Nobody would know of one whose id was not told. */
    int signal = signals_take();
    if (sandbox && (code || signal))
        (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    sandbox_plan_done(&plan);
    if (signal)
        signals_die(signal);
    return code;
}
