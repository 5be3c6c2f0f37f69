/* SPDX-License-Identifier: Apache-2.0 */
#include "server/keeper/script.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "json/json.h"

static const char op[] = "server.build";

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS  "0123456789"

enum { TEXT_MAX = 1 << 20, WORD_MAX = 64 << 10 };

bool script_next(const char *const *strings, size_t count, size_t *at,
                 struct script_step *ret_step)
{
    enum { HEAD = 4 };
    char *end;

    if (count < *at + HEAD)
        return false;
    const char *const *head = strings + *at;
    size_t args = strtoul(head[3], &end, 10);
    if (*end || args > count - *at - HEAD)
        return false;
    *ret_step =
        (struct script_step){head[0], head[2], head[1][0] == '1', args, head + HEAD};
    *at += HEAD + args;
    return true;
}

void script_show(const struct script_step *step, char ret_text[SCRIPT_STEP_TEXT])
{
    size_t len = (size_t)snprintf(ret_text, SCRIPT_STEP_TEXT, "%.16s", step->type);

    for (size_t i = 0; i < step->count && len + 2 < SCRIPT_STEP_TEXT; i++)
        len += (size_t)snprintf(ret_text + len, SCRIPT_STEP_TEXT - len, " %s",
                                step->args[i]);
    for (char *at = ret_text; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = ' ';
}

bool script_is_hash(const char *hash)
{
    size_t len = strspn(hash, "abcdefghijklmnopqrstuvwxyz" DIGITS);

    return len > 0 && !hash[len];
}

static int fail(const char *message, const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, NULL, message, "%s", hint);
}

/* --- Lines --- */

static void add(struct script *script, bool is_change, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(struct script *script, bool is_change, const char *format, ...)
{
    char piece[256];
    va_list args;

    va_start(args, format);
    int len = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (len >= (int)sizeof piece || script->lines >= SCRIPT_LINES)
        script->text.failed = true;
    (void)buf_text(&script->text, piece);
    script->line_steps[script->lines < SCRIPT_LINES ? ++script->lines : 0] =
        (unsigned short)script->step;
    if (is_change && script->changes < SCRIPT_LINES)
        script->change_steps[script->changes++] = (unsigned short)script->step;
}

static void end_line(struct script *script)
{
    (void)buf_text(&script->text, "\n");
}

/* A JSON array.  "<" is escaped, since "<<" would begin a heredoc. */
static void add_array(struct script *script, const char *const *words)
{
    AUTO_BUF text = {.max = TEXT_MAX};
    struct json json;

    json_to_buf(&json, &text);
    json_put_array(&json);
    for (; *words; words++)
        json_put_text(&json, *words);
    json_put_end(&json);
    if (!json_finish(&json))
        script->text.failed = true;
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] == '<')
            (void)buf_text(&script->text, "\\u003c");
        else
            (void)buf_append(&script->text, text.data + i, 1);
    end_line(script);
}

/* As a word of a Dockerfile without variables. */
static bool quote(const char *word, struct buf *quoted)
{
    for (; *word; word++) {
        if (iscntrl((unsigned char)*word))
            return false;
        if (strchr("\\\"'$ ", *word))
            (void)buf_text(quoted, "\\");
        (void)buf_append(quoted, word, 1);
    }
    return !quoted->failed;
}

static void set_user(struct script *script, const char *user)
{
    add(script, false, "USER %s", user);
    end_line(script);
}

/* --- Steps --- */

static bool is_user(const char *user)
{
    size_t len = strlen(user);

    return len > 0 && len < SCRIPT_USER_MAX && *user != '-' &&
           strspn(user, LETTERS DIGITS "_.-") == len;
}

static void run_as(struct script *script, const char *user, const char *const *argv)
{
    if (strcmp(user, script->user) != 0)
        set_user(script, user);
    add(script, true, "RUN ");
    add_array(script, argv);
    if (strcmp(user, script->user) != 0)
        set_user(script, script->user);
}

/* A comment in the command makes the key of a forced step new. */
static int add_run(struct script *script, const struct script_source *source,
                   const struct script_step *step, struct cay_error *err)
{
    AUTO_BUF command = {.max = TEXT_MAX};
    const char *argv[] = {"/bin/bash", "-l", "-c", NULL, NULL};
    const char *user = step->count > 1 && *step->args[1] ? step->args[1] : script->user;

    if (!step->count || !*step->args[0] || step->count > 2)
        return fail("RUN has no command", "give a command and, if needed, a user", err);
    if (!is_user(user))
        return fail("invalid user of RUN", "use a name of the template's /etc/passwd",
                    err);
    (void)buf_text(&command, step->args[0]);
    if (step->is_forced && !source->is_forced)
        (void)buf_format(&command, "\n# %s", source->build);
    argv[3] = command.data;
    run_as(script, user, argv);
    return CAY_OK;
}

/* "folder/" of "folder/" and a star: the part before the first pattern. */
static int add_copy(struct script *script, const struct script_step *step,
                    struct cay_error *err)
{
    AUTO_BUF from = {.max = WORD_MAX}, to = {.max = WORD_MAX}, cut = {.max = WORD_MAX};
    const char *owner = step->count > 2 && *step->args[2] ? step->args[2] : "user:user";
    const char *mode = step->count > 3 ? step->args[3] : "";
    char group[2 * SCRIPT_USER_MAX + 2];

    if (step->count < 2 || step->count > 4)
        return fail("COPY needs a source and a target", "use the SDK", err);
    size_t glob = strcspn(step->args[0], "*?[");
    while (step->args[0][glob] && glob > 0 && step->args[0][glob - 1] != '/')
        glob--;
    (void)buf_append(&cut, step->args[0], glob);
    (void)buf_append(&cut, "", 1);
    if (!quote("/", &from) || !quote(cut.data, &from) || !quote(step->args[1], &to) ||
        !to.len)
        return fail("invalid path of COPY",
                    "paths have no control characters and at most 64 KiB", err);
    if (strspn(mode, "01234567") != strlen(mode) || strlen(mode) > 4)
        return fail("invalid mode of COPY", "write it as 755 or 0644", err);
    if (strlen(owner) >= 2 * SCRIPT_USER_MAX ||
        strspn(owner, LETTERS DIGITS "_.-:") != strlen(owner))
        return fail("invalid owner of COPY", "write it as USER or USER:GROUP", err);
    snprintf(group, sizeof group, "%s", owner);
    add(script, true, "COPY --from=f%u --chown=%s%s%s ", script->step, group,
        *mode ? " --chmod=" : "", mode);
    const char *const words[] = {from.data, to.data, NULL};
    add_array(script, words);
    return CAY_OK;
}

/* Variables are expanded, nothing else. */
static int add_env(struct script *script, const struct script_step *step,
                   struct cay_error *err)
{
    if (!step->count || step->count % 2)
        return fail("ENV needs pairs of a name and a value", "give both", err);
    for (size_t i = 0; i < step->count; i += 2) {
        const char *name = step->args[i];
        AUTO_BUF value = {.max = WORD_MAX};
        if (!*name || isdigit((unsigned char)*name) ||
            strspn(name, LETTERS DIGITS "_") != strlen(name) || strlen(name) > 128)
            return fail("invalid name of a variable",
                        "use letters, digits and \"_\", at most 128", err);
        for (const char *at = step->args[i + 1]; *at; at++) {
            if (iscntrl((unsigned char)*at))
                return fail("a value of ENV has control characters",
                            "set it in the command that needs it", err);
            (void)buf_format(&value, strchr("\\\"", *at) ? "\\%c" : "%c", *at);
        }
        add(script, false, "ENV %s=", name);
        (void)buf_format(&script->text, "\"%s\"", value.data ? value.data : "");
        end_line(script);
        script->text.failed |= value.failed;
    }
    return CAY_OK;
}

/* The copy of an empty directory creates the missing parts of the path, with an owner. */
static int add_workdir(struct script *script, const struct script_step *step,
                       struct cay_error *err)
{
    AUTO_BUF path = {.max = WORD_MAX};

    if (step->count != 1 || !*step->args[0] || !quote(step->args[0], &path))
        return fail("WORKDIR needs a path", "paths have no control characters", err);
    const char *const words[] = {"/", path.data, NULL};
    add(script, true, "COPY --from=empty --chown=%s ", script->user);
    add_array(script, words);
    add(script, true, "WORKDIR ");
    (void)buf_text(&script->text, path.data);
    end_line(script);
    return CAY_OK;
}

/* The user is created if it is missing. */
static int add_user(struct script *script, const struct script_step *step,
                    struct cay_error *err)
{
    static const char create[] =
        "id -u \"$1\" >/dev/null 2>&1 || useradd -m -s /bin/bash \"$1\" || "
        "adduser -D \"$1\"";
    const char *user = step->count == 1 ? step->args[0] : "";
    const char *const argv[] = {"/bin/sh", "-c", create, "sh", user, NULL};

    if (!is_user(user))
        return fail("invalid name of a user",
                    "use up to 32 letters, digits, \"_\", \"-\" and \".\"", err);
    if (strcmp(user, "user") != 0 && strcmp(user, "root") != 0)
        run_as(script, "root", argv);
    set_user(script, user);
    cay_copy_text(script->user, sizeof script->user, user);
    return CAY_OK;
}

static int add_step(struct script *script, const struct script_source *source,
                    const struct script_step *step, struct cay_error *err)
{
    if (strcmp(step->type, "RUN") == 0)
        return add_run(script, source, step, err);
    if (strcmp(step->type, "COPY") == 0)
        return add_copy(script, step, err);
    if (strcmp(step->type, "ENV") == 0)
        return add_env(script, step, err);
    if (strcmp(step->type, "WORKDIR") == 0)
        return add_workdir(script, step, err);
    if (strcmp(step->type, "USER") == 0)
        return add_user(script, step, err);
    return fail("unknown type of a step", "use RUN, COPY, ENV, WORKDIR and USER", err);
}

/* A stage with the files of each COPY comes first: unpacking is confined there. */
static int add_files(struct script *script, const char *const *strings, size_t count,
                     struct cay_error *err)
{
    struct script_step step;

    for (size_t at = 0; at < count;) {
        if (!script_next(strings, count, &at, &step))
            return fail("the steps are malformed", "use the SDK", err);
        script->step++;
        if (strcmp(step.type, "COPY") != 0)
            continue;
        const char *const words[] = {step.hash, "/", NULL};
        if (!script_is_hash(step.hash))
            return fail("COPY needs the hash of uploaded files", "use the SDK", err);
        add(script, false, "FROM scratch AS f%u", script->step);
        end_line(script);
        add(script, true, "ADD ");
        add_array(script, words);
    }
    script->step = 0;
    return CAY_OK;
}

int script_write(const struct script_source *source, const char *const *strings,
                 size_t count, struct script *ret_script, struct cay_error *err)
{
    struct script *script = ret_script;
    struct script_step step;

    *script = (struct script){.text = {.max = TEXT_MAX}};
    TRY(add_files(script, strings, count, err));
    add(script, false, "FROM scratch AS empty");
    end_line(script);
    add(script, false, "FROM %.200s", source->name);
    end_line(script);
    cay_copy_text(script->user, sizeof script->user,
                  source->is_own && is_user(source->user) ? source->user : "user");
    if (!source->is_own) {
        set_user(script, script->user);
        add(script, true, "WORKDIR /home/user");
        end_line(script);
    }
    for (size_t at = 0; script_next(strings, count, &at, &step);) {
        script->step++;
        TRY(add_step(script, source, &step, err));
    }
    return script->text.failed
               ? cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                          "the template has too many steps",
                          "the limits are %d instructions and 1 MiB", SCRIPT_LINES)
               : CAY_OK;
}
