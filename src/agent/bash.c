/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "agent/background.h"
#include "agent/command.h"
#include "agent/script.h"
#include "base/error.h"

static const char op[] = "command.bash";

static int fail_no_shell(struct cay_command_result *ret_result, struct cay_error *err)
{
    *ret_result = (struct cay_command_result){
        .status = CAY_STATUS_ERROR,
        .cause = CAY_CAUSE_NOT_STARTED,
        .exit_code = -1,
        .message = "Execution failed: there is neither bash nor sh in the sandbox"};
    int code = command_fill(ret_result, err);
    if (code)
        cay_command_done(ret_result);
    return code;
}

/* `script` is the file that has the command; NULL: the command is an argument. */
static int run_shells(cay_sandbox *sandbox, const char *command, const char *script,
                      const struct cay_command_options *options,
                      struct cay_command_result *ret_result, struct cay_error *err)
{
    for (size_t i = 0; shells[i]; i++) {
        /* Without "--" a command that starts with a dash would be an option. */
        const char *const by_argument[] = {shells[i], "-c", "--", command, NULL};
        const char *const by_file[] = {shells[i], "--", script, NULL};
        const struct command_job job = {.sandbox = sandbox,
                                        .argv = script ? by_file : by_argument,
                                        .command = command,
                                        .options = options};
        bool missing;
        int code = command_run(&job, &missing, ret_result, err);
        if (code || !missing)
            return code;
    }
    return fail_no_shell(ret_result, err);
}

static int run_foreground(cay_sandbox *sandbox, const char *command,
                          const struct cay_command_options *options,
                          struct cay_command_result *ret_result, struct cay_error *err)
{
    size_t len = strlen(command);
    AUTO_SCRIPT script = {0};

    if (len <= COMMAND_ARGUMENT_MAX)
        return run_shells(sandbox, command, NULL, options, ret_result, err);
    int code =
        script_make(sandbox, options->user, "command.sh", command, len, &script, err);
    return code ? code
                : run_shells(sandbox, command, script.path, options, ret_result, err);
}

int cay_execute_bash(cay_sandbox *sandbox, const char *command,
                     const struct cay_command_options *options,
                     struct cay_command_result *ret_result, struct cay_error *err)
{
    struct cay_command_options known;

    const unsigned flags = CAY_COMMAND_BACKGROUND | CAY_COMMAND_CLEAN | CAY_COMMAND_KEEP;
    int code = command_take_options(options, flags, op, &known, err);
    if (code)
        return code;
    if (!command)
        return cay_fail(err, CAY_E_INVALID, 0, op, "command", "there is no command",
                        "give one, if only an empty one");
    if (known.timeout_ms == CAY_TIMEOUT_AT_ONCE)
        return command_expire(ret_result, err);
    return known.flags & CAY_COMMAND_BACKGROUND
               ? background_start(sandbox, command, &known, ret_result, err)
               : run_foreground(sandbox, command, &known, ret_result, err);
}
