/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sandbox/approve.h"
#include "sandbox/backend.h"

static const char op[] = "sandbox.approve";

enum { LINE_MAX_BYTES = 8 << 20 };

/* --- Patterns --- */

/* Only the last "*" is ever tried again, so the time is the product of the lengths at
 * most. */
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *again = NULL;

    for (;;) {
        if (*pattern == '*') {
            star = ++pattern;
            again = text;
        } else if (*pattern == *text) {
            if (!*text)
                return true;
            pattern++;
            text++;
        } else if (star && *again) {
            pattern = star;
            text = ++again;
        } else {
            return false;
        }
    }
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool is_one_of(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}
#define IS_ONE_OF(word, words) is_one_of(word, words, sizeof words / sizeof *words)

static bool is_shell(const char *program)
{
    static const char *const shells[] = {"sh",   "bash",  "dash", "zsh",  "ksh", "ash",
                                         "mksh", "rbash", "yash", "fish", "csh", "tcsh"};

    return IS_ONE_OF(last_part(program), shells);
}

/* "-o errexit", "+O extglob": the next argument belongs to it. */
static bool takes_argument(const char *option)
{
    static const char *const options[] = {"--rcfile", "--init-file"};
    char last = option[strlen(option) - 1];

    return option[1] == '-' ? IS_ONE_OF(option, options) : last == 'o' || last == 'O';
}

/* Of "sh -c SCRIPT".  More options may follow "-c", so all arguments after it count. */
static bool matches_script(const char *pattern, const char *const *argv)
{
    bool has_script = false;

    if (!is_shell(argv[0]))
        return false;
    for (size_t i = 1; argv[i]; i++) {
        const char *word = argv[i];
        bool is_option = (*word == '-' || *word == '+') && word[1];
        if (has_script && matches(pattern, word + strspn(word, " \t\n")))
            return true;
        if (!has_script && (!is_option || strcmp(word, "--") == 0))
            return false; /* the file of a script */
        if (*word == '-' && word[1] != '-' && strchr(word, 'c'))
            has_script = true;
        else if (!has_script && takes_argument(word) && argv[i + 1])
            i++;
    }
    return false;
}

/* "/usr/bin/git push" as "git push". */
static bool matches_last_part(const char *pattern, const char *const *argv,
                              const char *line)
{
    const char *last = last_part(argv[0]);
    size_t count = 0;

    if (last == argv[0])
        return false;
    if (strncmp(line, argv[0], (size_t)(last - argv[0])) == 0)
        return matches(pattern, line + (last - argv[0]));
    while (argv[count])
        count++;
    /* It begins with a quote.  Without memory the command has to wait. */
    const char **words = calloc(count + 1, sizeof *words);
    if (words) {
        memcpy(words, argv, count * sizeof *words);
        words[0] = last;
    }
    char *short_line = words ? approve_line(words) : NULL;
    bool is_match = !short_line || matches(pattern, short_line);
    free(short_line);
    free(words);
    return is_match;
}

bool approve_matches(const char *pattern, const char *const *argv, const char *line)
{
    return matches(pattern, line) || matches_script(pattern, argv) ||
           matches_last_part(pattern, argv, line);
}

/* --- The command line --- */

static bool put_word(struct buf *line, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_@%+=:,./-";
    bool fits;

    if (*word && word[strspn(word, plain)] == '\0')
        return buf_text(line, word);
    fits = buf_text(line, "'");
    for (const char *at = word; fits && *at;) {
        size_t len = strcspn(at, "'");
        fits = buf_append(line, at, len) && (!at[len] || buf_text(line, "'\\''"));
        at += len + (at[len] != '\0');
    }
    return fits && buf_text(line, "'");
}

char *approve_line(const char *const *argv)
{
    struct buf line;

    buf_init(&line, LINE_MAX_BYTES);
    for (size_t i = 0; argv[i]; i++)
        (void)((i == 0 || buf_text(&line, " ")) && put_word(&line, argv[i]));
    char *text = buf_take(&line);
    buf_done(&line);
    return text;
}

/* --- The options --- */

int approve_check(const struct cay_sandbox_options *options, struct cay_error *err)
{
    size_t count = 0, len = 0;

    for (; options->approve && options->approve[count]; count++) {
        len += strlen(options->approve[count]) + 1;
        if (!options->approve[count][0])
            return cay_fail(err, CAY_E_INVALID, 0, op, "approve", "a pattern is empty",
                            "use the beginning of a command line, like \"git push*\"");
    }
    if (count > CAY_APPROVE_MAX || len > CAY_APPROVE_BYTES)
        return cay_fail(err, CAY_E_LIMIT, 0, op, "approve", "too many patterns",
                        "the limits are %d patterns and %d KiB", CAY_APPROVE_MAX,
                        CAY_APPROVE_BYTES >> 10);
    if (options->approve_scope && strlen(options->approve_scope) >= APPROVE_SCOPE_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, "approve_scope", "the scope is too long",
                        "the limit is %d bytes", APPROVE_SCOPE_MAX - 1);
    return CAY_OK;
}

int approve_pack(const struct cay_sandbox_options *options, const char *scope,
                 struct buf *ret_text, struct cay_error *err)
{
    TRY(approve_check(options, err));
    bool has_patterns = options->approve && *options->approve;
    if (!has_patterns && !options->approve_scope)
        return CAY_OK;
    const char *given = options->approve_scope ? options->approve_scope : scope;
    (void)(buf_append(ret_text, given, strlen(given) + 1) &&
           buf_format(ret_text, "%llu",
                      (unsigned long long)options->approve_timeout_ms) &&
           buf_append(ret_text, "", 1));
    for (const char *const *at = options->approve; has_patterns && *at; at++)
        (void)buf_append(ret_text, *at, strlen(*at) + 1);
    return ret_text->failed ? cay_fail_memory(err, op) : CAY_OK;
}

/* --- A command --- */

/* The text comes from a file of this user. */
static bool match_text(struct approve_command *command, size_t len, const char *line)
{
    const char *at = command->text, *end = at + len;

    if (!len || end[-1])
        return false;
    command->scope = at;
    at += strlen(at) + 1;
    if (at < end) {
        command->timeout_ms = strtoull(at, NULL, 10);
        at += strlen(at) + 1;
    }
    for (; at < end; at += strlen(at) + 1)
        if (approve_matches(at, command->exec.argv, line))
            return true;
    return false;
}

int approve_look(cay_sandbox *sandbox, const struct cay_exec_options *options,
                 struct approve_command *ret_command, struct cay_error *err)
{
    const struct cay_backend *backend = sandbox->backend;
    size_t len = 0;

    TRY(cay_take_struct(&ret_command->exec, sizeof ret_command->exec, options, op, err));
    const struct cay_exec_options *exec = &ret_command->exec;
    if (backend->approve)
        TRY(backend->approve(sandbox->cookie, &ret_command->text, &len, err));
    if ((!len && !exec->approve) || !exec->argv || !exec->argv[0])
        return CAY_OK;
    char *line = approve_line(exec->argv);
    if (!line)
        return cay_fail_memory(err, op);
    ret_command->line = line;
    ret_command->is_needed = match_text(ret_command, len, line);
    for (const char *const *at = exec->approve; at && *at; at++)
        ret_command->is_needed |= approve_matches(*at, exec->argv, line);
    return CAY_OK;
}

int approve_refuse_hidden(cay_sandbox *sandbox, const char *const *argv,
                          struct cay_error *err)
{
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    AUTO_APPROVE command = {.is_needed = false};

    TRY(approve_look(sandbox, &options, &command, err));
    if (!command.is_needed)
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_APPROVED, 0, op, "command",
                    "the command is too long to be shown for approval",
                    "use several commands of at most 100 KiB");
}

void approve_done(struct approve_command *command)
{
    free(command->text);
    free(command->line);
}
