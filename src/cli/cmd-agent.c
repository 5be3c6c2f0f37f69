/* SPDX-License-Identifier: Apache-2.0 */
/* cay agent: a coding agent of this machine in a try, with what its profile names. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cay/profile.h"
#include "cli/agent-program.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/network.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/scope.h"

static const char op[] = "cli.agent";

#define PLACE "/run/agent" /* where the files of the profile are visible inside */
#define PATHS "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static call_runner run_agent;

static const struct subcommand subcommands[] = {
    {"agent", "[NAME [--] [ARGUMENT]...]",
     "Run a coding agent of this machine on a copy-on-write view of a directory", 0,
     UINT32_MAX, run_agent, "Manual: cay-agent(1), cay-try(1).", 2, 125},
};

#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"list", 0, OPTION_FLAG, 1, FIELD(list), NULL, "list the agents"},
    {"explain", 0, OPTION_FLAG, 1, FIELD(dry_run), NULL,
     "print what the agent would get, and start nothing"},
    {"profile", 0, OPTION_TEXT, 1, FIELD(file), "FILE",
     "use this profile instead of NAME's"},
    {"directory", 'C', OPTION_TEXT, 1, FIELD(directory), "DIR",
     "the directory (default: this one)"},
    {"use", 0, OPTION_TEXT, 1, FIELD(use), "ID", "continue this try"},
    {"memory", 'm', OPTION_PARSED, 1, FIELD(memory), "SIZE",
     "memory limit (default: the profile's)", quantity_parse_size, SIZE_ALLOWED},
    {"timeout", 0, OPTION_PARSED, 1, FIELD(timeout_ms), "TIME",
     "kill the agent after 500ms, 30, 2m, ...", sandbox_parse_time, TIME_ALLOWED},
    {"env", 'e', OPTION_LIST, 1, FIELD(env), "NAME=VALUE",
     "set a variable; NAME alone copies its value"},
    {"volume", 'v', OPTION_LIST, 1, FIELD(binds), "SRC:DST[:ro]",
     "make SRC of the host, or a volume, visible as DST"},
    {"allow", 0, OPTION_LIST, 1, FIELD(allow), "RULE",
     "also let it reach github, *.example.com, HOST:PORT, ..."},
    {"deny", 0, OPTION_LIST, 1, FIELD(deny), "RULE",
     "never let it reach these, whatever is allowed", .is_rare = true},
    {"secret", 0, OPTION_LIST, 1, FIELD(secrets), "NAME=SOURCE",
     "env:VAR, file:PATH, stored:X; inside: a placeholder"},
    {"secret-for", 0, OPTION_LIST, 1, FIELD(secrets_for), "NAME=HOST[:WAY]",
     "send it there: bearer, basic, query, header=NAME", .is_rare = true},
    {"quiet", 'q', OPTION_FLAG, 1, FIELD(quiet), NULL,
     "print no note about a weak isolation level", .is_rare = true},
    {"output", 'o', OPTION_CHOICE, 1, FIELD(as_json), "text|json",
     "output format of --list and --explain: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar agent_grammar = {
    .program = "cay",
    .manual = "Manual: cay-agent(1), cay-try(1).",
    .subcommands = subcommands,
    .subcommand_count = 1,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* Copies files into the home directory inside, or links to them: ACTION PATH SOURCE ...
 * -- PROGRAM ARGUMENT ...  A file that cannot be copied is reported and left out. */
static const char script[] =
    "while [ \"$1\" != -- ]; do\n"
    "    mkdir -p \"$(dirname \"$HOME/$2\")\"\n"
    "    case $1 in\n"
    "    copy) cp -RT \"$3\" \"$HOME/$2\"; chmod -R u+w \"$HOME/$2\" ;;\n"
    "    show) ln -sfn \"$3\" \"$HOME/$2\" ;;\n"
    "    esac\n"
    "    shift 3\n"
    "done\n"
    "shift\n"
    "exec \"$@\"\n";

/* A file or directory of the profile that exists. */
struct held {
    const char *written; /* "~/.gitconfig" */
    char *source;
    char place[sizeof PLACE + 12];
    bool is_copy;
};

struct agent {
    struct cay_profile *profile;
    struct program program;
    struct held *held;
    size_t held_count;
    char path[sizeof PATHS + 4200]; /* "PATH=..." */
    const char **argv;
    const char **lists[4]; /* of the options, with those of the profile */
};

static void agent_done(struct agent *agent)
{
    for (size_t i = 0; i < agent->held_count; i++)
        free(agent->held[i].source);
    for (size_t i = 0; i < sizeof agent->lists / sizeof *agent->lists; i++)
        free(agent->lists[i]);
    free(agent->held);
    free(agent->argv);
    program_done(&agent->program);
    cay_profile_free(agent->profile);
}

/* --- What the profile names --- */

static int hold(struct agent *agent, const char *written, bool is_copy,
                struct cay_error *err)
{
    struct held *held = &agent->held[agent->held_count];
    const char *home = getenv("HOME");
    bool is_home = *written == '~';
    char path[PATH_MAX];

    int len = snprintf(path, sizeof path, "%s%s", is_home && home ? home : "",
                       written + is_home);
    if (len < 0 || (size_t)len >= sizeof path)
        return cay_fail_errno(err, ENAMETOOLONG, op, written);
    *held = (struct held){.written = written, .is_copy = is_copy};
    held->source = realpath(path, NULL);
    if (!held->source)
        return errno == ENOMEM ? cay_fail_memory(err, op) : CAY_OK; /* not there */
    if (is_home)
        snprintf(held->place, sizeof held->place, PLACE "/%zu", agent->held_count);
    agent->held_count++;
    return CAY_OK;
}

static int hold_all(struct agent *agent, struct cay_error *err)
{
    const struct cay_profile *profile = agent->profile;
    size_t count = env_count(profile->copy) + env_count(profile->show);

    agent->held = calloc(count + 1, sizeof *agent->held);
    if (!agent->held)
        return cay_fail_memory(err, op);
    for (const char *const *path = profile->copy; *path; path++)
        TRY(hold(agent, *path, true, err));
    for (const char *const *path = profile->show; *path; path++)
        TRY(hold(agent, *path, false, err));
    return CAY_OK;
}

/* Puts the profile's items before those of the command line. */
static int merge(const char *const *items, struct option_list *list,
                 const char ***ret_owned, struct cay_error *err)
{
    size_t count = env_count(items);
    const char **all = calloc(count + list->count + 1, sizeof *all);

    if (!all)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++)
        all[i] = items[i];
    for (size_t i = 0; i < list->count; i++)
        all[count + i] = list->items[i];
    list->items = *ret_owned = all;
    list->count += count;
    return CAY_OK;
}

/* Whether `text` begins with the name in "NAME=...". */
static bool has_name(const char *text, const char *assignment)
{
    size_t len = strcspn(assignment, "=");

    return strncmp(text, assignment, len) == 0 && (text[len] == '=' || !text[len]);
}

static bool is_given(const struct option_list *secrets, const char *assignment)
{
    for (size_t i = 0; i < secrets->count; i++)
        if (has_name(secrets->items[i], assignment))
            return true;
    return false;
}

static bool is_set(const char *assignment)
{
    AUTO_FREE char *name = strndup(assignment, strcspn(assignment, "="));
    const char *value = name ? getenv(name) : NULL;

    return value && *value;
}

/* The secrets of the profile that the environment or the command line has.  `texts` keeps
 * "NAME=env:NAME". */
static int merge_secrets(struct agent *agent, struct options *options,
                         struct cay_error *err)
{
    const char *const *all = agent->profile->secrets;
    size_t count = env_count(all), named = 0, hosts = 0;
    struct option_list *secrets = &options->secrets, *targets = &options->secrets_for;
    const size_t room = count + 1 + secrets->count;
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += 2 * strcspn(all[i], "=") + 6;
    /* The pointers, then the texts. */
    const char **names = calloc(1, room * sizeof *names + bytes);
    const char **places = calloc(count + 1 + targets->count, sizeof *places);
    agent->lists[0] = names;
    agent->lists[1] = places;
    if (!names || !places)
        return cay_fail_memory(err, op);
    char *text = (char *)(names + room), *end = text + bytes;
    for (size_t i = 0; i < secrets->count; i++)
        names[named++] = secrets->items[i];
    for (size_t i = 0; i < targets->count; i++)
        places[hosts++] = targets->items[i];
    for (size_t i = 0; i < count; i++) {
        int len = (int)strcspn(all[i], "=");
        const struct option_list so_far = {names, named};
        if (!is_given(&so_far, all[i])) {
            if (!is_set(all[i]))
                continue;
            names[named++] = text;
            int used = snprintf(text, (size_t)(end - text), "%.*s=env:%.*s", len, all[i],
                                len, all[i]);
            text += used + 1;
        }
        places[hosts++] = all[i];
    }
    *secrets = (struct option_list){names, named};
    *targets = (struct option_list){places, hosts};
    return CAY_OK;
}

/* --- The plan --- */

/* sh -c SCRIPT agent ACTION PATH SOURCE ... -- PROGRAM ARGUMENT ... */
static int plan_command(struct agent *agent, const char *const *words, size_t count,
                        struct cay_error *err)
{
    const struct cay_profile *profile = agent->profile;
    size_t used = 0;

    agent->argv =
        calloc(3 * agent->held_count + env_count(profile->arguments) + count + 8,
               sizeof *agent->argv);
    if (!agent->argv)
        return cay_fail_memory(err, op);
    agent->argv[used++] = "/bin/sh";
    agent->argv[used++] = "-c";
    agent->argv[used++] = script;
    agent->argv[used++] = "agent";
    for (size_t i = 0; i < agent->held_count; i++) {
        const struct held *held = &agent->held[i];
        if (!*held->place)
            continue;
        agent->argv[used++] = held->is_copy ? "copy" : "show";
        agent->argv[used++] = held->written + 2;
        agent->argv[used++] = held->place;
    }
    agent->argv[used++] = "--";
    agent->argv[used++] = agent->program.path;
    for (const char *const *word = profile->arguments; *word; word++)
        agent->argv[used++] = *word;
    for (size_t i = 0; i < count; i++)
        agent->argv[used++] = words[i];
    return CAY_OK;
}

/* Adds what is visible, read-only. */
static int plan_files(const struct agent *agent, struct sandbox_plan *plan,
                      struct cay_error *err)
{
    size_t count = plan->sandbox.bind_count;
    const struct program *program = &agent->program;
    struct cay_bind *binds =
        calloc(count + program->shown_count + agent->held_count + 1, sizeof *binds);

    if (!binds)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++)
        binds[i] = plan->sandbox.binds[i];
    for (size_t i = 0; i < program->shown_count; i++)
        binds[count++] = (struct cay_bind){.source = program->shown[i].source,
                                           .target = program->shown[i].target};
    for (size_t i = 0; i < agent->held_count; i++) {
        const struct held *held = &agent->held[i];
        binds[count++] = (struct cay_bind){
            .source = held->source, .target = *held->place ? held->place : held->written};
    }
    free(plan->binds);
    plan->binds = binds;
    plan->sandbox.binds = binds;
    plan->sandbox.bind_count = count;
    return CAY_OK;
}

static int adjust(struct sandbox_plan *plan, void *cookie, struct cay_error *err)
{
    struct agent *agent = cookie;
    uint64_t memory = plan->sandbox.memory_bytes;

    TRY(plan_files(agent, plan, err));
    if (!memory)
        memory = plan->sandbox.memory_bytes = agent->profile->memory_bytes;
    if (memory / 2 > CAY_DISK_DEFAULT)
        plan->sandbox.disk_bytes = memory / 2;
    if (agent->program.needs_root)
        plan->sandbox.user = plan->exec.user = "root";
    plan->exec.argv = agent->argv;
    return CAY_OK;
}

/* --- list and explain --- */

struct row {
    const char *name;
    struct cay_profile *profile;
    struct cay_error err;
    bool is_installed, has_key;
};

static void put_row(struct json *json, const void *item)
{
    const struct row *row = item;

    json_set_text(json, "name", row->name);
    json_set_text(json, "title", row->profile ? row->profile->title : NULL);
    json_set_text(json, "profile", row->profile ? row->profile->origin : NULL);
    json_set_bool(json, "installed", row->is_installed);
    json_set_bool(json, "key", row->has_key);
    json_set_text(json, "error", row->profile ? NULL : row->err.message);
}

static void add_row(struct table *table, const void *item)
{
    const struct row *row = item;
    const struct cay_profile *profile = row->profile;

    table_cell(table, "%s", row->name);
    table_cell(table, "%s",
               !profile            ? "invalid"
               : !profile->command ? "-"
               : row->is_installed ? "yes"
                                   : "no");
    table_cell(table, "%s",
               profile && *profile->secrets ? (row->has_key ? "yes" : "no") : "-");
    table_cell(table, "%s", profile ? profile->origin : "-");
    table_cell(table, "%s", profile ? profile->title : row->err.message);
}

static void fill_row(struct row *row)
{
    struct program program = {.path = NULL};

    if (cay_profile_load(row->name, &row->profile, &row->err) != CAY_OK)
        return;
    if (row->profile->command) {
        row->is_installed = program_find(row->profile->command, &program, NULL) == CAY_OK;
        program_done(&program);
    }
    for (const char *const *secret = row->profile->secrets; *secret; secret++)
        row->has_key |= is_set(*secret);
}

static int list_agents(struct call *call, struct cay_error *err)
{
    static const struct call_list agents = {"agents",
                                            "NAME|INSTALLED|KEY|PROFILE|TITLE",
                                            sizeof(struct row),
                                            put_row,
                                            add_row,
                                            NULL};
    AUTO_FREE const char *const *names = NULL;
    size_t count;

    call->options.quiet = false; /* has no meaning here */
    TRY(cay_profile_list(&names, &count, err));
    AUTO_FREE struct row *rows = calloc(count + 1, sizeof *rows);
    if (!rows)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++) {
        rows[i].name = names[i];
        fill_row(&rows[i]);
    }
    int code = call_list(call, &agents, rows, count, err);
    for (size_t i = 0; i < count; i++)
        cay_profile_free(rows[i].profile);
    return code;
}

static void put_line(FILE *file, const char *key, const char *text, const char *more)
{
    fprintf(file, "%-9s ", key);
    show_name(file, text);
    if (more) {
        fputs("  (", file);
        show_name(file, more);
        fputc(')', file);
    }
    fputc('\n', file);
}

static void print_explanation(const struct agent *agent, const struct call *call,
                              const cay_policy *policy)
{
    const struct options *options = &call->options;
    const struct cay_profile *profile = agent->profile;
    struct cay_network_rule rule;
    FILE *file = call->output.file;
    char room[QUANTITY_ROOM];

    put_line(file, "agent", profile->title, profile->origin);
    if (agent->program.path)
        put_line(file, "program", agent->program.path,
                 agent->program.needs_root ? "as root of the sandbox" : NULL);
    for (size_t i = 0; i < agent->program.shown_count; i++)
        put_line(file, "show", agent->program.shown[i].target, "of the program");
    for (size_t i = 0; i < agent->held_count; i++)
        put_line(file, agent->held[i].is_copy ? "copy" : "show", agent->held[i].written,
                 NULL);
    for (size_t i = 0; i < options->env.count; i++)
        put_line(file, "env", options->env.items[i], NULL);
    for (size_t i = 0; i < options->secrets.count; i++)
        put_line(file, "secret", options->secrets.items[i], "a placeholder inside");
    for (size_t i = 0; i < options->secrets_for.count; i++)
        put_line(file, "sent to", options->secrets_for.items[i], NULL);
    for (size_t i = 0; cay_policy_network_rule(policy, i, &rule); i++)
        put_line(file, *rule.text == '!' ? "deny" : "allow",
                 rule.text + (*rule.text == '!'), *rule.group ? rule.group : NULL);
    uint64_t memory = options->memory ? options->memory : profile->memory_bytes;
    put_line(file, "memory", quantity_bytes(memory ? memory : CAY_MEMORY_DEFAULT, room),
             NULL);
}

static void put_list(struct json *json, const char *key, const char *const *items,
                     size_t count)
{
    json_put_key(json, key);
    json_put_array(json);
    for (size_t i = 0; i < count; i++)
        json_put_bytes(json, items[i], strlen(items[i]));
    json_put_end(json);
}

static void put_explanation(const struct agent *agent, struct call *call,
                            const cay_policy *policy)
{
    const struct options *options = &call->options;
    struct json *json = output_json(&call->output);

    json_set_text(json, "title", agent->profile->title);
    json_set_text(json, "profile", agent->profile->origin);
    json_set_text(json, "program", agent->program.path);
    json_put_key(json, "show");
    json_put_array(json);
    for (size_t i = 0; i < agent->program.shown_count; i++)
        json_put_text(json, agent->program.shown[i].target);
    for (size_t i = 0; i < agent->held_count; i++)
        if (!agent->held[i].is_copy)
            json_put_text(json, agent->held[i].written);
    json_put_end(json);
    json_put_key(json, "copy");
    json_put_array(json);
    for (size_t i = 0; i < agent->held_count; i++)
        if (agent->held[i].is_copy)
            json_put_text(json, agent->held[i].written);
    json_put_end(json);
    put_list(json, "env", options->env.items, options->env.count);
    put_list(json, "secrets", options->secrets.items, options->secrets.count);
    put_list(json, "secrets_for", options->secrets_for.items, options->secrets_for.count);
    network_put_rules(json, policy);
}

static int explain(const struct agent *agent, struct call *call, struct cay_error *err)
{
    AUTO(cay_policy) policy = NULL;

    TRY(network_plan(&call->options, NULL, &policy, err));
    if (call->options.as_json)
        put_explanation(agent, call, policy);
    else
        print_explanation(agent, call, policy);
    return output_finish(&call->output, err);
}

/* --- agent --- */

static int find_program(struct agent *agent, const char *name, struct cay_error *err)
{
    const struct cay_profile *profile = agent->profile;
    struct cay_error own;

    int code = program_find(name, &agent->program, &own);
    if (code == CAY_E_NOT_FOUND && profile->command && profile->install)
        return cay_fail(err, code, ENOENT, op, name, own.message, "%s installs it",
                        profile->install);
    return code ? cay_fail_as(err, code, &own) : CAY_OK;
}

/* The profile and the program; `ret_rest` is the number of words before the arguments. */
static int find_agent(struct call *call, struct agent *agent, unsigned *ret_rest,
                      struct cay_error *err)
{
    const struct options *options = &call->options;
    const char *const *words = call->line.arguments;
    unsigned rest = options->file && !options->dry_run && !call->line.count ? 0 : 1;
    AUTO_FREE char *file = NULL;

    /* A file in this directory is not a name. */
    if (options->file && asprintf(&file, "%s%s", strchr(options->file, '/') ? "" : "./",
                                  options->file) < 0)
        return cay_fail_memory(err, op);
    if (!options->file && !call->line.count)
        return cay_fail(err, CAY_E_INVALID, 0, op, "NAME", "no agent given",
                        "cay agent --list lists them");
    TRY(cay_profile_load(file ? file : words[0], &agent->profile, err));
    const char *command = agent->profile->command;
    if (!command && rest < call->line.count)
        command = words[rest++];
    if (!command && !options->dry_run)
        return cay_fail(err, CAY_E_INVALID, 0, op, agent->profile->name,
                        "no command given", "cay agent %s -- COMMAND runs it",
                        agent->profile->name);
    *ret_rest = rest < call->line.count ? rest : call->line.count;
    return command ? find_program(agent, command, err) : CAY_OK;
}

static int merge_options(struct agent *agent, struct options *options,
                         struct cay_error *err)
{
    const struct cay_profile *profile = agent->profile;

    TRY(merge_secrets(agent, options, err));
    TRY(merge(profile->allow, &options->allow, &agent->lists[2], err));
    TRY(merge(profile->env, &options->env, &agent->lists[3], err));
    if (*agent->program.directories) {
        const char **more = calloc(options->env.count + 2, sizeof *more);
        if (!more)
            return cay_fail_memory(err, op);
        snprintf(agent->path, sizeof agent->path, "PATH=%s:" PATHS,
                 agent->program.directories);
        more[0] = agent->path;
        for (size_t i = 0; i < options->env.count; i++)
            more[i + 1] = options->env.items[i];
        free(agent->lists[3]);
        options->env =
            (struct option_list){agent->lists[3] = more, options->env.count + 1};
    }
    return CAY_OK;
}

static int start(struct agent *agent, struct call *call, unsigned rest,
                 struct cay_error *err)
{
    const char *const *words = call->line.arguments;

    if (*agent->profile->secrets && !call->options.secrets.count)
        fprintf(stderr,
                "cay: note: %s has no key: set %.*s, or write --secret NAME=SOURCE\n",
                agent->profile->name, (int)strcspn(agent->profile->secrets[0], "="),
                agent->profile->secrets[0]);
    TRY(plan_command(agent, words + rest, call->line.count - rest, err));
    call->options.interactive = true;
    call->options.tty = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    call->options.as_json = 0;
    scope_join();
    return try_run(call, adjust, agent, err);
}

static int run_agent(struct call *call, struct cay_error *err)
{
    struct agent agent = {.profile = NULL};
    unsigned rest = 0;

    if (call->options.list || (!call->line.count && !call->options.file))
        return list_agents(call, err);
    int code = find_agent(call, &agent, &rest, err);
    if (!code)
        code = hold_all(&agent, err);
    if (!code)
        code = merge_options(&agent, &call->options, err);
    if (!code)
        code = call->options.dry_run ? explain(&agent, call, err)
                                     : start(&agent, call, rest, err);
    agent_done(&agent);
    return code;
}
