/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/sandbox-options.h"
#include "cli/terminal.h"

static const char op[] = "cli.options";

static int fail(const char *option, const char *text, const char *message,
                const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text, message, "write %s %s", option,
                    hint);
}

/* --- -e --- */

static int plan_env(const struct option_list *list, struct sandbox_plan *plan,
                    struct cay_error *err)
{
    size_t count = 0;

    plan->env = calloc(list->count + 2, sizeof *plan->env); /* one more for TERM */
    if (!plan->env)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->items[i];
        size_t len = strcspn(text, "=");
        if (len == 0)
            return fail("-e", text, "a variable needs a name", "NAME=VALUE", err);
        if (text[len]) {
            plan->env[count++] = text;
            continue;
        }
        /* The name alone passes on what the caller has; what it has not stays unset. */
        for (char **own = environ; *own; own++)
            if (strncmp(*own, text, len) == 0 && (*own)[len] == '=')
                plan->env[count++] = *own;
    }
    return CAY_OK;
}

/* A terminal inside is of the kind ours is, unless -e says otherwise. */
static void plan_terminal(const struct option_list *list, struct sandbox_plan *plan)
{
    const char *own = getenv("TERM");
    size_t count = 0;

    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->items[i], "TERM", 4) == 0 && strcspn(list->items[i], "=") == 4)
            return;
    if (!own || !*own || strlen(own) >= sizeof plan->terminal - 5)
        return;
    snprintf(plan->terminal, sizeof plan->terminal, "TERM=%s", own);
    while (plan->env[count])
        count++;
    plan->env[count] = plan->terminal;
}

/* --- -v --- */

static int plan_bind(char *text, const char *given, struct cay_bind *ret_bind,
                     char **ret_source, struct cay_error *err)
{
    static const char form[] = "SRC:DST, SRC:DST:ro or SRC:DST:rw";
    char *target = strchr(text, ':');
    char *mode = target ? strchr(target + 1, ':') : NULL;

    if (!target || target == text)
        return fail("-v", given, "SRC and DST are needed", form, err);
    *target++ = '\0';
    if (mode)
        *mode++ = '\0';
    if (mode && strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0)
        return fail("-v", given, "the mode is neither ro nor rw", form, err);
    if (*target != '/')
        return fail("-v", given, "DST is not an absolute path", "SRC:/DST", err);
    *ret_source = realpath(text, NULL);
    if (!*ret_source && errno == ENOENT)
        return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, op, text,
                        "there is nothing of this name to show inside",
                        "make it first; -v SRC:DST shows what is there already");
    if (!*ret_source)
        return cay_fail_errno(err, errno, op, text);
    *ret_bind = (struct cay_bind){*ret_source, target, !mode || strcmp(mode, "rw") == 0};
    return CAY_OK;
}

static int plan_binds(const struct option_list *list, struct sandbox_plan *plan,
                      struct cay_error *err)
{
    int code = CAY_OK;

    if (!list->count)
        return CAY_OK;
    plan->binds = calloc(list->count, sizeof *plan->binds);
    plan->binds_text = calloc(2 * list->count + 1, sizeof *plan->binds_text);
    if (!plan->binds || !plan->binds_text)
        return cay_fail_memory(err, op);
    for (size_t i = 0; !code && i < list->count; i++) {
        plan->binds_text[2 * i] = strdup(list->items[i]);
        plan->sandbox.bind_count = i + 1;
        if (!plan->binds_text[2 * i])
            return cay_fail_memory(err, op);
        code = plan_bind(plan->binds_text[2 * i], list->items[i], &plan->binds[i],
                         &plan->binds_text[2 * i + 1], err);
    }
    plan->sandbox.binds = plan->binds;
    return code;
}

/* --- The rest --- */

/* A name stays one; what has a slash, or is a dot, is a directory of this machine. */
static int plan_template(const char *given, struct sandbox_plan *plan,
                         struct cay_error *err)
{
    plan->sandbox.template_name = given;
    if (!given ||
        (!strchr(given, '/') && strcmp(given, ".") != 0 && strcmp(given, "..") != 0))
        return CAY_OK;
    plan->template_name = realpath(given, NULL);
    plan->sandbox.template_name = plan->template_name;
    if (!plan->template_name && errno == ENOENT)
        return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, op, given,
                        "there is no such directory to start from",
                        "cay template ls lists the templates that have a name");
    return plan->template_name ? CAY_OK : cay_fail_errno(err, errno, op, given);
}

static int check_together(const struct sandbox_options *options, struct cay_error *err)
{
    if (options->tty && options->as_json)
        return cay_fail(err, CAY_E_INVALID, 0, op, "-t",
                        "a terminal cannot be told as JSON", "leave out -t or -o json");
    if (options->detach && (options->interactive || options->tty))
        return cay_fail(err, CAY_E_INVALID, 0, op, "-d",
                        "what runs in the background has nobody to talk to",
                        "leave out -d, or -i and -t");
    return options->tty ? terminal_require(err) : CAY_OK;
}

static void fill(const struct sandbox_options *options, const char *const *argv,
                 struct sandbox_plan *plan)
{
    struct cay_sandbox_options *sandbox = &plan->sandbox;
    struct cay_exec_options *exec = &plan->exec;

    sandbox->size = sizeof *sandbox;
    sandbox->memory_bytes = options->memory;
    sandbox->disk_bytes = options->disk;
    sandbox->pids = options->pids;
    sandbox->cpu_percent = options->cpu_percent;
    sandbox->network = options->network ? CAY_NETWORK_HOST : CAY_NETWORK_NONE;
    sandbox->require = options->require;
    sandbox->policy = plan->policy;
    sandbox->ttl_ms = options->ttl_ms;
    sandbox->storage = options->storage ? CAY_STORAGE_DISK : CAY_STORAGE_MEMORY;
    if (!argv) { /* for every command to come, rather than for this one */
        sandbox->env = plan->env;
        sandbox->user = options->user;
        sandbox->workdir = options->workdir;
        return;
    }
    exec->size = sizeof *exec;
    exec->argv = argv;
    exec->env = plan->env;
    exec->cwd = options->workdir;
    exec->user = options->user;
    exec->timeout_ms = options->timeout_ms;
    exec->tag = options->tag;
    exec->flags = (options->tty ? CAY_EXEC_TTY : 0u) |
                  (options->interactive ? CAY_EXEC_INPUT : 0u) |
                  (options->detach ? CAY_EXEC_BACKGROUND : 0u);
    if (options->tty && terminal_size(&exec->rows, &exec->columns))
        return;
}

int sandbox_plan(const struct sandbox_options *options, const char *const *argv,
                 struct sandbox_plan *ret_plan, struct cay_error *err)
{
    struct sandbox_plan *plan = ret_plan;

    *plan = (struct sandbox_plan){.env = NULL};
    int code = check_together(options, err);
    if (!code)
        code = plan_env(&options->env, plan, err);
    if (!code)
        code = plan_binds(&options->binds, plan, err);
    if (!code)
        code = plan_template(options->template_name, plan, err);
    if (!code && options->config)
        code = cay_policy_load(options->config, NULL, &plan->policy, err);
    if (code) {
        sandbox_plan_done(plan);
        return code;
    }
    if (options->tty)
        plan_terminal(&options->env, plan);
    fill(options, argv, plan);
    return CAY_OK;
}

void sandbox_plan_done(struct sandbox_plan *plan)
{
    for (size_t i = 0; plan->binds_text && i < 2 * plan->sandbox.bind_count; i++)
        free(plan->binds_text[i]);
    free(plan->binds_text);
    free(plan->binds);
    free(plan->env);
    free(plan->template_name);
    cay_policy_free(plan->policy);
    *plan = (struct sandbox_plan){.env = NULL};
}
