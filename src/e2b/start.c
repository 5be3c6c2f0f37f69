/* SPDX-License-Identifier: Apache-2.0 */

/* What starts a command, as JSON.
 *
 * Usually that is its words as they are.  But JSON is text: words that are not UTF-8 are
 * written in octal, and a script of ours turns them back inside.  And the daemon keeps no
 * output: that of a command in the background goes to two files, which whoever attaches
 * to it later finds by its pid. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "base/utf8.h"
#include "e2b/run.h"
#include "json/json.h"

static const char decode[] =
    "n=$#\n"
    "while [ $n -gt 0 ]; do\n"
    "  w=$(printf '%bx' \"$1\"); shift; set -- \"$@\" \"${w%x}\"; n=$((n - 1))\n"
    "done\n"
    "exec \"$@\"\n";

static const char keep[] = "d=" E2B_KEPT "/$$\n"
                           "[ -d " E2B_KEPT " ] || mkdir -m 1777 " E2B_KEPT "\n"
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

int e2b_start_check(const struct cay_exec_options *options, const char *op,
                    unsigned flags, struct cay_error *err)
{
    if (!options->argv || !options->argv[0])
        return cay_fail(err, CAY_E_INVALID, 0, op, "argv", "there is no command",
                        "give at least the name of a program");
    if (options->flags & CAY_EXEC_PIPED)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags",
                        "the output of an E2B sandbox's commands waits for nobody",
                        "leave CAY_EXEC_PIPED out; in the background output is kept");
    if (options->flags & ~flags)
        return cay_fail(err, CAY_E_INVALID, 0, op, "flags",
                        "a flag is not for this call, or unknown",
                        "the flags that it takes: 0x%x of enum cay_exec_flag", flags);
    if (options->tag && !is_tag(options->tag))
        return cay_fail(err, CAY_E_INVALID, 0, op, "tag", "this cannot be a tag",
                        "a letter, then up to 62 letters, digits, \"-\", \"_\", \".\"");
    for (const char *const *env = options->env; env && *env; env++)
        if (!strchr(*env, '=') || **env == '=')
            return cay_fail(err, CAY_E_INVALID, 0, op, "env",
                            "a variable has no name or no value", "write NAME=value");
    return options->user ? e2b_check_text(op, "user", options->user, err) : CAY_OK;
}

static bool is_text(const char *text)
{
    return utf8_is_valid(text, strlen(text));
}

static bool are_text(const char *const *texts)
{
    for (; texts && *texts; texts++)
        if (!is_text(*texts))
            return false;
    return true;
}

/* --- Words --- */

struct words {
    struct json *json;
    bool is_begun;
    bool encodes;
};

static void put_octal(struct json *json, const char *text)
{
    AUTO_BUF octal;

    buf_init(&octal, 5 * strlen(text) + 1);
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 0x80 && isalnum(byte))
            buf_append(&octal, text, 1);
        else
            buf_format(&octal, "\\0%03o", byte);
    }
    json_put_bytes(json, octal.data ? octal.data : "", octal.len);
    json->failed |= octal.failed;
}

/* The first is the command, the others are its arguments. */
static void put_word(struct words *words, const char *text)
{
    if (!words->is_begun)
        json_put_key(words->json, "cmd");
    if (words->encodes)
        put_octal(words->json, text);
    else
        json_put_text(words->json, text);
    if (!words->is_begun) {
        json_put_key(words->json, "args");
        json_put_array(words->json);
    }
    words->is_begun = true;
}

static void put_script(struct words *words, const char *script)
{
    put_word(words, "/bin/sh");
    put_word(words, "-c");
    put_word(words, script);
    put_word(words, E2B_HELPER);
}

static void put_words(struct json *json, const struct e2b_run *run,
                      const struct cay_exec_options *options)
{
    struct words words = {.json = json};

    if (!are_text(options->argv) || !are_text(options->env)) {
        put_script(&words, decode);
        words.encodes = true;
    }
    if (!are_text(options->env)) {
        put_word(&words, "env");
        for (const char *const *env = options->env; *env; env++)
            if (!is_text(*env))
                put_word(&words, *env);
    }
    if (run->is_kept)
        put_script(&words, keep);
    for (const char *const *word = options->argv; *word; word++)
        put_word(&words, *word);
    json_put_end(json);
}

/* What put_octal() has written, or the word itself; free() it. */
static char *read_octal(const char *text, bool is_octal)
{
    char *word = strdup(text), *to = word;

    for (const char *at = word; is_octal && to && *at; to++) {
        bool is_escape = at[0] == '\\' && strspn(at + 1, "01234567") >= 4;
        char digits[4] = {0};
        if (is_escape)
            memcpy(digits, at + 2, 3);
        *to = is_escape ? (char)strtol(digits, NULL, 8) : *at;
        at += is_escape ? 5 : 1;
    }
    if (is_octal && to)
        *to = '\0';
    return word;
}

static bool is_script(const json_t *args, size_t at, const char *script, bool is_octal)
{
    const char *text = json_string_value(json_array_get(args, at));
    AUTO_FREE char *word = text ? read_octal(text, is_octal) : NULL;

    return word && strcmp(word, script) == 0;
}

/* Two scripts may be around it, each with its shell, "-c" and a name. */
char *e2b_start_word(const json_t *config, size_t index)
{
    const json_t *args = json_object_get(config, "args");
    bool is_octal = is_script(args, 1, decode, false);
    size_t skip = is_octal ? 4 : 0;

    if (is_script(args, skip + 1, keep, is_octal))
        skip += 4;
    index += skip;
    const char *word = index ? json_string_value(json_array_get(args, index - 1))
                             : json_string_value(json_object_get(config, "cmd"));
    return word ? read_octal(word, is_octal) : NULL;
}

bool e2b_start_may_keep(const json_t *args)
{
    const char *script = json_string_value(json_array_get(args, 1));

    return script && (strcmp(script, keep) == 0 || strcmp(script, decode) == 0);
}

/* --- Surroundings --- */

static void put_variable(struct json *json, const char *text)
{
    AUTO_FREE char *name = strndup(text, strcspn(text, "="));

    if (name)
        json_set_text(json, name, strchr(text, '=') + 1);
    else
        json->failed = true;
}

static void put_env(struct json *json, const struct e2b_run *run, const char *const *env)
{
    bool has_term = false;

    json_put_key(json, "envs");
    json_put_object(json);
    for (; env && *env; env++) {
        has_term = has_term || strncmp(*env, "TERM=", 5) == 0;
        if (is_text(*env) && strncmp(*env, "CAY_COMMAND=", 12) != 0 &&
            !env_sets(env + 1, *env))
            put_variable(json, *env);
    }
    if (run->has_tty && !has_term)
        json_set_text(json, "TERM", "xterm-256color");
    if (*run->marker)
        put_variable(json, run->marker);
    json_put_end(json);
}

static void put_terminal(struct json *json, const struct cay_exec_options *options)
{
    json_put_key(json, "pty");
    json_put_object(json);
    json_put_key(json, "size");
    json_put_object(json);
    json_set_uint(json, "cols", options->columns ? options->columns : E2B_COLUMNS);
    json_set_uint(json, "rows", options->rows ? options->rows : E2B_ROWS);
    json_put_end(json);
    json_put_end(json);
}

int e2b_start_write(const struct e2b_run *run, const struct cay_exec_options *options,
                    struct buf *body, struct cay_error *err)
{
    AUTO_FREE char *cwd = NULL;
    struct json json;

    int code =
        e2b_path(run->e2b, run->op, options->cwd ? options->cwd : "", true, &cwd, err);
    if (code)
        return code;
    json_to_buf(&json, body);
    json_put_object(&json);
    json_put_key(&json, "process");
    json_put_object(&json);
    put_words(&json, run, options);
    put_env(&json, run, options->env);
    json_set_text(&json, "cwd", cwd);
    json_put_end(&json);
    if (run->has_tty)
        put_terminal(&json, options);
    if (options->tag)
        json_set_text(&json, "tag", options->tag);
    json_set_bool(&json, "stdin", run->input.is_open && !run->has_tty);
    json_put_end(&json);
    if (json_finish(&json))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, run->op, options->argv[0],
                    "the command and its variables are too much to be sent",
                    "keep them below 16 MiB");
}
