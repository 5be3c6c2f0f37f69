/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/call.h"

#include <stdio.h>
#include <string.h>

static bool wants_help(const struct call_rules *rules, const struct call *call)
{
    const struct option_rule *rule = rules->grammar->options;

    while (strcmp(rule->name, "help") != 0)
        rule++;
    return *(const bool *)((const char *)call->options + rule->field);
}

static void show_help(const struct call_rules *rules, struct call *call)
{
    FILE *file = call->output.file;
    const struct subcommand *subcommand = call->line.subcommand;

    if (!subcommand)
        fprintf(file, "Usage: %s COMMAND [ARGUMENT]...\n%s\n\n", rules->grammar->program,
                rules->about);
    options_help(file, rules->grammar, subcommand);
    fprintf(file, "%sManual: %s.\n", subcommand ? "\n" : "", rules->manual);
}

static int run_line(const struct call_rules *rules, struct call *call,
                    struct cay_error *err)
{
    int code = CAY_OK;

    if (wants_help(rules, call)) {
        show_help(rules, call);
        return output_finish(&call->output, err);
    }
    code = options_check(rules->grammar, &call->line, err);
    if (!code && rules->prepare)
        code = rules->prepare(call, err);
    if (!code)
        code = rules->run[call->line.subcommand - rules->grammar->subcommands](call, err);
    int finished = output_finish(&call->output, code ? NULL : err);
    return code ? code : finished;
}

int call_run(const struct call_rules *rules, char *const *argv, void *options)
{
    struct call call = {.options = options};
    struct cay_error err = {0};

    int code = output_open(&call.output, &err);
    if (!code)
        code = options_parse(rules->grammar, argv, options, &call.line, &err);
    if (!code)
        code = run_line(rules, &call, &err);
    options_done(&call.line);
    output_close(&call.output);
    return code ? output_error(&err, options_want_json(argv)) : 0;
}
