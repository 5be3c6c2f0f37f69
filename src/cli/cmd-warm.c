/* SPDX-License-Identifier: Apache-2.0 */
/* cay warm: interpreters that are saved for the next sandboxes; cay ls --all lists them.
 */
#include <stddef.h>

#include "base/error.h"
#include "cay/code.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/scope.h"

enum { CREATE, RM, COMMANDS };

static const char op[] = "cli.warm";

static int create(struct call *call, struct cay_error *err)
{
    struct sandbox_plan plan;
    int code = sandbox_plan(&call->options, NULL, NULL, &plan, err);

    scope_join();
    if (!code)
        code = cay_warm_create(plan.sandbox.template_name, call->options.preload, err);
    sandbox_plan_done(&plan);
    return code;
}

static int remove_one(struct call *call, const char *id, struct json *json,
                      struct cay_error *err)
{
    (void)call;
    (void)json;
    return cay_warm_remove(id, err);
}

static int remove_each(struct call *call, struct cay_error *err)
{
    if (!call->options.all == !call->line.count)
        return cay_fail(err, CAY_E_INVALID, 0, op, "rm",
                        call->line.count ? "both --all and an interpreter given"
                                         : "no interpreter given",
                        "pass an ID of cay ls --all, or --all");
    if (call->options.all)
        return cay_warm_remove(NULL, err);
    return call_each(call, call->line.arguments, call->line.count, remove_one, NULL, err);
}

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const struct subcommand subcommands[] = {
    [CREATE] = {"create", "", "Save an interpreter now", 0, 0, create},
    [RM] = {"rm", "ID...", "Remove saved interpreters", 0, UINT32_MAX, remove_each},
};

static const struct option_rule option_rules[] = {
    {"template", 0, OPTION_TEXT, BIT(CREATE), FIELD(template_name), "NAME|DIR",
     "root file system (default: host)"},
    {"preload", 0, OPTION_TEXT, BIT(CREATE), FIELD(preload), "MODULES",
     "modules to import: numpy,pandas, ..."},
    {"all", 0, OPTION_FLAG, BIT(RM), FIELD(all), NULL, "all of them"},
    OPTIONS_HELP("show this help"),
};

const struct grammar warm_grammar = {
    .program = "cay warm",
    .usage = "COMMAND [ARGUMENT]...\n"
             "Save interpreters that new sandboxes start from.",
    .manual = "Manual: cay-code(1).",
    .subcommands = subcommands,
    .subcommand_count = COMMANDS,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};
