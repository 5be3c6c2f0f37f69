/* SPDX-License-Identifier: Apache-2.0 */
/* The full program, with every command; front.c is the small one. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "cay/backend.h"
#include "cay/session.h"
#include "cli/approve.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/scope.h"

/* --- Sandboxes --- */

static const char op[] = "cli.options";

static int configure(struct call *call, struct cay_error *err)
{
    const char *file = call->options.config;

    TRY(cay_config_load(file, &call->config, err));
    const char *type = cay_config_type(call->config);
    if (strcmp(type, "native") != 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, file,
                        "this command creates native sandboxes only",
                        "its type is %s: cay session start --config %s starts it", type,
                        file);
    if (cay_config_has(call->config, "sandbox_id"))
        return cay_fail(
            err, CAY_E_INVALID, 0, op, file,
            "the configuration has a sandbox_id, but this command creates a new sandbox",
            "cay exec %s -- COMMAND uses that one",
            cay_config_text(call->config, "sandbox_id"));
    return cay_sandbox_options_new(call->config, &call->configured, err);
}

static void release(struct call *call)
{
    cay_sandbox_options_free(call->configured);
    cay_config_free(call->config);
}

/* A local sandbox is not isolated, so the library opens one only for a caller that asks
 * for this backend by name.  Here the user names it by its id. */
static int open_local(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    static const char local[] = "type: local";
    AUTO(cay_config) config = NULL;

    TRY(cay_config_parse(local, strlen(local), "cay", NULL, &config, err));
    return cay_backend_connect(config, id, ret_sandbox, err);
}

/* Removes what session starts that crashed have left.  If there is no directory for
 * sessions, there are none. */
static int collect_sessions(size_t *ret_count, struct cay_error *err)
{
    struct cay_error own;
    cay_store *store = NULL;
    int code = cay_store_open(NULL, &store, &own);

    if (code == CAY_E_UNAVAILABLE)
        return CAY_OK;
    if (!code)
        code = cay_store_collect(store, ret_count, &own);
    cay_store_free(store);
    if (code)
        *err = own;
    return code;
}

const struct sandbox_program sandbox_program = {
    .rollback = cay_sandbox_rollback_with,
    .start = approve_start,
    .watch_egress = egress_watch,
    .configure = configure,
    .release = release,
    .open_local = open_local,
    .send_dir = cp_send_dir,
    .send_archive = cp_send_archive,
    .receive_dir = cp_receive_dir,
    .collect_sessions = collect_sessions,
    .try = cmd_try,
    .checkpoint_try = cmd_checkpoint_try,
    .mcp = cmd_mcp,
    .doctor = cmd_doctor,
    .list_warm = cay_warm_list,
    .contexts = &fork_contexts,
};

/* --- Commands --- */

static const char commands_help[] =
    "  run, create, fork         Run a command in a new sandbox; create or fork one\n"
    "  exec, shell, ps, logs     Run commands in it; list them; print their output\n"
    "  code, context             Run code in an interpreter that keeps its variables\n"
    "  ls, inspect, checkpoints  List sandboxes; show one; list its checkpoints\n"
    "  cp, cat, put              Copy files in and out, print one, write one\n"
    "  network, events           Change what a sandbox reaches; print what it tried\n"
    "  forward, port             Forward ports of a sandbox; list them\n"
    "  checkpoint, rollback      Save the state of a sandbox's files; restore it\n"
    "  agent, try, diff, apply, discard  Work on a view of a directory; look; apply\n"
    "  pause, resume, start      Freeze a sandbox; thaw it; start it again from disk\n"
    "  session, files, approve   Named sandboxes; files under a policy; approvals\n"
    "  config, explain           Check a configuration; show which rule decides\n"
    "  snapshot, volume          Store files under a name; keep them for sandboxes\n"
    "  template, build           Manage templates; build one from a Dockerfile\n"
    "  kill, rm, gc, pool, warm  End it; remove it; clean up; prepare others ahead\n"
    "  mcp, serve, key, secret, env, audit  MCP, E2B SDKs; keys, secrets, record\n"
    "  doctor, setup, help, version  Check or prepare this machine; this help\n";

typedef int command(char *const *argv); /* what follows the command's name */

static command cmd_help, cmd_serve, cmd_version;

static const struct {
    const char *name;
    const struct grammar *grammar; /* or NULL */
    command *run;
} commands[] = {
    {"agent", &agent_grammar, NULL},
    {"apply", &try_grammar, NULL},
    {"approve", &approve_grammar, NULL},
    {"audit", NULL, cmd_serve},
    {"build", &build_grammar, NULL},
    {"code", &code_grammar, NULL},
    {"config", &config_grammar, NULL},
    {"context", &context_grammar, NULL},
    {"diff", &diff_grammar, NULL},
    {"discard", &try_grammar, NULL},
    {"env", NULL, cmd_serve},
    {"explain", &explain_grammar, NULL},
    {"files", &files_grammar, NULL},
    {"help", NULL, cmd_help},
    {"key", NULL, cmd_serve},
    {"pool", &pool_grammar, NULL},
    {"secret", NULL, cmd_serve},
    {"serve", NULL, cmd_serve},
    {"session", &session_grammar, NULL},
    {"setup", &setup_grammar, NULL},
    {"snapshot", &snapshot_grammar, NULL},
    {"template", &template_grammar, NULL},
    {"version", NULL, cmd_version},
    {"volume", &volume_grammar, NULL},
    {"warm", &warm_grammar, NULL},
};

#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static int finish(struct output *output)
{
    struct cay_error err;
    int rc = output_finish(output, &err);

    output_close(output);
    return rc ? output_error(&err, false) : 0;
}

static int show_help(void)
{
    struct output output;
    struct cay_error err;

    if (output_open(&output, &err))
        return output_error(&err, false);
    fputs("Usage: cay COMMAND [ARGUMENT]...\n"
          "Fast, isolated sandboxes for AI agents, on your own Linux machine.\n\n",
          output.file);
    fputs(commands_help, output.file);
    fputs("\n"
          "  cay run -it -v .:/src -w /src -- bash\n\n"
          "cay COMMAND --help lists the options. Manual: cay(1), errors: "
          "cay-errors(7).\n",
          output.file);
    return finish(&output);
}

static int cmd_version(char *const *argv)
{
    struct output output;
    struct cay_error err;

    if (argv[0] && strcmp(argv[0], "--help") == 0)
        return show_help();
    if (argv[0]) {
        cay_fail(&err, CAY_E_INVALID, 0, "cli.main", argv[0], "too many arguments",
                 "usage: cay version");
        return output_error(&err, false);
    }
    if (output_open(&output, &err))
        return output_error(&err, false);
    fprintf(output.file, "cay %s\n", cay_version());
    return finish(&output);
}

/* `cay serve`, `cay key`, `cay secret` and `cay env` are another program, with the same
 * words. */
static int cmd_serve(char *const *argv)
{
    struct cay_error err;

    if (strcmp(argv[-1], "serve") == 0)
        scope_join();
    (void)cli_exec("cay-serve", argv - 2, &err);
    return output_error(&err, false);
}

/* Commands of similar programs, and what to do here instead. */
static const struct {
    const char *theirs, *hint;
} habits[] = {
    {"attach", "did you mean shell?"},
    {"commit",
     "cay has no snapshots yet; cay checkpoint saves the files while the sandbox runs, "
     "cay cp ID:/ - writes them as a tar archive"},
    {"copy", "did you mean cp?"},
    {"delete", "did you mean rm?"},
    {"images", "did you mean template ls?"},
    {"list", "did you mean ls?"},
    {"prune", "did you mean gc?"},
    {"pull", "did you mean template create?"},
    {"remove", "did you mean rm?"},
    {"restart", "cay kill ID, then cay start ID if its files are on disk"},
    {"snapshot",
     "cay has no snapshots yet; cay cp ID:/ - writes the files as a tar archive"},
    {"stats", "cay inspect ID reports memory and CPU use, cay ps ID the commands"},
    {"stop", "did you mean kill?"},
    {"top", "did you mean ps?"},
    {"unpause", "did you mean resume?"},
    {"wait", "cay logs -f ID PID|TAG waits until a background command ends"},
};

/* The nearest of all commands, or NULL. */
static const char *nearest_command(const char *name)
{
    const char *names[COMMAND_COUNT + SANDBOX_COMMANDS];
    size_t count = 0;

    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[count++] = commands[i].name;
    for (size_t i = 0; i < SANDBOX_COMMANDS; i++)
        names[count++] = sandbox_grammar.subcommands[i].name;
    return nearest_name(name, names, sizeof *names, count);
}

/* `argv` starts with the command's name, and the program's is before it. */
static int run_command(char *const *argv)
{
    struct cay_error err;
    const char *name = argv[0];

    for (size_t i = 0; i < SANDBOX_COMMANDS; i++)
        if (strcmp(name, sandbox_grammar.subcommands[i].name) == 0)
            return call_run(&sandbox_grammar, argv);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i].name) == 0) {
            /* The subcommand of `cay code` and similar ones is its own name. */
            bool is_whole = commands[i].grammar == &agent_grammar ||
                            commands[i].grammar == &build_grammar ||
                            commands[i].grammar == &code_grammar ||
                            commands[i].grammar == &diff_grammar ||
                            commands[i].grammar == &setup_grammar ||
                            commands[i].grammar == &try_grammar;
            return commands[i].grammar
                       ? call_run(commands[i].grammar, is_whole ? argv : argv + 1)
                       : commands[i].run(argv + 1);
        }
    const char *hint = NULL, *nearest = nearest_command(name);
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
        if (strcmp(name, habits[i].theirs) == 0)
            hint = habits[i].hint;
    if (hint)
        cay_fail(&err, CAY_E_INVALID, 0, "cli.main", name, "unknown command", "%s", hint);
    else if (nearest)
        cay_fail(&err, CAY_E_INVALID, 0, "cli.main", name, "unknown command",
                 "did you mean %s?", nearest);
    else
        cay_fail(&err, CAY_E_INVALID, 0, "cli.main", name,
                 name[0] == '-' ? "unknown option" : "unknown command",
                 "cay --help lists the commands");
    return output_error(&err, options_want_json(argv));
}

static int cmd_help(char *const *argv)
{
    char cay[] = "cay", help[] = "--help";
    char *words[] = {cay, argv[0], argv[0] ? argv[1] : NULL, help, NULL};

    if (!argv[0] || strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0)
        return show_help();
    if (!words[2]) {
        words[2] = help;
        words[3] = NULL;
    }
    return run_command(words + 1);
}

int main(int argc, char **argv)
{
    cli_begin();
    egress_keep_arguments(argv);
    if (argc < 2) {
        struct cay_error err;
        cay_fail(&err, CAY_E_INVALID, 0, "cli.main", "cay", "no command given",
                 "cay --help lists the commands");
        return output_error(&err, false);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return show_help();
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return cmd_version(argv + 2);
    return run_command(argv + 1);
}
