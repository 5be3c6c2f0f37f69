/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/output.h"
#include "base/auto.h"
#include "base/error.h"
#include "sandbox/approve.h"

static const char bash_op[] = "command.bash";

const char *const shells[] = {"bash", "sh", NULL};

const char *cay_status_slug(enum cay_status status)
{
    switch (status) {
    case CAY_STATUS_SUCCESS:
        return "success";
    case CAY_STATUS_ERROR:
        return "error";
    case CAY_STATUS_TIMEOUT:
        return "timeout";
    case CAY_STATUS_RUNNING:
        return "running";
    case CAY_STATUS_STOPPED:
        return "stopped";
    }
    return "unknown";
}

void cay_command_done(struct cay_command_result *result)
{
    free(result->out);
    free(result->error);
    free(result->output_dir);
    free(result->out_file);
    free(result->error_file);
    *result = (struct cay_command_result){0};
}

void cay_command_configure(const cay_config *config, struct cay_command_options *options)
{
    if (cay_config_boolean(config, "clean_output"))
        options->flags |= CAY_COMMAND_CLEAN;
    options->threshold_chars =
        (uint32_t)cay_config_integer(config, "output_char_threshold");
    options->head_chars = (uint32_t)cay_config_integer(config, "truncate_head_chars");
    options->tail_chars = (uint32_t)cay_config_integer(config, "truncate_tail_chars");
}

int command_take_options(const struct cay_command_options *options, unsigned allowed,
                         const char *op, struct cay_command_options *ret_known,
                         struct cay_error *err)
{
    int code = cay_take_struct(ret_known, sizeof *ret_known, options, op, err);

    if (code)
        return code;
    if (ret_known->flags & ~allowed)
        return cay_fail(err, CAY_E_INVALID, 0, op, "flags",
                        "unknown flag, or a flag that this call does not support",
                        "supported flags of enum cay_command_flag: 0x%x", allowed);
    if (ret_known->tag && !(ret_known->flags & CAY_COMMAND_BACKGROUND))
        return cay_fail(err, CAY_E_INVALID, 0, op, ret_known->tag,
                        "a tag needs a background command",
                        "leave the tag out, or set CAY_COMMAND_BACKGROUND");
    return CAY_OK;
}

uint64_t command_timeout(const struct cay_command_options *options, uint64_t fallback)
{
    return options->timeout_ms == CAY_TIMEOUT_NONE ? 0
           : options->timeout_ms                   ? options->timeout_ms
                                                   : fallback;
}

int command_fill(struct cay_command_result *result, struct cay_error *err)
{
    if (!result->out)
        result->out = calloc(1, 1);
    if (!result->error)
        result->error = calloc(1, 1);
    return result->out && result->error ? CAY_OK : cay_fail_memory(err, "command.run");
}

/* A result without output: no command ran. */
static int return_message(enum cay_status status, enum cay_cause cause,
                          const char *message, struct cay_command_result *ret_result,
                          struct cay_error *err)
{
    *ret_result =
        (struct cay_command_result){.status = status, .cause = cause, .exit_code = -1};
    cay_copy_text(ret_result->message, sizeof ret_result->message, message);
    int code = command_fill(ret_result, err);
    if (code)
        cay_command_done(ret_result);
    return code;
}

int command_expire(struct cay_command_result *ret_result, struct cay_error *err)
{
    return return_message(CAY_STATUS_TIMEOUT, CAY_CAUSE_TIMEOUT,
                          "Command timed out after 0ms", ret_result, err);
}

/* --- The outcome ----------------------------------------------------------------------
 */

static void report_memory(cay_sandbox *sandbox, struct cay_command_result *result)
{
    struct cay_sandbox_info info;

    if (cay_sandbox_inspect(sandbox, &info, NULL) == CAY_OK && info.memory_bytes)
        snprintf(result->message, sizeof result->message,
                 "Command killed: memory limit of %llu MiB reached",
                 (unsigned long long)(info.memory_bytes >> 20));
    else
        snprintf(result->message, sizeof result->message,
                 "Command killed: memory limit reached");
}

static void report_failure(struct cay_command_result *result)
{
    snprintf(result->message, sizeof result->message, "Command failed with exit code %d",
             result->exit_code);
}

int command_judge(cay_sandbox *sandbox, const struct cay_exec_result *end,
                  uint64_t timeout_ms, const char *program,
                  struct cay_command_result *result, struct cay_error *err)
{
    result->cause = end->cause;
    result->duration_ms = end->wall_us / 1000;
    result->status = CAY_STATUS_ERROR;
    result->exit_code = end->signal ? -end->signal : -1;
    switch (end->cause) {
    case CAY_CAUSE_EXITED:
        result->exit_code = end->exit_code;
        if (end->exit_code == 0)
            result->status = CAY_STATUS_SUCCESS;
        else
            report_failure(result);
        return CAY_OK;
    case CAY_CAUSE_TIMEOUT:
        result->status = CAY_STATUS_TIMEOUT;
        snprintf(result->message, sizeof result->message,
                 "Command timed out after %llums", (unsigned long long)timeout_ms);
        return CAY_OK;
    case CAY_CAUSE_MEMORY:
        report_memory(sandbox, result);
        return CAY_OK;
    case CAY_CAUSE_NOT_STARTED:
        snprintf(result->message, sizeof result->message, "Execution failed: %s: %s",
                 program, cay_errno_words(end->exec_errno));
        return CAY_OK;
    case CAY_CAUSE_GONE:
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, "command.run", NULL,
                        "the sandbox ended while the command ran",
                        "create a new sandbox; check its time to live");
    case CAY_CAUSE_SIGNALLED:
    case CAY_CAUSE_OUTPUT_LIMIT:
        break;
    }
    report_failure(result);
    return CAY_OK;
}

bool command_blame(const struct cay_error *error, struct cay_command_result *result)
{
    static const int codes[] = {CAY_E_NOT_FOUND,   CAY_E_NOT_A_DIRECTORY, CAY_E_DENIED,
                                CAY_E_UNSUPPORTED, CAY_E_INVALID,         CAY_E_LIMIT,
                                CAY_E_EXEC_FAILED};
    bool is_listed = false;

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        is_listed = is_listed || error->code == codes[i];
    /* sandbox.files reports an unknown user. */
    if (!is_listed ||
        (strncmp(error->op, "exec.", 5) != 0 && strcmp(error->op, "sandbox.files") != 0))
        return false;
    result->status = CAY_STATUS_ERROR;
    result->cause = CAY_CAUSE_NOT_STARTED;
    result->exit_code = -1;
    snprintf(result->message, sizeof result->message, "Execution failed: %.200s%s%.240s",
             error->subject, *error->subject ? ": " : "", error->message);
    return true;
}

/* --- Running --------------------------------------------------------------------------
 */

static int run(const struct command_job *job, struct capture *capture, bool *ret_missing,
               struct cay_command_result *result, struct cay_error *err)
{
    const struct cay_command_options *known = job->options;
    const struct cay_exec_options options = {
        .size = sizeof options,
        .argv = job->argv,
        .env = known->env,
        .cwd = known->cwd,
        .user = known->user,
        .input = job->input,
        .input_len = job->input_len,
        .timeout_ms = command_timeout(known, CAY_COMMAND_TIMEOUT_MS),
        .on_output = capture_take,
        .cookie = capture};
    struct cay_exec_result end = {0};
    struct cay_error error = {0};

    int code = cay_sandbox_exec(job->sandbox, &options, &end, &error);
    if (code && command_blame(&error, result))
        return command_fill(result, err);
    if (code)
        return cay_fail_as(err, code, &error);
    *ret_missing = end.cause == CAY_CAUSE_NOT_STARTED && end.exec_errno == ENOENT;
    code = capture->no_memory ? cay_fail_memory(err, "command.run")
                              : command_judge(job->sandbox, &end, options.timeout_ms,
                                              job->argv[0], result, err);
    struct output output = {0};
    if (!code && !*ret_missing)
        code = capture_output(capture, &output, err);
    if (!code && !*ret_missing)
        code = output_show(&output, known, result, err);
    output_done(&output);
    cay_exec_done(&end);
    return code;
}

int command_run(const struct command_job *job, bool *ret_missing,
                struct cay_command_result *ret_result, struct cay_error *err)
{
    struct cay_command_result result = {0};
    struct capture capture;

    *ret_missing = false;
    capture_init(&capture, job->sandbox, job->options->user, job->command);
    int code = run(job, &capture, ret_missing, &result, err);
    capture_done(&capture);
    if (code || *ret_missing)
        cay_command_done(&result);
    else
        *ret_result = result;
    return code;
}

/* --- Shell commands --------------------------------------------------------------------
 */

int command_check_long(cay_sandbox *sandbox, const char *command, struct cay_error *err)
{
    const char *const argv[] = {shells[0], "-c", "--", command, NULL};

    return strlen(command) > COMMAND_ARGUMENT_MAX
               ? approve_refuse_hidden(sandbox, argv, err)
               : CAY_OK;
}

/* `script` is a file with the command; NULL: the command is passed as an argument. */
static int run_shells(cay_sandbox *sandbox, const char *command, const char *script,
                      const struct cay_command_options *options,
                      struct cay_command_result *ret_result, struct cay_error *err)
{
    for (size_t i = 0; shells[i]; i++) {
        /* "--": a command may start with a dash. */
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
    return return_message(CAY_STATUS_ERROR, CAY_CAUSE_NOT_STARTED,
                          "Execution failed: the sandbox has neither bash nor sh",
                          ret_result, err);
}

int cay_bash_run(cay_sandbox *sandbox, const char *command,
                 const struct cay_command_options *options,
                 struct cay_command_result *ret_result, struct cay_error *err)
{
    struct cay_command_options known;
    AUTO_SCRIPT script = {0};

    const unsigned flags = CAY_COMMAND_BACKGROUND | CAY_COMMAND_CLEAN | CAY_COMMAND_KEEP;
    int code = command_take_options(options, flags, bash_op, &known, err);
    if (code)
        return code;
    if (!command)
        return cay_fail(err, CAY_E_INVALID, 0, bash_op, "command", "no command given",
                        "pass a command; it may be empty");
    if (known.timeout_ms == CAY_TIMEOUT_AT_ONCE)
        return command_expire(ret_result, err);
    if (known.flags & CAY_COMMAND_BACKGROUND)
        return background_start(sandbox, command, &known, ret_result, err);
    TRY(command_check_long(sandbox, command, err));
    size_t len = strlen(command);
    if (len > COMMAND_ARGUMENT_MAX)
        code =
            script_create(sandbox, known.user, "command.sh", command, len, &script, err);
    return code ? code
                : run_shells(sandbox, command, script.path, &known, ret_result, err);
}
