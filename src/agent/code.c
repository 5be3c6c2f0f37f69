/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/command.h"
#include "agent/language.h"

#include <stdio.h>
#include <string.h>

#include "agent/output.h"
#include "agent/text.h"
#include "base/auto.h"
#include "base/error.h"

static const char op[] = "code.run";

enum { PROBE_MS = 10000 };

/* --- Tracebacks ------------------------------------------------------------------------
 */

enum { LOOKED_AT = 64 << 10 };

static const char file_line[] = "  File \"";

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* "package.Error", alone or followed by ": ". */
static bool names_error(const char *line, size_t len)
{
    size_t at = 0;
    bool begins = true;

    for (; at < len && line[at] != ':'; at++) {
        bool digit = line[at] >= '0' && line[at] <= '9';
        if (line[at] == '.' && !begins)
            begins = true;
        else if (is_letter(line[at]) || (digit && !begins))
            begins = false;
        else
            return false;
    }
    return at > 0 && !begins && (at == len || at + 1 == len || line[at + 1] == ' ');
}

bool code_traceback_error(const char *text, size_t len, char *ret_line, size_t room)
{
    bool in_trace = false, found = false;

    if (len > LOOKED_AT) {
        text += len - LOOKED_AT;
        len = LOOKED_AT;
    }
    while (len) {
        const char *stop = memchr(text, '\n', len);
        size_t line = stop ? (size_t)(stop - text) : len;
        if (line > strlen(file_line) && memcmp(text, file_line, strlen(file_line)) == 0) {
            in_trace = true;
        } else if (in_trace && names_error(text, line)) {
            AUTO_FREE char *decoded = text_decode(text, line, &(size_t){0});
            cay_copy_text(ret_line, room, decoded ? decoded : "");
            found = true;
            in_trace = false;
        }
        text += line + (stop != NULL);
        len -= line + (stop != NULL);
    }
    return found;
}

void cay_code_done(struct cay_code_result *result)
{
    cay_command_done(&result->command);
    *result = (struct cay_code_result){0};
}

/* --- Available languages --------------------------------------------------------------
 */

/* Prints those of its arguments that are installed programs, each between newlines. */
static const char probe[] =
    "echo; for p; do if command -v \"$p\" >/dev/null 2>&1; then echo \"$p\"; fi; done";

/* The first of the language's programs that is installed, or NULL. */
static const char *installed(const struct language *language, const char *programs)
{
    char line[32];

    for (size_t i = 0; i < LANGUAGE_PROGRAMS && language->programs[i]; i++) {
        snprintf(line, sizeof line, "\n%s\n", language->programs[i]);
        if (strstr(programs, line))
            return language->programs[i];
    }
    return NULL;
}

/* Which programs of these languages are installed, each between newlines.  A failure
 * finds none. */
static void find_programs(cay_sandbox *sandbox, const struct language *first,
                          size_t languages_len, const struct cay_command_options *known,
                          struct cay_exec_result *ret_result)
{
    const char *argv[LANGUAGE_COUNT * LANGUAGE_PROGRAMS + 5] = {"sh", "-c", probe, "sh"};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .env = known->env,
                                             .user = known->user,
                                             .timeout_ms = PROBE_MS};
    size_t count = 4;

    for (size_t i = 0; i < languages_len; i++)
        for (size_t k = 0; k < LANGUAGE_PROGRAMS && first[i].programs[k]; k++)
            argv[count++] = first[i].programs[k];
    if (cay_sandbox_exec(sandbox, &options, ret_result, NULL) != CAY_OK)
        *ret_result = (struct cay_exec_result){0};
}

/* "python, bash, sh" */
static void name_languages(cay_sandbox *sandbox, const char *user, struct buf *out)
{
    const struct cay_command_options options = {.user = user};
    struct cay_exec_result result = {0};
    size_t named = 0;

    find_programs(sandbox, language_table, LANGUAGE_COUNT, &options, &result);
    for (size_t i = 0; result.out && i < LANGUAGE_COUNT; i++)
        if (installed(&language_table[i], result.out))
            buf_format(out, "%s%s", named++ ? ", " : "", language_table[i].names[0]);
    cay_exec_done(&result);
}

static int report_unsupported(cay_sandbox *sandbox, const char *language,
                              const char *user, struct cay_code_result *result,
                              struct cay_error *err)
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
             there.len ? there.data : "none that Cay supports");
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

/* Runs the language's line with the first program that is installed: sh is there also if
 * the program is not. */
static int run_line(const struct run *run, const char *file, bool *ret_missing,
                    struct cay_command_result *ret_result, struct cay_error *err)
{
    struct cay_exec_result found = {0};

    find_programs(run->sandbox, run->language, 1, run->options, &found);
    const char *program = found.out ? installed(run->language, found.out) : NULL;
    cay_exec_done(&found);
    if (!program)
        return CAY_OK;
    const char *const argv[] = {"sh", "-c", run->language->line, program, file, NULL};
    const struct command_job job = {
        .sandbox = run->sandbox, .argv = argv, .options = run->options};
    return command_run(&job, ret_missing, ret_result, err);
}

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

    if (language->file)
        code = script_create(run->sandbox, run->options->user, language->file, run->code,
                             run->len, &script, &why);
    *ret_missing = !code;
    if (code && command_blame(&why, ret_result))
        return command_fill(ret_result, err);
    if (code)
        return cay_fail_as(err, code, &why);
    if (language->line)
        return run_line(run, script.path, ret_missing, ret_result, err);
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
    bool understood =
        strcmp(language->names[0], "python") == 0 && command->cause == CAY_CAUSE_EXITED &&
        code_traceback_error(command->error, command->error_len, result->error_value,
                             sizeof result->error_value);
    if (!understood)
        cay_copy_text(result->error_value, sizeof result->error_value, command->message);
}

static int execute(const struct run *run, const char *name,
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
        return report_unsupported(run->sandbox, name, run->options->user, result, err);
    judge(run->language, result);
    return CAY_OK;
}

int cay_code_run(cay_sandbox *sandbox, const char *code, size_t len, const char *language,
                 const struct cay_command_options *options,
                 struct cay_code_result *ret_result, struct cay_error *err)
{
    struct cay_command_options known;
    struct cay_code_result result = {0};

    int failure = command_take_options(options, CAY_COMMAND_CLEAN, op, &known, err);
    if (failure)
        return failure;
    if (!code || !language)
        return cay_fail(err, CAY_E_INVALID, 0, op, code ? "language" : "code",
                        "code or language is missing",
                        "pass both; the code may be empty");
    const struct run run = {.sandbox = sandbox,
                            .language = language_find(language),
                            .code = code,
                            .len = len,
                            .options = &known};
    AUTO_FREE char *name = text_decode(language, strlen(language), &(size_t){0});
    if (!name)
        return cay_fail_memory(err, op);
    cay_copy_text(result.language, sizeof result.language,
                  run.language ? run.language->names[0] : name);
    failure = execute(&run, name, &result, err);
    if (failure)
        cay_code_done(&result);
    else
        *ret_result = result;
    return failure;
}
