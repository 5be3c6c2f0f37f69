/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd-sandbox.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* What a shell expects of a program that runs another one and fails itself. */
enum { STATUS_OURS = 125 };

static int show_help(struct sandbox_call *call, size_t command, struct cay_error *err)
{
    FILE *file = call->output.file;

    options_help(file, &sandbox_grammar, call->line.subcommand);
    fputs(command == SANDBOX_RUN || command == SANDBOX_EXEC
              ? "\nExit status 124: timeout, 125: cay, 126/127: not run.  "
              : "\n",
          file);
    fprintf(file, "Manual: %s(1).\n", sandbox_program.commands[command].manual);
    return output_finish(&call->output, err);
}

/* Removes what sandboxes and callers that crashed have left, before the commands that
 * would show it.  A run does it while its command starts; the others at most once a
 * second. */
static void collect_for(size_t command)
{
    size_t collected;

    switch (command) {
    case SANDBOX_RUN:
    case SANDBOX_GC:
    case SANDBOX_DOCTOR:
        return;
    case SANDBOX_CREATE:
    case SANDBOX_LS:
    case SANDBOX_INSPECT:
    case SANDBOX_START:
    case SANDBOX_KILL:
    case SANDBOX_RM:
        (void)!cay_sandbox_collect(&collected, NULL);
        return;
    default:
        cay_sandbox_tidy();
    }
}

static int run_line(struct sandbox_call *call, size_t command, struct cay_error *err)
{
    if (call->options.help)
        return show_help(call, command, err);
    int code = options_check(&sandbox_grammar, &call->line, err);
    if (!code && call->options.config)
        code = sandbox_program.configure(call, err);
    if (code)
        return code;
    collect_for(command);
    int status = sandbox_program.commands[command].run(call, err);
    if (status < 0)
        return status;
    code = output_finish(&call->output, err);
    return code ? code : status;
}

static size_t find_command(const char *name)
{
    size_t command = 0;

    while (strcmp(name, sandbox_grammar.subcommands[command].name) != 0)
        command++;
    return command;
}

int cmd_sandbox(char *const *argv)
{
    struct sandbox_call call = {.options = {.network = -1, .storage = -1}};
    struct cay_error err = {0};
    bool as_json = options_want_json(argv);
    size_t command = find_command(argv[0]);

    int status = output_open(&call.output, &err);
    if (!status)
        status = options_parse(&sandbox_grammar, argv, &call.options, &call.line, &err);
    if (!status) {
        as_json = call.options.as_json;
        status = run_line(&call, command, &err);
    }
    options_done(&call.line);
    if (call.config)
        sandbox_program.release(&call);
    output_close(&call.output);
    if (status >= 0)
        return status;
    status = output_error(&err, as_json);
    bool runs_other =
        command == SANDBOX_RUN || command == SANDBOX_EXEC || command == SANDBOX_SHELL;
    return runs_other ? STATUS_OURS : status;
}
