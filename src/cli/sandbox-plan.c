/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/env.h"
#include "base/error.h"
#include "cli/quantity.h"
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

/* What getenv(3) would find, with its name. */
static const char *find_own(const char *name, size_t len)
{
    for (char **own = environ; *own; own++)
        if (strncmp(*own, name, len) == 0 && (*own)[len] == '=')
            return *own;
    return NULL;
}

static int plan_env(const struct option_list *list, struct sandbox_plan *plan,
                    struct cay_error *err)
{
    size_t count = 0, more = env_count(plan->sandbox.env);

    /* One more for TERM. */
    plan->env = calloc(list->count + more + 2, sizeof *plan->env);
    if (!plan->env)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->items[i];
        size_t len = strcspn(text, "=");
        if (len == 0)
            return fail("-e", text, "a variable needs a name", "NAME=VALUE", err);
        for (size_t j = 0; j < len; j++)
            if (isspace((unsigned char)text[j]) || iscntrl((unsigned char)text[j]))
                return fail("-e", text, "the variable's name contains a blank",
                            "NAME=VALUE", err);
        if (text[len]) {
            plan->env[count++] = text;
            continue;
        }
        /* The name alone passes on what the caller has; what it has not stays unset. */
        const char *own = find_own(text, len);
        if (own)
            plan->env[count++] = own;
    }
    return CAY_OK;
}

/* A terminal inside is of the kind ours is, unless -e says otherwise. */
static void plan_terminal(const struct option_list *list, struct sandbox_plan *plan)
{
    const char *own = getenv("TERM");

    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->items[i], "TERM", 4) == 0 && strcspn(list->items[i], "=") == 4)
            return;
    if (!own || !*own || strlen(own) >= sizeof plan->terminal - 5)
        return;
    snprintf(plan->terminal, sizeof plan->terminal, "TERM=%s", own);
    plan->env[env_count(plan->env)] = plan->terminal;
}

/* --- -v --- */

/* "/src,ro", where ":ro" was meant: the directory would be writable. */
static bool ends_in_mode(const char *target)
{
    static const char *const modes[] = {"ro", "rw", "z", "Z", "readonly"};
    const char *comma = strrchr(target, ',');

    for (size_t i = 0; comma && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(comma + 1, modes[i]) == 0)
            return true;
    return false;
}

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
    if (ends_in_mode(target))
        return fail("-v", given, "DST ends in a comma and a mode", form, err);
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

static bool has_target(const struct cay_bind *binds, size_t count, const char *target)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(binds[i].target, target) == 0)
            return true;
    return false;
}

static int plan_binds(const struct option_list *list, struct sandbox_plan *plan,
                      struct cay_error *err)
{
    const struct cay_sandbox_options configured = plan->sandbox;
    int code = CAY_OK;

    if (!list->count)
        return CAY_OK;
    plan->binds = calloc(list->count + configured.bind_count, sizeof *plan->binds);
    plan->binds_text = calloc(2 * list->count, sizeof *plan->binds_text);
    if (!plan->binds || !plan->binds_text)
        return cay_fail_memory(err, op);
    for (size_t i = 0; !code && i < list->count; i++) {
        plan->binds_text[2 * i] = strdup(list->items[i]);
        plan->given_count = i + 1;
        if (!plan->binds_text[2 * i])
            return cay_fail_memory(err, op);
        code = plan_bind(plan->binds_text[2 * i], list->items[i], &plan->binds[i],
                         &plan->binds_text[2 * i + 1], err);
    }
    plan->sandbox.binds = plan->binds;
    plan->sandbox.bind_count = plan->given_count;
    for (size_t i = 0; !code && i < configured.bind_count; i++)
        if (!has_target(plan->binds, list->count, configured.binds[i].target))
            plan->binds[plan->sandbox.bind_count++] = configured.binds[i];
    return code;
}

/* --- The rest --- */

/* A name stays one; what has a slash, or is a dot, is a directory of this machine. */
static int plan_template(const char *given, struct sandbox_plan *plan,
                         struct cay_error *err)
{
    if (!given)
        return CAY_OK;
    plan->sandbox.template_name = given;
    if (!strchr(given, '/') && strcmp(given, ".") != 0 && strcmp(given, "..") != 0)
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
    return options->tty
               ? terminal_require(
                     "-t", "leave -t out; -i alone passes a pipe or a file on", err)
               : CAY_OK;
}

/* For every command to come, rather than for this one. */
static void fill_usual(const struct sandbox_options *options, struct sandbox_plan *plan)
{
    struct cay_sandbox_options *sandbox = &plan->sandbox;
    const char *const *configured = sandbox->env;
    size_t count = env_count(plan->env);

    for (size_t i = 0; configured && configured[i]; i++)
        if (!env_sets(plan->env, configured[i]))
            plan->env[count++] = configured[i];
    sandbox->env = plan->env;
    if (options->workdir) {
        sandbox->workdir = options->workdir;
        sandbox->make_workdir = false;
    }
}

/* A configuration may be meant for a larger machine, so this is not an error. */
static void note_large_memory(uint64_t limit)
{
    char asked[QUANTITY_ROOM], there[QUANTITY_ROOM];
    struct sysinfo machine;

    if (!limit || sysinfo(&machine) != 0)
        return;
    uint64_t total = ((uint64_t)machine.totalram + machine.totalswap) * machine.mem_unit;
    if (limit > total)
        fprintf(stderr,
                "cay: note: --memory %s is more than the %s of this machine, which the "
                "sandbox can use up\n",
                quantity_bytes(limit, asked), quantity_bytes(total, there));
}

static void fill_sandbox(const struct sandbox_options *options,
                         struct cay_sandbox_options *sandbox)
{
    sandbox->size = sizeof *sandbox;
    if (options->memory)
        sandbox->memory_bytes = options->memory;
    if (options->disk)
        sandbox->disk_bytes = options->disk;
    if (options->pids)
        sandbox->pids = options->pids;
    if (options->cpu_percent)
        sandbox->cpu_percent = options->cpu_percent;
    if (options->ttl_ms)
        sandbox->ttl_ms = options->ttl_ms;
    if (options->network >= 0)
        sandbox->network = options->network ? CAY_NETWORK_HOST : CAY_NETWORK_NONE;
    if (options->storage >= 0)
        sandbox->storage = options->storage ? CAY_STORAGE_DISK : CAY_STORAGE_MEMORY;
    if (options->user)
        sandbox->user = options->user;
    if (options->name)
        sandbox->name = options->name;
    sandbox->require |= options->require;
}

static void fill_exec(const struct sandbox_options *options, const char *const *argv,
                      struct sandbox_plan *plan)
{
    struct cay_exec_options *exec = &plan->exec;

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
    if (options->tty)
        (void)terminal_size(&exec->rows, &exec->columns);
}

int sandbox_plan(const struct sandbox_options *options,
                 const struct cay_sandbox_options *configured, const char *const *argv,
                 struct sandbox_plan *ret_plan, struct cay_error *err)
{
    struct sandbox_plan *plan = ret_plan;

    *plan = (struct sandbox_plan){.env = NULL};
    if (configured)
        plan->sandbox = *configured;
    int code = check_together(options, err);
    if (!code && argv && !argv[0][0])
        code = cay_fail(err, CAY_E_INVALID, 0, op, "COMMAND", "a command needs a name",
                        "name a program inside, like sh");
    if (!code)
        code = plan_env(&options->env, plan, err);
    if (!code)
        code = plan_binds(&options->binds, plan, err);
    if (!code)
        code = plan_template(options->template_name, plan, err);
    if (code) {
        sandbox_plan_done(plan);
        return code;
    }
    if (options->tty)
        plan_terminal(&options->env, plan);
    note_large_memory(options->memory);
    fill_sandbox(options, &plan->sandbox);
    if (argv)
        fill_exec(options, argv, plan);
    else
        fill_usual(options, plan);
    return CAY_OK;
}

void sandbox_plan_done(struct sandbox_plan *plan)
{
    for (size_t i = 0; plan->binds_text && i < 2 * plan->given_count; i++)
        free(plan->binds_text[i]);
    free(plan->binds_text);
    free(plan->binds);
    free(plan->env);
    free(plan->template_name);
    *plan = (struct sandbox_plan){.env = NULL};
}
