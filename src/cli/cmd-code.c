/* SPDX-License-Identifier: Apache-2.0 */
/* cay code and cay context: code in interpreters that keep their variables. */
#include <nettle/base64.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/nearest.h"
#include "cay/agent.h"
#include "cay/code.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/input.h"
#include "cli/local-file.h"
#include "cli/scope.h"
#include "json/json.h"

enum { CODE_MAX = 16 << 20, LANGUAGES_MAX = 64, STATUS_ERROR = 1, STATUS_TIMEOUT = 124 };

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const char op[] = "cli.code";

/* --- What an execution gives --- */

struct printer {
    struct call *call;
    unsigned saved; /* files */
    int failure;    /* of saving one */
    struct cay_error *err;
};

static int print_text(void *cookie, int stream, const char *text, size_t len,
                      int64_t time_ns)
{
    const struct printer *printer = cookie;
    FILE *file = stream == 1 ? printer->call->output.file : stderr;

    (void)time_ns;
    if (stream == 2) /* in order with what was printed before */
        (void)fflush(printer->call->output.file);
    (void)!fwrite(text, 1, len, file);
    return fflush(file) != 0;
}

/* "image/svg+xml" is "svg". */
static const char *suffix_of(const char *mime)
{
    static const char *const known[][2] = {
        {"image/png", "png"},     {"image/jpeg", "jpg"},      {"image/gif", "gif"},
        {"image/svg+xml", "svg"}, {"application/pdf", "pdf"}, {"text/html", "html"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i][0], mime) == 0)
            return known[i][1];
    return NULL;
}

/* Pictures and documents, which a terminal does not show. */
static bool is_picture(const struct cay_code_part *part)
{
    return suffix_of(part->mime) && strcmp(part->mime, "text/html") != 0;
}

static int save(struct printer *printer, const struct cay_code_part *part,
                struct cay_error *err)
{
    AUTO_LOCAL_FILE file = LOCAL_FILE_NONE;
    char path[PATH_MAX];

    int len = snprintf(path, sizeof path, "%s/%u.%s", printer->call->options.save,
                       ++printer->saved, suffix_of(part->mime));
    if (len < 0 || (size_t)len >= sizeof path)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--save", "the path is too long",
                        "use a shorter one");
    TRY(local_file_create(path, 0666, &file, err));
    int error = output_write(file.fd, part->data, part->len);
    if (error)
        return cay_fail_errno(err, error, op, path);
    TRY(local_file_commit(&file, path, err));
    fprintf(printer->call->output.file, "[%s: %s]\n", part->mime, path);
    return CAY_OK;
}

static bool print_picture(struct printer *printer, const struct cay_code_part *part)
{
    char room[QUANTITY_ROOM];

    if (printer->call->options.save)
        printer->failure = save(printer, part, printer->err);
    else
        fprintf(printer->call->output.file, "[%s, %s]\n", part->mime,
                quantity_bytes(part->len, room));
    return printer->failure != CAY_OK;
}

static int print_value(void *cookie, const struct cay_code_value *value)
{
    struct printer *printer = cookie;
    const struct cay_code_part *text = NULL;
    bool has_picture = false, failed = false;

    for (size_t i = 0; i < value->part_count; i++) {
        const struct cay_code_part *part = &value->parts[i];
        if (is_picture(part) && !has_picture) { /* one of its forms is enough */
            has_picture = true;
            failed = print_picture(printer, part);
        }
        if (strcmp(part->mime, "text/plain") == 0)
            text = part;
    }
    if (text && !has_picture) {
        (void)!fwrite(text->data, 1, text->len, printer->call->output.file);
        fputc('\n', printer->call->output.file);
    }
    return failed || fflush(printer->call->output.file) != 0;
}

/* --- JSON --- */

static void put_part(struct json *json, const struct cay_code_part *part)
{
    json_put_key(json, part->mime);
    if (part->is_json) {
        json_put_raw(json, part->data);
    } else if (is_picture(part) && strcmp(part->mime, "image/svg+xml") != 0) {
        AUTO_FREE char *text = malloc(BASE64_ENCODE_RAW_LENGTH(part->len) + 1);
        if (text)
            base64_encode_raw(text, part->len, (const uint8_t *)part->data);
        json_put_bytes(json, text ? text : "",
                       text ? BASE64_ENCODE_RAW_LENGTH(part->len) : 0);
    } else {
        json_put_bytes(json, part->data, part->len);
    }
}

static void put_values(struct json *json, const struct cay_code_execution *execution)
{
    json_put_key(json, "results");
    json_put_array(json);
    for (size_t i = 0; i < execution->value_count; i++) {
        const struct cay_code_value *value = &execution->values[i];
        json_put_object(json);
        json_set_bool(json, "is_main", value->is_main);
        json_put_key(json, "data");
        json_put_object(json);
        for (size_t k = 0; k < value->part_count; k++)
            put_part(json, &value->parts[k]);
        json_put_end(json);
        json_put_end(json);
    }
    json_put_end(json);
}

static const char *show_status(enum cay_code_status status)
{
    static const char *const names[] = {"success", "error", "timeout", "interrupted",
                                        "lost"};

    return names[status - CAY_CODE_SUCCESS];
}

static int print_json(struct call *call, const struct cay_code_execution *execution,
                      struct cay_error *err)
{
    struct json *json = output_json(&call->output);

    json_set_text(json, "status", show_status(execution->status));
    json_set_text(json, "context", execution->context);
    json_set_text(json, "language", execution->language);
    json_set_uint(json, "count", execution->count);
    json_put_key(json, "stdout");
    json_put_bytes(json, execution->out, execution->out_len);
    json_put_key(json, "stderr");
    json_put_bytes(json, execution->error, execution->error_len);
    json_set_uint(json, "stdout_dropped", execution->out_dropped);
    json_set_uint(json, "stderr_dropped", execution->error_dropped);
    put_values(json, execution);
    json_set_uint(json, "results_dropped", execution->values_dropped);
    json_put_key(json, "error");
    if (execution->error_name) {
        json_put_object(json);
        json_set_text(json, "name", execution->error_name);
        json_set_text(json, "value", execution->error_value);
        json_set_text(json, "traceback", execution->traceback);
        json_put_end(json);
    } else {
        json_put_null(json);
    }
    json_set_text(json, "restarted", execution->restarted);
    json_set_bool(json, "is_warm", execution->is_warm);
    return output_finish(&call->output, err);
}

/* --- Running it --- */

static void report(const struct call *call, const struct cay_code_execution *execution)
{
    const char *traceback = execution->traceback;

    if (execution->restarted)
        fprintf(stderr, "cay: note: new interpreter: %s\n", execution->restarted);
    if (execution->out_dropped || execution->error_dropped)
        fprintf(stderr, "cay: note: %llu bytes of output beyond the limit were dropped\n",
                (unsigned long long)execution->out_dropped +
                    (unsigned long long)execution->error_dropped);
    if (execution->values_dropped)
        fprintf(stderr, "cay: note: %llu results were too large or invalid\n",
                (unsigned long long)execution->values_dropped);
    if (execution->error_name && *traceback)
        fprintf(stderr, "%s%s", traceback,
                traceback[strlen(traceback) - 1] == '\n' ? "" : "\n");
    else if (execution->error_name)
        fprintf(stderr, "%s: %s\n", execution->error_name, execution->error_value);
    if (execution->status == CAY_CODE_TIMEOUT)
        fprintf(stderr,
                "cay: interrupted: timeout of %llu ms (raise it with --timeout)\n",
                (unsigned long long)call->options.timeout_ms);
}

/* `why` ends with the languages of the sandbox. */
static int fail_language(const char *name, const char *why, struct cay_error *err)
{
    const char *names[LANGUAGES_MAX] = {NULL}, *has = strrchr(why, ':');
    size_t count = 0;

    while (count < LANGUAGES_MAX && (names[count] = cay_code_language(count)))
        if (strcmp(names[count++], name) == 0)
            return cay_fail(err, CAY_E_UNSUPPORTED, 0, "code.run", name,
                            "the sandbox has no program for this language",
                            "the templates host and base have the programs of this "
                            "machine: install it here or inside, or use another "
                            "template");
    const char *near = nearest_name(name, names, sizeof *names, count);
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, "code.run", name, "unknown language",
                    "%s%s%sthis sandbox has%s", near ? "did you mean " : "",
                    near ? near : "", near ? "? " : "", has ? has : " none");
}

/* A language without contexts, in a fresh interpreter. */
static int run_once(struct call *call, cay_sandbox *sandbox, const struct input *input,
                    const char *const *env, struct cay_error *err)
{
    const struct cay_command_options options = {
        .size = sizeof options,
        .user = call->options.user,
        .env = env,
        .timeout_ms =
            call->options.timeout_ms ? call->options.timeout_ms : CAY_TIMEOUT_NONE};
    struct cay_code_result result = {0};
    struct cay_error why;

    int code = cay_code_run(sandbox, input->data, input->len, call->options.language,
                            &options, &result, &why);
    if (code)
        return cay_fail_as(err, code, &why);
    if (strcmp(result.error_type, "ValueError") == 0) {
        code = fail_language(call->options.language, result.error_value, err);
        cay_code_done(&result);
        return code;
    }
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        json_set_text(json, "status", cay_status_slug(result.status));
        json_set_text(json, "language", result.language);
        json_set_int(json, "exit_code", result.command.exit_code);
        json_put_key(json, "stdout");
        json_put_bytes(json, result.command.out, result.command.out_len);
        json_put_key(json, "stderr");
        json_put_bytes(json, result.command.error, result.command.error_len);
    } else {
        (void)!fwrite(result.command.out, 1, result.command.out_len, call->output.file);
        (void)fflush(call->output.file);
        (void)!fwrite(result.command.error, 1, result.command.error_len, stderr);
    }
    code = output_finish(&call->output, err);
    int status = result.status == CAY_STATUS_SUCCESS   ? 0
                 : result.status == CAY_STATUS_TIMEOUT ? STATUS_TIMEOUT
                                                       : STATUS_ERROR;
    cay_code_done(&result);
    return code ? code : status;
}

static int run_in(struct call *call, cay_sandbox *sandbox, const struct input *input,
                  const char *const *env, struct cay_error *err)
{
    const struct options *given = &call->options;
    struct printer printer = {.call = call, .err = err};
    struct cay_code_options options = {.size = sizeof options,
                                       .language = given->language,
                                       .context = given->context,
                                       .user = given->user,
                                       .env = env,
                                       .timeout_ms = given->timeout_ms,
                                       .preload = given->preload,
                                       .cookie = &printer};
    struct cay_code_execution execution = {0};

    if (!given->as_json) {
        options.on_text = print_text;
        options.on_value = print_value;
    }
    int code =
        cay_code_execute(sandbox, input->data, input->len, &options, &execution, err);
    if (code == CAY_E_UNSUPPORTED && given->language && !given->context)
        return run_once(call, sandbox, input, env, err);
    if (code)
        return code;
    if (given->as_json)
        code = print_json(call, &execution, err);
    else
        report(call, &execution);
    if (!code)
        code = printer.failure ? printer.failure : output_finish(&call->output, err);
    int status = execution.status == CAY_CODE_SUCCESS   ? 0
                 : execution.status == CAY_CODE_TIMEOUT ? STATUS_TIMEOUT
                                                        : STATUS_ERROR;
    cay_code_execution_done(&execution);
    return code ? code : status;
}

static int read_code(const struct options *options, const char *path,
                     struct input *ret_input, struct cay_error *err)
{
    struct stat st;
    AUTO_FD fd = -1;

    *ret_input = (struct input){.data = options->code};
    if (options->code) {
        ret_input->len = strlen(options->code);
        return CAY_OK;
    }
    if (strcmp(path, "-") == 0)
        return input_read(0, "standard input", CODE_MAX, ret_input, err);
    TRY(local_file_read(path, &fd, &st, err));
    if (S_ISDIR(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, path, "this is a directory",
                        "pass a file with code, or - for standard input");
    return input_read(fd, path, CODE_MAX, ret_input, err);
}

/* [ID] [FILE]: the ID without --new, the file without --code. */
static int check_words(const struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    unsigned wanted = (options->is_new ? 0u : 1u) + (options->code ? 0u : 1u);

    if (options->is_new && options->context)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--context",
                        "a new sandbox has no contexts", "leave out --context");
    if (options->context && options->language)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--language",
                        "a context has a language", "leave out --language");
    if (call->line.count == wanted)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, "code",
                    call->line.count < wanted ? "an argument is missing"
                                              : "too many arguments",
                    "usage: cay code ID|--new FILE|-, or --code TEXT instead of a file");
}

/* A sandbox for this code alone, or the one that the first word names. */
static int open_sandbox(const struct call *call, struct sandbox_plan *plan,
                        cay_sandbox **ret_sandbox, struct cay_error *err)
{
    if (!call->options.is_new)
        return find_sandbox(call->line.arguments[0], ret_sandbox, err);
    plan->sandbox.ephemeral = true;
    plan->sandbox.env = NULL; /* the variables are those of the execution */
    plan->sandbox.user = NULL;
    scope_join();
    return cay_sandbox_create(&plan->sandbox, ret_sandbox, err);
}

static int run(struct call *call, struct cay_error *err)
{
    const char *const *words = call->line.arguments;
    struct sandbox_plan plan;
    struct input input = {0};
    cay_sandbox *sandbox = NULL;

    TRY(check_words(call, err));
    TRY(read_code(&call->options, words[call->options.is_new ? 0 : 1], &input, err));
    int status = sandbox_plan(&call->options, NULL, NULL, &plan, err);
    if (!status)
        status = open_sandbox(call, &plan, &sandbox, err);
    if (!status)
        status = run_in(call, sandbox, &input, plan.env, err);
    if (sandbox && call->options.is_new)
        (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    sandbox_plan_done(&plan);
    if (!call->options.code)
        input_done(&input);
    return status;
}

static const struct subcommand code_commands[] = {
    {"code", "ID|--new FILE|-", "Run code in an interpreter that keeps its variables", 0,
     2, run, "Manual: cay-code(1).", 0, 0},
};

static const struct option_rule code_options[] = {
    {"new", 0, OPTION_FLAG, 1, FIELD(is_new), NULL, "in a sandbox for this code alone"},
    {"code", 'c', OPTION_TEXT, 1, FIELD(code), "TEXT", "the code, instead of a file"},
    {"language", 'l', OPTION_TEXT, 1, FIELD(language), "NAME",
     "python (default), javascript, typescript, bash, ..."},
    {"context", 0, OPTION_TEXT, 1, FIELD(context), "ID",
     "a context of cay context (default: that of the language)"},
    {"timeout", 0, OPTION_PARSED, 1, FIELD(timeout_ms), "TIME",
     "interrupt the code after 500ms, 30, 2m, ...", sandbox_parse_time, TIME_ALLOWED},
    {"env", 'e', OPTION_LIST, 1, FIELD(env), "NAME=VALUE",
     "set a variable for this code; NAME alone copies its value"},
    {"user", 'u', OPTION_TEXT, 1, FIELD(user), "USER",
     "run as this user: a name or a number inside"},
    {"save", 0, OPTION_TEXT, 1, FIELD(save), "DIR", "write pictures to files in DIR"},
    {"preload", 0, OPTION_TEXT, 1, FIELD(preload), "MODULES",
     "modules of the saved interpreter to start from (see cay warm)"},
    {"template", 0, OPTION_TEXT, 1, FIELD(template_name), "NAME|DIR",
     "with --new: root file system (default: host)"},
    {"volume", 'v', OPTION_LIST, 1, FIELD(binds), "SRC:DST[:ro]",
     "with --new: make SRC, or a volume, visible inside as DST"},
    {"output", 'o', OPTION_CHOICE, 1, FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar code_grammar = {
    .program = "cay",
    .subcommands = code_commands,
    .subcommand_count = 1,
    .options = code_options,
    .option_count = sizeof code_options / sizeof *code_options,
};

/* --- Contexts --- */

enum { LS, CREATE, RESTART, INTERRUPT, RM, COMMANDS };

static void put_context(struct json *json, const void *item)
{
    const struct cay_context_info *info = item;

    json_set_text(json, "id", info->id);
    json_set_text(json, "language", info->language);
    json_set_text(json, "cwd", info->cwd);
    json_set_bool(json, "default", info->is_default);
    json_set_bool(json, "busy", info->is_busy);
    json_set_uint(json, "waiting", info->waiting);
    json_set_int(json, "pid", info->pid);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_context_info *info = item;

    table_cell(table, "%s", info->id);
    table_cell(table, "%s", info->language);
    table_cell(table, "%s", info->is_default ? "yes" : "-");
    table_cell(table, "%s", info->is_busy ? "busy" : info->pid ? "idle" : "ended");
    table_cell(table, "%u", info->waiting);
    table_cell(table, "%d", info->pid);
    table_cell(table, "%s", *info->cwd ? info->cwd : "-");
}

static const char *name_of(const void *item)
{
    return ((const struct cay_context_info *)item)->id;
}

static int list(struct call *call, struct cay_error *err)
{
    static const struct call_list contexts = {
        "contexts",
        "ID|LANGUAGE|DEFAULT|STATE|WAITING|PID|DIRECTORY",
        sizeof(struct cay_context_info),
        put_context,
        add_row,
        name_of};
    AUTO(cay_sandbox) sandbox = NULL;
    struct cay_context_infos infos = {0};

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    TRY(cay_context_list(sandbox, call->options.user, &infos, err));
    int code = call_list(call, &contexts, infos.items, infos.count, err);
    cay_context_infos_done(&infos);
    return code;
}

static int create(struct call *call, struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;
    struct sandbox_plan plan;
    struct cay_context_info info = {0};
    const struct options *given = &call->options;

    TRY(sandbox_plan(given, NULL, NULL, &plan, err));
    const struct cay_context_options options = {.size = sizeof options,
                                                .language = given->language,
                                                .cwd = given->workdir,
                                                .user = given->user,
                                                .env = plan.env,
                                                .timeout_ms = given->timeout_ms,
                                                .preload = given->preload};
    int code = find_sandbox(call->line.arguments[0], &sandbox, err);
    if (!code)
        code = cay_context_create(sandbox, &options, &info, err);
    sandbox_plan_done(&plan);
    if (code)
        return code;
    if (given->as_json)
        put_context(output_json(&call->output), &info);
    else
        fprintf(call->output.file, "%s\n", info.id);
    cay_context_info_done(&info);
    return output_finish(&call->output, err);
}

static int change(struct call *call, struct cay_error *err)
{
    const char *const *words = call->line.arguments;
    const char *user = call->options.user;
    AUTO(cay_sandbox) sandbox = NULL;

    TRY(find_sandbox(words[0], &sandbox, err));
    if (strcmp(call->line.subcommand->name, "restart") == 0)
        return cay_context_restart(sandbox, user, words[1], err);
    if (strcmp(call->line.subcommand->name, "rm") == 0)
        return cay_context_remove(sandbox, user, words[1], err);
    return cay_context_interrupt(sandbox, user, words[1], err);
}

static const struct subcommand context_commands[] = {
    [LS] = {"ls", "ID", "List the contexts of a sandbox", 1, 1, list},
    [CREATE] = {"create", "ID", "Create a context and print its ID", 1, 1, create},
    [RESTART] = {"restart", "ID CONTEXT",
                 "Start its interpreter again, without variables", 2, 2, change},
    [INTERRUPT] = {"interrupt", "ID CONTEXT", "Interrupt its code; variables are kept", 2,
                   2, change},
    [RM] = {"rm", "ID CONTEXT", "Remove a context", 2, 2, change},
};

static const struct option_rule context_options[] = {
    {"language", 'l', OPTION_TEXT, BIT(CREATE), FIELD(language), "NAME",
     "python (default), javascript, typescript, bash, ..."},
    {"workdir", 'w', OPTION_TEXT, BIT(CREATE), FIELD(workdir), "DIR",
     "working directory (default: the sandbox's)"},
    {"env", 'e', OPTION_LIST, BIT(CREATE), FIELD(env), "NAME=VALUE",
     "set a variable; NAME alone copies its value"},
    {"timeout", 0, OPTION_PARSED, BIT(CREATE), FIELD(timeout_ms), "TIME",
     "fail if it is not ready after 30, 2m, ...", sandbox_parse_time, TIME_ALLOWED},
    {"preload", 0, OPTION_TEXT, BIT(CREATE), FIELD(preload), "MODULES",
     "modules of the saved interpreter to start from (see cay warm)"},
    {"user", 'u', OPTION_TEXT, UINT32_MAX, FIELD(user), "USER",
     "contexts of this user: a name or a number inside"},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "print only the IDs"},
    {"output", 'o', OPTION_CHOICE, BIT(LS) | BIT(CREATE), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar context_grammar = {
    .program = "cay context",
    .usage = "COMMAND [ARGUMENT]...\n"
             "Manage the interpreters of cay code.",
    .manual = "Manual: cay-code(1).",
    .subcommands = context_commands,
    .subcommand_count = COMMANDS,
    .options = context_options,
    .option_count = sizeof context_options / sizeof *context_options,
};
