/* SPDX-License-Identifier: Apache-2.0 */

/* The request that starts a command, as JSON.
 *
 * envd stores no output.  The output of a background command goes to two files inside,
 * which a client that attaches later finds by the pid. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "e2b/command.h"
#include "e2b/envd.h"
#include "json/json.h"

static const char redirect_output[] =
    "d=" E2B_OUTPUT_DIR "/$$\n"
    "[ -d " E2B_OUTPUT_DIR " ] || mkdir -m 1777 " E2B_OUTPUT_DIR "\n"
    "rm -rf \"$d\"; mkdir -m 700 \"$d\" || exec \"$@\"\n"
    "exec \"$@\" >\"$d/out\" 2>\"$d/err\"\n";

/* --- Checks --- */

static bool is_tag(const char *tag)
{
    size_t len = strlen(tag);

    return len > 0 && len < 64 && isalpha((unsigned char)*tag) &&
           strspn(tag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                       "0123456789-_.") == len;
}

static int check_texts(const char *op, const char *what, const char *const *texts,
                       struct cay_error *err)
{
    int code = CAY_OK;

    for (; !code && texts && *texts; texts++)
        code = e2b_check_text(op, what, *texts, err);
    return code;
}

int e2b_start_check(const struct cay_exec_options *options, const char *op,
                    unsigned flags, struct cay_error *err)
{
    if (!options->argv || !options->argv[0])
        return cay_fail(err, CAY_E_INVALID, 0, op, "argv", "no command given",
                        "pass at least the name of a program");
    if (options->flags & CAY_EXEC_PIPED)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags",
                        "the E2B protocol does not support CAY_EXEC_PIPED",
                        "leave the flag out; background output is stored in files");
    if (options->flags & ~flags)
        return cay_fail(err, CAY_E_INVALID, 0, op, "flags",
                        "a flag is unknown, or not supported by this call",
                        "supported flags: 0x%x of enum cay_exec_flag", flags);
    if (options->tag && !is_tag(options->tag))
        return cay_fail(
            err, CAY_E_INVALID, 0, op, "tag", "invalid tag",
            "a tag is a letter and up to 62 letters, digits, \"-\", \"_\", \".\"");
    for (const char *const *env = options->env; env && *env; env++)
        if (!strchr(*env, '=') || **env == '=')
            return cay_fail(err, CAY_E_INVALID, 0, op, "env",
                            "a variable has no name or no value",
                            "for example NAME=value");
    int code = check_texts(op, "argv", options->argv, err);
    if (!code)
        code = check_texts(op, "env", options->env, err);
    if (!code && options->user)
        code = e2b_check_text(op, "user", options->user, err);
    return code;
}

/* --- Arguments --- */

static void put_words(struct json *json, const struct e2b_command *command,
                      const struct cay_exec_options *options)
{
    const char *const *word = options->argv;

    json_set_text(json, "cmd", command->has_output_files ? "/bin/sh" : *word++);
    json_put_key(json, "args");
    json_put_array(json);
    if (command->has_output_files) {
        json_put_text(json, "-c");
        json_put_text(json, redirect_output);
        json_put_text(json, E2B_HELPER);
    }
    for (; *word; word++)
        json_put_text(json, *word);
    json_put_end(json);
}

/* With output files, four words of ours come first: see put_words(). */
const char *e2b_start_word(const json_t *config, size_t index)
{
    const json_t *args = json_object_get(config, "args");

    if (e2b_start_has_output_files(args))
        index += 4;
    return index ? json_string_value(json_array_get(args, index - 1))
                 : json_string_value(json_object_get(config, "cmd"));
}

bool e2b_start_has_output_files(const json_t *args)
{
    const char *script = json_string_value(json_array_get(args, 1));

    return script && strcmp(script, redirect_output) == 0;
}

/* --- Environment, directory, terminal --- */

static void put_variable(struct json *json, const char *text)
{
    AUTO_FREE char *name = strndup(text, strcspn(text, "="));

    if (name)
        json_set_text(json, name, strchr(text, '=') + 1);
    else
        json->failed = true;
}

static void put_env(struct json *json, const struct e2b_command *command,
                    const char *const *env)
{
    bool has_term = false;

    json_put_key(json, "envs");
    json_put_object(json);
    for (; env && *env; env++) {
        has_term = has_term || strncmp(*env, "TERM=", 5) == 0;
        if (strncmp(*env, "CAY_COMMAND=", 12) != 0 && !env_sets(env + 1, *env))
            put_variable(json, *env);
    }
    if (command->has_tty && !has_term)
        json_set_text(json, "TERM", "xterm-256color");
    if (*command->marker)
        put_variable(json, command->marker);
    json_put_end(json);
}

int e2b_start_write(const struct e2b_command *command,
                    const struct cay_exec_options *options, struct buf *body,
                    struct cay_error *err)
{
    AUTO_FREE char *cwd = NULL;
    struct json json;

    int code =
        e2b_path(command->e2b, command->op, options->cwd ? options->cwd : "", &cwd, err);
    if (code)
        return code;
    json_to_buf(&json, body);
    json_put_object(&json);
    json_put_key(&json, "process");
    json_put_object(&json);
    put_words(&json, command, options);
    put_env(&json, command, options->env);
    json_set_text(&json, "cwd", cwd);
    json_put_end(&json);
    if (command->has_tty) {
        json_put_key(&json, "pty");
        json_put_object(&json);
        json_put_key(&json, "size");
        json_put_object(&json);
        json_set_uint(&json, "cols", options->columns ? options->columns : E2B_COLUMNS);
        json_set_uint(&json, "rows", options->rows ? options->rows : E2B_ROWS);
        json_put_end(&json);
        json_put_end(&json);
    }
    if (options->tag)
        json_set_text(&json, "tag", options->tag);
    json_set_bool(&json, "stdin", command->input.is_open && !command->has_tty);
    json_put_end(&json);
    if (json_finish(&json))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, command->op, options->argv[0],
                    "the arguments and variables of the command are too large",
                    "the limit is 16 MiB");
}
