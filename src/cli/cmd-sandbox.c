/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd-sandbox.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/signal.h"
#include "cay/volume.h"
#include "cli/network.h"
#include "cli/scope.h"
#include "cli/stream.h"

/* --- Options --- */

/* "500ms", "30" (seconds), "2m", "1h", "1d" into uint64_t milliseconds; not 0. */
bool sandbox_parse_time(const char *text, void *field)
{
    static const struct quantity_unit units[] = {
        {"", 1000},     {"ms", 1},    {"s", 1000}, {"m", 60000},
        {"h", 3600000}, {"d", 864e5}, {NULL, 0},
    };
    double ms;

    if (!quantity_parse(text, units, &ms) || ms < 1)
        return false;
    *(uint64_t *)field = (uint64_t)ms;
    return true;
}

/* "4" into uint32_t; not 0. */
static bool parse_count(const char *text, void *field)
{
    static const struct quantity_unit units[] = {{"", 1}, {NULL, 0}};
    double value;

    if (!quantity_parse(text, units, &value) || value < 1 || value > UINT32_MAX ||
        strspn(text, "0123456789") != strlen(text))
        return false;
    *(uint32_t *)field = (uint32_t)value;
    return true;
}

/* "0.5", "2" into uint32_t hundredths; not 0. */
static bool parse_share(const char *text, void *field)
{
    static const struct quantity_unit units[] = {{"", 100}, {NULL, 0}};
    double value;

    if (!quantity_parse(text, units, &value) || value < 1 || value > 1e7)
        return false;
    *(uint32_t *)field = (uint32_t)(value + 0.5);
    return true;
}

/* A layer's name, or several with commas; each adds to the set. */
static bool parse_layers(const char *text, void *field)
{
    unsigned found = 0;

    for (;; text++) {
        size_t len = strcspn(text, ",");
        unsigned layer = 1;
        const char *slug;
        while ((slug = cay_layer_slug(layer)) &&
               (strlen(slug) != len || memcmp(slug, text, len) != 0))
            layer <<= 1;
        if (!slug)
            return false;
        found |= layer;
        text += len;
        if (!*text)
            break;
    }
    *(unsigned *)field |= found;
    return true;
}

/* "TERM", "SIGTERM" or "15". */
static bool parse_signal(const char *text, void *field)
{
    uint32_t number;

    if (parse_count(text, &number) && number < 65) {
        *(int *)field = (int)number;
        return true;
    }
    *(int *)field = signal_by_name(strncmp(text, "SIG", 3) == 0 ? text + 3 : text);
    return *(int *)field != 0;
}

/* Exit status if cay itself fails, not the command: as env(1) and timeout(1) do. */
enum { STATUS_OURS = 125 };

static call_runner run_doctor, run_command, run_mcp, run_try;

#define MANUAL(page) "Manual: " page "(1)."
#define MANUAL_OF_COMMAND(page)                                                          \
    "Exit status 124: timeout, 125: cay error, 126/127: not run. " MANUAL(page)

static const struct subcommand commands[] = {
    [SANDBOX_RUN] = {"run", "[--] COMMAND [ARGUMENT]...",
                     "Run a command in a new sandbox, then remove the sandbox", 1,
                     UINT32_MAX, cmd_run, MANUAL_OF_COMMAND("cay-run"), 1, STATUS_OURS},
    [SANDBOX_TRY] = {"try", "[--] COMMAND [ARGUMENT]...",
                     "Run a command on a copy-on-write view of a directory", 0,
                     UINT32_MAX, run_try, MANUAL_OF_COMMAND("cay-try"), 1, STATUS_OURS},
    [SANDBOX_CREATE] = {"create", "", "Create a sandbox, and print its ID", 0, 0,
                        cmd_create, MANUAL("cay-create")},
    [SANDBOX_EXEC] = {"exec", "ID [--] COMMAND [ARGUMENT]...",
                      "Run a command in a sandbox", 2, UINT32_MAX, cmd_exec,
                      MANUAL_OF_COMMAND("cay-exec"), 2, STATUS_OURS},
    [SANDBOX_SHELL] = {"shell", "ID", "Open a shell in a sandbox", 1, 1, cmd_shell,
                       MANUAL("cay-exec"), 0, STATUS_OURS},
    [SANDBOX_LS] = {"ls", "", "List the sandboxes", 0, 0, cmd_ls, MANUAL("cay-ls")},
    [SANDBOX_INSPECT] = {"inspect", "ID", "Show a sandbox in detail", 1, 1, cmd_inspect,
                         MANUAL("cay-ls")},
    [SANDBOX_PS] = {"ps", "ID", "List the processes of a sandbox", 1, 1, cmd_ps,
                    MANUAL("cay-ps")},
    [SANDBOX_LOGS] = {"logs", "ID [PID|TAG]", "Print the output of a background command",
                      1, 2, cmd_logs, MANUAL("cay-ps")},
    [SANDBOX_CP] = {"cp", "SOURCE DESTINATION", "Copy files into a sandbox or out of it",
                    2, 2, cmd_cp, MANUAL("cay-cp")},
    [SANDBOX_CAT] = {"cat", "ID PATH", "Print a file of a sandbox", 2, 2, cmd_cat,
                     MANUAL("cay-cp")},
    [SANDBOX_PUT] = {"put", "ID PATH", "Write standard input to a file of a sandbox", 2,
                     2, cmd_put, MANUAL("cay-cp")},
    [SANDBOX_NETWORK] = {"network", "ID", "Show or change the network rules of a sandbox",
                         1, 1, cmd_network, MANUAL("cay-network")},
    [SANDBOX_EVENTS] = {"events", "ID",
                        "Print what a sandbox has tried to reach on the network", 1, 1,
                        cmd_events, MANUAL("cay-events")},
    [SANDBOX_FORWARD] = {"forward", "ID [ADDRESS:]PORT[:INSIDE]...",
                         "Make ports of a sandbox available on this machine", 2,
                         UINT32_MAX, cmd_forward, MANUAL("cay-forward")},
    [SANDBOX_PORT] = {"port", "ID",
                      "List the ports of a sandbox, and where they are published", 1, 1,
                      cmd_port, MANUAL("cay-forward")},
    [SANDBOX_CHECKPOINT] = {"checkpoint", "[ID [NAME]]",
                            "Save the state of the files of a sandbox or a try", 0, 2,
                            cmd_checkpoint, MANUAL("cay-checkpoint")},
    [SANDBOX_ROLLBACK] = {"rollback", "[ID [CHECKPOINT]]",
                          "Restore the files of a checkpoint; ends all processes", 0, 2,
                          cmd_rollback, MANUAL("cay-checkpoint")},
    [SANDBOX_CHECKPOINTS] = {"checkpoints", "[ID]",
                             "List the checkpoints of a sandbox or a try", 0, 1,
                             cmd_checkpoints, MANUAL("cay-checkpoint")},
    [SANDBOX_FORK] = {"fork", "ID[:CHECKPOINT]",
                      "Create sandboxes with the files of another, and print their IDs",
                      1, 1, cmd_fork, MANUAL("cay-checkpoint")},
    [SANDBOX_PAUSE] = {"pause", "ID...", "Freeze all processes of a sandbox", 1,
                       UINT32_MAX, cmd_life, MANUAL("cay-kill")},
    [SANDBOX_RESUME] = {"resume", "ID...", "Thaw paused sandboxes", 1, UINT32_MAX,
                        cmd_life, MANUAL("cay-kill")},
    [SANDBOX_START] = {"start", "ID...", "Start killed sandboxes again from disk", 1,
                       UINT32_MAX, cmd_life, MANUAL("cay-kill")},
    [SANDBOX_KILL] = {"kill", "ID... | -s SIGNAL ID PID|TAG",
                      "End sandboxes, or send a signal to a background command", 0,
                      UINT32_MAX, cmd_kill, MANUAL("cay-kill")},
    [SANDBOX_RM] = {"rm", "ID...", "End sandboxes and remove their files on disk", 0,
                    UINT32_MAX, cmd_life, MANUAL("cay-kill")},
    [SANDBOX_GC] = {"gc", "", "Remove what crashed sandboxes and callers left behind", 0,
                    0, cmd_gc, MANUAL("cay-kill")},
    [SANDBOX_DOCTOR] = {"doctor", "", "Check what this machine supports", 0, 0,
                        run_doctor, MANUAL("cay-doctor")},
    [SANDBOX_MCP] = {"mcp", "[wrap [--] COMMAND... | install CLIENT]",
                     "Give an MCP client tools in a sandbox, or confine an MCP server", 0,
                     UINT32_MAX, run_mcp, MANUAL("cay-mcp"), 2, STATUS_OURS},
};

#define ALL         UINT32_MAX
#define BIT(name)   (UINT32_C(1) << SANDBOX_##name)
#define FIELD(name) offsetof(struct options, name)
#define CREATES     (BIT(RUN) | BIT(CREATE) | BIT(MCP))
#define MAKES       (CREATES | BIT(FORK))
#define RUNS        (BIT(RUN) | BIT(EXEC) | BIT(TRY))
#define LIFECYCLE   (BIT(PAUSE) | BIT(RESUME) | BIT(START) | BIT(KILL) | BIT(RM) | BIT(GC))
#define PRINTS                                                                           \
    (BIT(CREATE) | RUNS | LIFECYCLE | BIT(LS) | BIT(INSPECT) | BIT(PS) | BIT(NETWORK) |  \
     BIT(EVENTS) | BIT(FORWARD) | BIT(PORT) | BIT(CHECKPOINT) | BIT(ROLLBACK) |          \
     BIT(CHECKPOINTS) | BIT(FORK) | BIT(DOCTOR))
#define COUNT_ALLOWED "a whole number from 1"

static const struct option_rule option_rules[] = {
    {"directory", 'C', OPTION_TEXT, BIT(TRY), FIELD(directory), "DIR",
     "the directory (default: this one)"},
    {"use", 0, OPTION_TEXT, BIT(TRY), FIELD(use), "ID", "continue this try"},
    {"list", 0, OPTION_FLAG, BIT(TRY), FIELD(list), NULL, "list the tries"},
    {"jobs", 'j', OPTION_NUMBER, BIT(TRY), FIELD(jobs), "N",
     "run it in N tries at a time and compare them"},
    {"memory", 'm', OPTION_PARSED, MAKES | BIT(TRY), FIELD(memory), "SIZE",
     "memory limit: 512M, 2G (default 1G)", quantity_parse_size, SIZE_ALLOWED},
    {"disk", 0, OPTION_PARSED, MAKES, FIELD(disk), "SIZE",
     "size limit of written files (in memory 512M)", quantity_parse_size, SIZE_ALLOWED},
    {"pids", 0, OPTION_PARSED, MAKES | BIT(TRY), FIELD(pids), "N",
     "process limit (default 512)", parse_count, COUNT_ALLOWED, .is_rare = true},
    {"cpus", 0, OPTION_PARSED, MAKES, FIELD(cpu_percent), "N",
     "CPU limit: 0.5, 2 (default: all)", parse_share, "for example 0.5 or 2",
     .is_rare = true},
    {"timeout", 0, OPTION_PARSED, RUNS, FIELD(timeout_ms), "TIME",
     "kill the command after 500ms, 30, 2m, ...", sandbox_parse_time, TIME_ALLOWED},
    {"ttl", 0, OPTION_PARSED, BIT(CREATE) | BIT(FORK), FIELD(ttl_ms), "TIME",
     "end the sandbox after 10m, 2h, ...", sandbox_parse_time, TIME_ALLOWED},
    {"env", 'e', OPTION_LIST, MAKES | BIT(TRY) | BIT(EXEC) | BIT(SHELL), FIELD(env),
     "NAME=VALUE", "set a variable; NAME alone copies its value"},
    {"volume", 'v', OPTION_LIST, MAKES | BIT(TRY), FIELD(binds), "SRC:DST[:ro]",
     "make SRC of the host, or a volume, visible as DST"},
    {"workdir", 'w', OPTION_TEXT, CREATES | BIT(TRY), FIELD(workdir), "DIR",
     "working directory (default: home)"},
    {"workdir", 'w', OPTION_TEXT, BIT(EXEC) | BIT(SHELL), FIELD(workdir), "DIR",
     "working directory (default: the sandbox's)"},
    {"user", 'u', OPTION_TEXT,
     CREATES | BIT(TRY) | BIT(EXEC) | BIT(SHELL) | BIT(CP) | BIT(CAT) | BIT(PUT),
     FIELD(user), "USER", "run as this user: a name or a number inside"},
    {"network", 0, OPTION_CHOICE, MAKES | BIT(TRY), FIELD(network),
     "none|host|rules|open", "what the sandbox reaches (default: none)"},
    {"allow", 0, OPTION_LIST, MAKES | BIT(TRY), FIELD(allow), "RULE",
     "let it reach pypi, *.example.com, HOST:PORT, ..."},
    {"deny", 0, OPTION_LIST, MAKES | BIT(TRY), FIELD(deny), "RULE",
     "never let it reach these, whatever is allowed", .is_rare = true},
    {"allow", 0, OPTION_LIST, BIT(NETWORK), FIELD(allow), "RULE",
     "also let it reach pypi, HOST:PORT, *.example.com"},
    {"deny", 0, OPTION_LIST, BIT(NETWORK), FIELD(deny), "RULE",
     "no longer let it reach these, whatever is allowed"},
    {"reset", 0, OPTION_FLAG, BIT(NETWORK), FIELD(reset), NULL,
     "remove the present rules before adding these"},
    {"network", 0, OPTION_CHOICE, BIT(NETWORK), FIELD(network), "rules|open",
     "without a rule it reaches nothing, or the internet"},
    {"network-limit", 0, OPTION_TEXT, CREATES | BIT(TRY) | BIT(NETWORK),
     FIELD(network_limit), "LIMITS", "connections=64,bytes=1G,rate=10M, or some",
     .is_rare = true},
    {"join", 0, OPTION_LIST, CREATES, FIELD(join), "NETWORK[:NAME]",
     "reach the sandboxes of this network by name", .is_rare = true},
    {"secret", 0, OPTION_LIST, CREATES | BIT(TRY), FIELD(secrets), "NAME=SOURCE",
     "env:VAR, file:PATH, stored:X; inside: a placeholder", .is_rare = true},
    {"secret-for", 0, OPTION_LIST, CREATES | BIT(TRY), FIELD(secrets_for), "HOST[:WAY]",
     "send it there: bearer, basic, query, header=NAME", .is_rare = true},
    {"name", 0, OPTION_TEXT, CREATES, FIELD(name), "NAME",
     "a name that can be used instead of the ID"},
    {"config", 0, OPTION_TEXT, CREATES | BIT(TRY), FIELD(config), "FILE",
     "configuration: a cay.yaml, or a policy"},
    {"template", 0, OPTION_TEXT, CREATES | BIT(TRY), FIELD(template_name), "NAME|DIR",
     "root file system (default: host)"},
    {"from", 0, OPTION_TEXT, CREATES, FIELD(from), "ID[:CHECKPOINT]|SNAPSHOT",
     "begin with the files of this sandbox or snapshot", .is_rare = true},
    {"checkpoint-each", 0, OPTION_FLAG, CREATES, FIELD(checkpoint_each), NULL,
     "create a checkpoint before each command", .is_rare = true},
    {"approve", 0, OPTION_LIST, CREATES | BIT(TRY) | BIT(EXEC), FIELD(approvals),
     "PATTERN", "wait for approval before commands like \"git push*\"", .is_rare = true},
    {"approve-timeout", 0, OPTION_PARSED, CREATES | BIT(TRY), FIELD(approve_timeout_ms),
     "TIME", "then the answer is no (default 10m)", sandbox_parse_time, TIME_ALLOWED,
     .is_rare = true},
    {"approve-egress", 0, OPTION_FLAG, CREATES | BIT(TRY), FIELD(approve_egress), NULL,
     "wait for approval of hosts that no rule names", .is_rare = true},
    {"approve-writes", 0, OPTION_LIST, BIT(MCP), FIELD(approve_writes), "PATTERN",
     "the same before tools write files like \"*.py\"", .is_rare = true},
    {"count", 'n', OPTION_NUMBER, BIT(FORK), FIELD(count), "N",
     "number of sandboxes (default 1)"},
    {"partial", 0, OPTION_FLAG, BIT(FORK), FIELD(partial), NULL,
     "keep those that were created if others fail"},
    {"contexts", 0, OPTION_FLAG, BIT(FORK), FIELD(contexts), NULL,
     "with the variables of Python contexts (cay code)"},
    {"require", 0, OPTION_PARSED, CREATES | BIT(TRY), FIELD(require), "LAYER,...",
     "fail unless these isolation layers are active", parse_layers,
     "one or more of user, pid, mount, network, ipc, uts, cgroup, seccomp, landlock, "
     "memory, pids, "
     "cpu, disk",
     .is_rare = true},
    {"storage", 0, OPTION_CHOICE, MAKES, FIELD(storage), "memory|disk",
     "where written files are stored", .is_rare = true},
    {"interactive", 'i', OPTION_FLAG, RUNS, FIELD(interactive), NULL,
     "pass standard input to the command"},
    {"tty", 't', OPTION_FLAG, RUNS, FIELD(tty), NULL, "run the command in a terminal"},
    {"publish", 'p', OPTION_LIST, CREATES, FIELD(ports), "PORT[:INSIDE]",
     "make a port inside available on this machine"},
    {"detach", 'd', OPTION_FLAG, BIT(EXEC), FIELD(detach), NULL,
     "run in the background, and print the PID"},
    {"detach", 'd', OPTION_FLAG, BIT(FORWARD), FIELD(detach), NULL,
     "return at once, and forward until the sandbox ends"},
    {"tag", 0, OPTION_TEXT, BIT(EXEC), FIELD(tag), "NAME",
     "a name for the command in cay ps, logs and kill"},
    {"follow", 'f', OPTION_FLAG, BIT(LOGS), FIELD(follow), NULL,
     "follow the output until the command ends"},
    {"follow", 'f', OPTION_FLAG, BIT(EVENTS), FIELD(follow), NULL,
     "print new events until the sandbox ends"},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "print only the IDs"},
    {"quiet", 'q', OPTION_FLAG, CREATES | BIT(TRY), FIELD(quiet), NULL,
     "print no note about a weak isolation level", .is_rare = true},
    {"all", 0, OPTION_FLAG, BIT(KILL) | BIT(RM), FIELD(all), NULL, "all your sandboxes"},
    {"all", 'a', OPTION_FLAG, BIT(LS), FIELD(all), NULL,
     "also the spares of pools, and saved interpreters"},
    {"disk", 0, OPTION_FLAG, BIT(PAUSE), FIELD(to_disk), NULL,
     "end the processes, keep the files on disk"},
    {"stop", 0, OPTION_FLAG, BIT(CHECKPOINT), FIELD(stop), NULL,
     "end the processes inside first; copies nothing"},
    {"rm", 0, OPTION_FLAG, BIT(CHECKPOINT), FIELD(remove), NULL,
     "remove the checkpoint with this name or number"},
    {"keep", 0, OPTION_FLAG, BIT(ROLLBACK), FIELD(keep), NULL,
     "keep processes whose files do not change"},
    {"keep", 0, OPTION_FLAG, BIT(MCP), FIELD(keep), NULL,
     "use the sandbox of --name again, and leave it", .is_rare = true},
    {"tools", 0, OPTION_TEXT, BIT(MCP), FIELD(tools), "NAME,...", "only these tools"},
    {"read-only", 0, OPTION_FLAG, BIT(MCP), FIELD(read_only), NULL,
     "only tools that change nothing"},
    {"roots", 0, OPTION_CHOICE, BIT(MCP), FIELD(roots), "none|ro|rw",
     "show the client's directories (default: none)"},
    {"sandboxes", 0, OPTION_PARSED, BIT(MCP), FIELD(sandboxes), "N",
     "let the client create up to N more sandboxes", parse_count, COUNT_ALLOWED,
     .is_rare = true},
    {"write", 0, OPTION_FLAG, BIT(MCP), FIELD(write), NULL,
     "install: write the file instead of printing it", .is_rare = true},
    {"url", 0, OPTION_TEXT, BIT(MCP), FIELD(url), "URL",
     "install: use the server at this address", .is_rare = true},
    {"force", 'f', OPTION_FLAG, BIT(RM), FIELD(force), NULL,
     "ignore sandboxes that do not exist"},
    {"signal", 's', OPTION_PARSED, BIT(KILL), FIELD(signal), "SIGNAL",
     "TERM, INT, 9, ...; KILL includes descendants", parse_signal,
     "a name like TERM or a number"},
    {"output", 'o', OPTION_CHOICE, PRINTS, FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

static const struct option_habit habits[] = {
    {CREATES, "--rm",
     "leave it out: cay run removes the sandbox at the end; cay create keeps it "
     "running"},
    {CREATES, "--image", "use --template NAME; cay template create creates a template"},
    {CREATES, "--gpus", "leave it out: sandboxes have no access to GPUs"},
    {BIT(CP), "-r", "leave it out: cay cp copies directories with their contents"},
    {BIT(CP), "-R", "leave it out: cay cp copies directories with their contents"},
    {BIT(CP), "-a", "leave it out: cay cp keeps modes and times, and copies directories"},
};

const struct grammar sandbox_grammar = {
    .program = "cay",
    .around = run_command,
    .subcommands = commands,
    .subcommand_count = SANDBOX_COMMANDS,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
    .habits = habits,
    .habit_count = sizeof habits / sizeof *habits,
};

/* --- The plan --- */

static const char op[] = "cli.options";

static int fail(const char *option, const char *text, const char *message,
                const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text, message, "write %s %s", option,
                    hint);
}

/* --- -e --- */

/* Like getenv(3), but returns NAME=VALUE. */
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
            return fail("-e", text, "the variable has no name", "NAME=VALUE", err);
        for (size_t j = 0; j < len; j++)
            if (isspace((unsigned char)text[j]) || iscntrl((unsigned char)text[j]))
                return fail("-e", text,
                            "the variable's name contains a blank or a control character",
                            "NAME=VALUE", err);
        if (text[len]) {
            plan->env[count++] = text;
            continue;
        }
        /* The name alone copies the caller's variable, if it is set. */
        const char *own = find_own(text, len);
        if (own)
            plan->env[count++] = own;
    }
    return CAY_OK;
}

/* The terminal inside has the type of the caller's terminal, unless -e sets TERM. */
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

/* Catches "/src,ro" instead of "/src:ro": the directory would be writable. */
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
        return fail("-v", given, "missing SRC or DST", form, err);
    *target++ = '\0';
    if (mode)
        *mode++ = '\0';
    if (mode && strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0)
        return fail("-v", given, "the mode is neither ro nor rw", form, err);
    if (*target != '/')
        return fail("-v", given, "DST is not an absolute path", "SRC:/DST", err);
    if (ends_in_mode(target))
        return fail("-v", given, "DST ends in a comma and a mode", form, err);
    *ret_source = cay_volume_is_source(text) ? strdup(text) : realpath(text, NULL);
    if (!*ret_source && errno == ENOENT)
        return cay_fail(
            err, CAY_E_NOT_FOUND, ENOENT, op, text,
            "no such file or directory on the host",
            "create it first; -v makes an existing file or directory visible");
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

static int plan_network(const struct options *options, struct sandbox_plan *plan,
                        struct cay_error *err)
{
    TRY(network_plan(options, plan->sandbox.policy, &plan->policy, err));
    if (plan->policy) {
        plan->sandbox.policy = plan->policy;
        plan->sandbox.network =
            options->network < 0 ? plan->sandbox.network : CAY_NETWORK_NONE;
    } else if (options->network >= 0) {
        plan->sandbox.network = (enum cay_network)options->network;
    }
    return CAY_OK;
}

/* Added to those of the configuration. */
static int plan_join(const struct option_list *list, struct sandbox_plan *plan,
                     struct cay_error *err)
{
    const char *const *configured = plan->sandbox.networks;
    size_t count = configured ? env_count(configured) : 0;

    if (!list->count)
        return CAY_OK;
    plan->networks = calloc(count + list->count + 1, sizeof *plan->networks);
    if (!plan->networks)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++)
        plan->networks[i] = configured[i];
    for (size_t i = 0; i < list->count; i++)
        plan->networks[count + i] = list->items[i];
    plan->sandbox.networks = plan->networks;
    return CAY_OK;
}

/* Added to those of the configuration. */
static int plan_approve(const struct options *options, struct sandbox_plan *plan,
                        struct cay_error *err)
{
    const struct option_list *list = &options->approvals;
    const char *const *configured = plan->sandbox.approve;
    size_t count = configured ? env_count(configured) : 0;

    if (options->approve_timeout_ms)
        plan->sandbox.approve_timeout_ms = options->approve_timeout_ms;
    if (!list->count)
        return CAY_OK;
    plan->approve = calloc(count + list->count + 1, sizeof *plan->approve);
    if (!plan->approve)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++)
        plan->approve[i] = configured[i];
    for (size_t i = 0; i < list->count; i++)
        plan->approve[count + i] = list->items[i];
    plan->sandbox.approve = plan->approve;
    return CAY_OK;
}

/* With a slash, or as "." or "..", it is a directory of the host; else a name. */
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
                        "no such template directory",
                        "cay template ls lists the named templates");
    return plan->template_name ? CAY_OK : cay_fail_errno(err, errno, op, given);
}

/* The library knows no prefixes of IDs. */
static int plan_from(const char *given, struct sandbox_plan *plan, struct cay_error *err)
{
    const char *rest = given ? strchr(given, ':') : NULL;
    AUTO(cay_sandbox) sandbox = NULL;

    if (!given || strncmp(given, "sb-", 3) != 0) {
        plan->sandbox.from = given;
        return CAY_OK;
    }
    plan->from = strdup(given);
    if (!plan->from)
        return cay_fail_memory(err, op);
    plan->from[strcspn(given, ":")] = '\0';
    TRY(find_sandbox(plan->from, &sandbox, err));
    free(TAKE_PTR(plan->from));
    if (asprintf(&plan->from, "%s%s", cay_sandbox_id(sandbox), rest ? rest : "") < 0) {
        plan->from = NULL;
        return cay_fail_memory(err, op);
    }
    plan->sandbox.from = plan->from;
    return CAY_OK;
}

static int check_together(const struct options *options, struct cay_error *err)
{
    if (options->tty && options->as_json)
        return cay_fail(err, CAY_E_INVALID, 0, op, "-t",
                        "-t cannot be combined with -o json", "leave out -t or -o json");
    if (options->detach && (options->interactive || options->tty))
        return cay_fail(err, CAY_E_INVALID, 0, op, "-d",
                        "a background command has no standard input and no terminal",
                        "leave out -d, or -i and -t");
    return options->tty
               ? terminal_require(
                     "-t", "leave -t out; -i alone passes a pipe or a file on", err)
               : CAY_OK;
}

/* For all later commands in the sandbox, not for one command. */
static void fill_defaults(const struct options *options, struct sandbox_plan *plan)
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
        fprintf(
            stderr,
            "cay: note: --memory %s is more than this machine has: the sandbox can use "
            "all %s\n",
            quantity_bytes(limit, asked), quantity_bytes(total, there));
}

static void fill_sandbox(const struct options *options,
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
    if (options->checkpoint_each)
        sandbox->checkpoint_each = true;
    if (options->storage >= 0)
        sandbox->storage = options->storage ? CAY_STORAGE_DISK : CAY_STORAGE_MEMORY;
    if (options->user)
        sandbox->user = options->user;
    if (options->name)
        sandbox->name = options->name;
    sandbox->require |= options->require;
}

static void fill_exec(const struct options *options, const char *const *argv,
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

int sandbox_plan(const struct options *options,
                 const struct cay_sandbox_options *configured, const char *const *argv,
                 struct sandbox_plan *ret_plan, struct cay_error *err)
{
    struct sandbox_plan *plan = ret_plan;

    *plan = (struct sandbox_plan){.env = NULL};
    if (configured)
        plan->sandbox = *configured;
    int code = check_together(options, err);
    if (!code && argv && !argv[0][0])
        code = cay_fail(err, CAY_E_INVALID, 0, op, "COMMAND", "the command is empty",
                        "pass a program of the sandbox, like sh");
    if (!code)
        code = plan_env(&options->env, plan, err);
    if (!code)
        code = plan_binds(&options->binds, plan, err);
    if (!code)
        code = plan_template(options->template_name, plan, err);
    if (!code)
        code = plan_from(options->from, plan, err);
    if (!code)
        code = plan_network(options, plan, err);
    if (!code)
        code = plan_join(&options->join, plan, err);
    if (!code)
        code = plan_approve(options, plan, err);
    if (!code)
        code = secret_plan(options, &plan->secrets, err);
    if (code) {
        sandbox_plan_done(plan);
        return code;
    }
    if (options->tty)
        plan_terminal(&options->env, plan);
    note_large_memory(options->memory);
    fill_sandbox(options, &plan->sandbox);
    if (plan->secrets.count) {
        plan->sandbox.secrets = plan->secrets.list;
        plan->sandbox.secret_count = plan->secrets.count;
    }
    plan->sandbox.pool = ""; /* of cay pool start */
    if (argv)
        fill_exec(options, argv, plan);
    else
        fill_defaults(options, plan);
    return CAY_OK;
}

bool sandbox_plan_asks_egress(const struct sandbox_plan *plan)
{
    return plan->sandbox.policy && cay_policy_network_approval(plan->sandbox.policy) > 0;
}

void sandbox_plan_done(struct sandbox_plan *plan)
{
    for (size_t i = 0; plan->binds_text && i < 2 * plan->given_count; i++)
        free(plan->binds_text[i]);
    free(plan->binds_text);
    free(plan->binds);
    free(plan->env);
    free(plan->networks);
    free(plan->approve);
    free(plan->template_name);
    free(plan->from);
    cay_policy_free(plan->policy);
    secret_done(&plan->secrets);
    *plan = (struct sandbox_plan){.env = NULL};
}

/* --- Sandboxes by their ID --- */

enum { ID_LEN = 19, NAMED_MAX = 4 };

static int fail_many(const char *word, const struct cay_sandbox_info *infos, size_t count,
                     struct cay_error *err)
{
    char names[128];
    size_t used = 0, named = 0;

    for (size_t i = 0; i < count && named < NAMED_MAX; i++)
        if (strncmp(infos[i].id, word, strlen(word)) == 0)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     named++ ? ", " : "", infos[i].id);
    return cay_fail(err, CAY_E_INVALID, 0, "cli.find", word,
                    "several sandbox IDs start with this", "give more letters of one: %s",
                    names);
}

static int find_prefix(const char *word, char ret_id[CAY_ID_MAX], struct cay_error *err)
{
    AUTO_FREE struct cay_sandbox_info *infos = NULL;
    size_t count = 0, matches = 0;

    TRY(cay_sandbox_list_brief(&infos, &count, err));
    for (size_t i = 0; i < count; i++)
        if (strncmp(infos[i].id, word, strlen(word)) == 0) {
            memcpy(ret_id, infos[i].id, CAY_ID_MAX);
            matches++;
        }
    if (matches == 0)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "cli.find", word,
                        "no sandbox ID starts with this", "cay ls lists them");
    return matches > 1 ? fail_many(word, infos, count, err) : CAY_OK;
}

static int open_any(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    int code = cay_sandbox_open(id, ret_sandbox, err);

    return code == CAY_E_INVALID ? sandbox_program.open_local(id, ret_sandbox, err)
                                 : code;
}

int find_sandbox(const char *word, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    char id[CAY_ID_MAX];
    size_t len = strlen(word);

    if (strncmp(word, "sb-", 3) != 0)
        return open_any(word, ret_sandbox, err); /* a name */
    if (len < 4 || len > ID_LEN || strspn(word + 3, letters) != len - 3)
        return cay_fail(
            err, CAY_E_INVALID, 0, "cli.find", word, "invalid sandbox ID",
            "an ID is sb- and 16 letters or digits; its first few are enough; "
            "cay ls lists them");
    if (len == ID_LEN)
        return open_any(word, ret_sandbox, err);
    TRY(find_prefix(word, id, err));
    return open_any(id, ret_sandbox, err);
}

/* --- Commands --- */

/* The small program's is another. */
static int run_try(struct call *call, struct cay_error *err)
{
    return sandbox_program.try(call, err);
}

static int run_mcp(struct call *call, struct cay_error *err)
{
    return sandbox_program.mcp(call, err);
}

static int run_doctor(struct call *call, struct cay_error *err)
{
    return sandbox_program.doctor(call, err);
}

/* Removes what crashed sandboxes and callers left: everything before a list that would
 * show it, and a part of it at most once a second before the others, whose time does not
 * depend on the number of sandboxes.  A run does it while its command starts. */
static void collect_for(const struct subcommand *command)
{
    uint32_t bit = UINT32_C(1) << (command - commands);
    size_t collected;

    if (bit & BIT(LS))
        (void)!cay_sandbox_collect(&collected, NULL);
    else if (!(bit & (BIT(RUN) | BIT(GC) | BIT(DOCTOR))))
        cay_sandbox_tidy();
}

static int run_command(struct call *call, struct cay_error *err)
{
    const struct subcommand *command = call->line.subcommand;

    if (UINT32_C(1) << (command - commands) & (CREATES | BIT(START) | BIT(DOCTOR)))
        scope_join();
    int status = call->options.config ? sandbox_program.configure(call, err) : CAY_OK;

    if (!status) {
        collect_for(command);
        status = command->run(call, err);
    }
    if (call->config)
        sandbox_program.release(call);
    return status;
}
