/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "agent/command.h"
#include "agent/languages.h"
#include "agent/script.h"
#include "agent/text.h"
#include "agent/traceback.h"
#include "base/auto.h"
#include "base/error.h"

static const char op[] = "code.run";

enum { PROBE_MS = 10000 };

void cay_code_done(struct cay_code_result *result)
{
    cay_command_done(&result->command);
    *result = (struct cay_code_result){0};
}

/* --- What there is --------------------------------------------------------------------
 */

/* Tells the names of those of its arguments that are there. */
static const char probe[] =
    "for p; do if command -v \"$p\" >/dev/null 2>&1; then echo \"$p\"; fi; done";

static bool has_line(const char *text, const char *line)
{
    size_t len = strlen(line);

    for (const char *at = strstr(text, line); at; at = strstr(at + 1, line))
        if ((at == text || at[-1] == '\n') && at[len] == '\n')
            return true;
    return false;
}

static bool is_there(const struct language *language, const char *programs)
{
    for (size_t i = 0; i < LANGUAGE_PROGRAMS && language->programs[i]; i++)
        if (has_line(programs, language->programs[i]))
            return true;
    return false;
}

/* "python, bash, sh" */
static void name_languages(cay_sandbox *sandbox, const char *user, struct buf *out)
{
    const char *argv[64] = {"sh", "-c", probe, "sh"};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = user, .timeout_ms = PROBE_MS};
    struct cay_exec_result result = {0};
    size_t count = 4, named = 0;

    for (size_t i = 0; language_at(i); i++)
        for (size_t k = 0; k < LANGUAGE_PROGRAMS && language_at(i)->programs[k]; k++)
            if (count < 63)
                argv[count++] = language_at(i)->programs[k];
    if (cay_sandbox_exec(sandbox, &options, &result, NULL) != CAY_OK)
        return;
    for (size_t i = 0; result.out && language_at(i); i++)
        if (is_there(language_at(i), result.out))
            buf_format(out, "%s%s", named++ ? ", " : "", language_at(i)->name);
    cay_exec_done(&result);
}

static int tell_unsupported(cay_sandbox *sandbox, const char *language, const char *user,
                            struct cay_code_result *result, struct cay_error *err)
{
    char name[64];
    AUTO_BUF there;

    cay_copy_text(name, sizeof name, language);
    buf_init(&there, 1024);
    name_languages(sandbox, user, &there);
    result->status = CAY_STATUS_ERROR;
    result->command = (struct cay_command_result){
        .status = CAY_STATUS_ERROR, .cause = CAY_CAUSE_NOT_STARTED, .exit_code = -1};
    cay_copy_text(result->error_type, sizeof result->error_type, "ValueError");
    snprintf(result->error_value, sizeof result->error_value,
             "Unsupported language: %s. This sandbox has: %s", name,
             there.len ? there.data : "none that is known here");
    cay_copy_text(result->command.message, sizeof result->command.message,
                  result->error_value);
    return command_fill(&result->command, err);
}

/* --- Running --------------------------------------------------------------------------
 */

struct run {
    cay_sandbox *sandbox;
    const struct language *language;
    const char *code;
    size_t len;
    const struct cay_command_options *options;
};

static int run_program(const struct run *run, const char *program, const char *file,
                       bool *ret_missing, struct cay_command_result *ret_result,
                       struct cay_error *err)
{
    const char *argv[LANGUAGE_ARGUMENTS + 3] = {program};
    size_t count = 1;

    for (size_t i = 0; i < LANGUAGE_ARGUMENTS && run->language->arguments[i]; i++)
        argv[count++] = run->language->arguments[i];
    if (file)
        argv[count++] = file;
    const struct command_job job = {.sandbox = run->sandbox,
                                    .argv = argv,
                                    .input = file ? NULL : run->code,
                                    .input_len = file ? 0 : run->len,
                                    .options = run->options};
    return command_run(&job, ret_missing, ret_result, err);
}

static int run_code(const struct run *run, bool *ret_missing,
                    struct cay_command_result *ret_result, struct cay_error *err)
{
    const struct language *language = run->language;
    struct cay_error why = {0};
    AUTO_SCRIPT script = {0};
    int code = CAY_OK;

    if (language->way == LANGUAGE_FILE)
        code = script_make(run->sandbox, run->options->user, language->file, run->code,
                           run->len, &script, &why);
    *ret_missing = !code;
    if (code && command_blame(&why, ret_result))
        return command_fill(ret_result, err);
    if (code && err)
        *err = why;
    for (size_t i = 0; i < LANGUAGE_PROGRAMS && language->programs[i]; i++)
        if (!code && *ret_missing)
            code = run_program(run, language->programs[i], script.path, ret_missing,
                               ret_result, err);
    return code;
}

static void judge(const struct language *language, struct cay_code_result *result)
{
    const struct cay_command_result *command = &result->command;

    result->status = command->status;
    if (command->status == CAY_STATUS_SUCCESS)
        return;
    cay_copy_text(result->error_type, sizeof result->error_type, "ExecutionError");
    bool understood = language->is_python && command->cause == CAY_CAUSE_EXITED &&
                      traceback_error(command->error, command->error_len,
                                      result->error_value, sizeof result->error_value);
    if (!understood)
        cay_copy_text(result->error_value, sizeof result->error_value, command->message);
}

static int execute(const struct run *run, const char *asked,
                   struct cay_code_result *result, struct cay_error *err)
{
    bool missing = true;
    int code = CAY_OK;

    if (run->options->timeout_ms == CAY_TIMEOUT_AT_ONCE && run->language) {
        missing = false;
        code = command_expire(&result->command, err);
    } else if (run->language) {
        code = run_code(run, &missing, &result->command, err);
    }
    if (code)
        return code;
    if (missing)
        return tell_unsupported(run->sandbox, asked, run->options->user, result, err);
    judge(run->language, result);
    return CAY_OK;
}

int cay_execute_code(cay_sandbox *sandbox, const char *code, size_t len,
                     const char *language, const struct cay_command_options *options,
                     struct cay_code_result *ret_result, struct cay_error *err)
{
    struct cay_command_options known;
    struct cay_code_result result = {0};

    int failure = command_take_options(options, CAY_COMMAND_CLEAN, op, &known, err);
    if (failure)
        return failure;
    if (!code || !language)
        return cay_fail(err, CAY_E_INVALID, 0, op, code ? "language" : "code",
                        "there is no code, or no language",
                        "give both; the code may be empty");
    const struct run run = {.sandbox = sandbox,
                            .language = language_find(language),
                            .code = code,
                            .len = len,
                            .options = &known};
    AUTO_FREE char *asked = text_decode(language, strlen(language), &(size_t){0});
    if (!asked)
        return cay_fail_memory(err, op);
    cay_copy_text(result.language, sizeof result.language,
                  run.language ? run.language->name : asked);
    failure = execute(&run, asked, &result, err);
    if (failure)
        cay_code_done(&result);
    else
        *ret_result = result;
    return failure;
}
