/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sandbox-options.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "cli/quantity.h"

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

#define SIGNAL(name)                                                                     \
    {                                                                                    \
#name, SIG##name                                                                 \
    }
static const struct {
    const char *name;
    int number;
} signals[] = {
    SIGNAL(HUP),    SIGNAL(INT),  SIGNAL(QUIT), SIGNAL(ILL),  SIGNAL(TRAP),
    SIGNAL(ABRT),   SIGNAL(BUS),  SIGNAL(FPE),  SIGNAL(KILL), SIGNAL(USR1),
    SIGNAL(SEGV),   SIGNAL(USR2), SIGNAL(PIPE), SIGNAL(ALRM), SIGNAL(TERM),
    SIGNAL(CHLD),   SIGNAL(CONT), SIGNAL(STOP), SIGNAL(TSTP), SIGNAL(TTIN),
    SIGNAL(TTOU),   SIGNAL(URG),  SIGNAL(XCPU), SIGNAL(XFSZ), SIGNAL(PROF),
    SIGNAL(VTALRM), SIGNAL(POLL), SIGNAL(PWR),  SIGNAL(SYS),  SIGNAL(WINCH),
    SIGNAL(STKFLT),
};

/* "TERM", "SIGTERM" or "15". */
static bool parse_signal(const char *text, void *field)
{
    uint32_t number;

    if (quantity_parse_count(text, &number) && number < 65) {
        *(int *)field = (int)number;
        return true;
    }
    if (strncmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (strcmp(signals[i].name, text) == 0) {
            *(int *)field = signals[i].number;
            return true;
        }
    return false;
}

static const struct subcommand commands[] = {
    [SANDBOX_RUN] = {"run", "[--] COMMAND [ARGUMENT]...",
                     "Run a command in a fresh sandbox, and leave nothing behind", 1,
                     UINT32_MAX, 1},
    [SANDBOX_CREATE] = {"create", "", "Create a sandbox that stays, and print its ID", 0,
                        0, 0},
    [SANDBOX_EXEC] = {"exec", "ID [--] COMMAND [ARGUMENT]...",
                      "Run a command in a sandbox", 2, UINT32_MAX, 2},
    [SANDBOX_SHELL] = {"shell", "ID", "Open a shell in a sandbox", 1, 1, 0},
    [SANDBOX_LS] = {"ls", "", "List the sandboxes", 0, 0, 0},
    [SANDBOX_INSPECT] = {"inspect", "ID", "Show a sandbox in detail", 1, 1, 0},
    [SANDBOX_PS] = {"ps", "ID", "List the processes of a sandbox", 1, 1, 0},
    [SANDBOX_LOGS] = {"logs", "ID [PID|TAG]", "Print the output of a background command",
                      1, 2, 0},
    [SANDBOX_CP] = {"cp", "SOURCE DESTINATION", "Copy files into a sandbox or out of it",
                    2, 2, 0},
    [SANDBOX_CAT] = {"cat", "ID PATH", "Print a file of a sandbox", 2, 2, 0},
    [SANDBOX_PUT] = {"put", "ID PATH", "Write standard input to a file of a sandbox", 2,
                     2, 0},
    [SANDBOX_PAUSE] = {"pause", "ID...", "Freeze all processes of a sandbox", 1,
                       UINT32_MAX, 0},
    [SANDBOX_RESUME] = {"resume", "ID...", "Thaw paused sandboxes", 1, UINT32_MAX, 0},
    [SANDBOX_START] = {"start", "ID...", "Start killed sandboxes again from disk", 1,
                       UINT32_MAX, 0},
    [SANDBOX_KILL] = {"kill", "ID... | -s SIGNAL ID PID|TAG",
                      "End sandboxes, or send a signal to a background command", 0,
                      UINT32_MAX, 0},
    [SANDBOX_RM] = {"rm", "ID...", "End sandboxes and remove their files on disk", 0,
                    UINT32_MAX, 0},
    [SANDBOX_GC] = {"gc", "", "Remove what crashed sandboxes and callers left behind", 0,
                    0, 0},
    [SANDBOX_DOCTOR] = {"doctor", "", "Check what this machine supports", 0, 0, 0},
};

#define ALL           UINT32_MAX
#define BIT(name)     (UINT32_C(1) << SANDBOX_##name)
#define FIELD(name)   offsetof(struct sandbox_options, name)
#define MAKES         (BIT(RUN) | BIT(CREATE))
#define RUNS          (BIT(RUN) | BIT(EXEC))
#define LIVES         (BIT(PAUSE) | BIT(RESUME) | BIT(START) | BIT(KILL) | BIT(RM) | BIT(GC))
#define TELLS         (MAKES | RUNS | LIVES | BIT(LS) | BIT(INSPECT) | BIT(PS) | BIT(DOCTOR))
#define SIZE_ALLOWED  "like 512M or 2G"
#define TIME_ALLOWED  "like 500ms, 30 (seconds), 2m or 1h"
#define COUNT_ALLOWED "a whole number from 1"

static const struct option_rule options[] = {
    {"memory", 'm', OPTION_PARSED, MAKES, FIELD(memory), "SIZE",
     "memory limit: 512M, 2G (default 1G)", quantity_parse_size, SIZE_ALLOWED},
    {"disk", 0, OPTION_PARSED, MAKES, FIELD(disk), "SIZE",
     "limit of written files (default 512M)", quantity_parse_size, SIZE_ALLOWED},
    {"pids", 0, OPTION_PARSED, MAKES, FIELD(pids), "N",
     "limit of processes (default 512)", quantity_parse_count, COUNT_ALLOWED},
    {"cpus", 0, OPTION_PARSED, MAKES, FIELD(cpu_percent), "N",
     "CPU limit: 0.5, 2 (default: all)", quantity_parse_share, "like 0.5 or 2"},
    {"timeout", 0, OPTION_PARSED, RUNS, FIELD(timeout_ms), "TIME",
     "kill it after: 500ms, 30, 2m (default: never)", quantity_parse_time, TIME_ALLOWED},
    {"ttl", 0, OPTION_PARSED, BIT(CREATE), FIELD(ttl_ms), "TIME",
     "end it after: 10m, 2h (default: never)", quantity_parse_time, TIME_ALLOWED},
    {"env", 'e', OPTION_LIST, MAKES | BIT(EXEC) | BIT(SHELL), FIELD(env), "NAME=VALUE",
     "set a variable; NAME alone copies yours"},
    {"volume", 'v', OPTION_LIST, MAKES, FIELD(binds), "SRC:DST[:ro]",
     "make SRC of the host visible inside as DST"},
    {"workdir", 'w', OPTION_TEXT, MAKES, FIELD(workdir), "DIR",
     "working directory (default: home)"},
    {"workdir", 'w', OPTION_TEXT, BIT(EXEC) | BIT(SHELL), FIELD(workdir), "DIR",
     "working directory (default: the sandbox's)"},
    {"user", 'u', OPTION_TEXT,
     MAKES | BIT(EXEC) | BIT(SHELL) | BIT(CP) | BIT(CAT) | BIT(PUT), FIELD(user), "USER",
     "run as this user: a name or a number inside"},
    {"network", 0, OPTION_CHOICE, MAKES, FIELD(network), "none|host",
     "own loopback (default), or the host's network"},
    {"name", 0, OPTION_TEXT, MAKES, FIELD(name), "NAME",
     "a name that can be used instead of the ID"},
    {"config", 0, OPTION_TEXT, MAKES, FIELD(config), "FILE",
     "configuration: a cay.yaml, or a policy"},
    {"template", 0, OPTION_TEXT, MAKES, FIELD(template_name), "NAME|DIR",
     "root file system (default: host)"},
    {"require", 0, OPTION_PARSED, MAKES, FIELD(require), "LAYER,...",
     "fail unless these isolation layers are active", parse_layers,
     "of user, pid, mount, network, ipc, uts, cgroup, seccomp, landlock, memory, pids, "
     "cpu, disk"},
    {"storage", 0, OPTION_CHOICE, MAKES, FIELD(storage), "memory|disk",
     "where written files are stored"},
    {"interactive", 'i', OPTION_FLAG, RUNS, FIELD(interactive), NULL,
     "pass standard input to the command"},
    {"tty", 't', OPTION_FLAG, RUNS, FIELD(tty), NULL, "run the command in a terminal"},
    {"detach", 'd', OPTION_FLAG, BIT(EXEC), FIELD(detach), NULL,
     "run in the background, and print the PID"},
    {"tag", 0, OPTION_TEXT, BIT(EXEC), FIELD(tag), "NAME",
     "a name for the command in cay ps, logs and kill"},
    {"follow", 'f', OPTION_FLAG, BIT(LOGS), FIELD(follow), NULL,
     "follow the output until the command ends"},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "print only the IDs"},
    {"quiet", 'q', OPTION_FLAG, MAKES, FIELD(quiet), NULL,
     "print no note about a weak isolation level"},
    {"all", 0, OPTION_FLAG, BIT(KILL) | BIT(RM), FIELD(all), NULL, "all your sandboxes"},
    {"force", 'f', OPTION_FLAG, BIT(RM), FIELD(force), NULL,
     "ignore sandboxes that do not exist"},
    {"signal", 's', OPTION_PARSED, BIT(KILL), FIELD(signal), "SIGNAL",
     "TERM, INT, 9; KILL also ends all descendants", parse_signal,
     "a name like TERM or a number"},
    {"output", 'o', OPTION_CHOICE, TELLS, FIELD(as_json), "text|json",
     "output format: text or json"},
    {"help", 'h', OPTION_FLAG, ALL, FIELD(help), NULL, "show this help"},
};

static const char no_ports[] =
    "leave it out: a sandbox has its own network; with --network host it uses "
    "the host's network and ports";
static const struct option_habit habits[] = {
    {MAKES, "--rm",
     "leave it out: cay run leaves nothing behind; cay create creates a sandbox that "
     "stays"},
    {MAKES, "--image", "name a template with --template; cay template create makes one"},
    {MAKES, "-p", no_ports},
    {MAKES, "--publish", no_ports},
    {MAKES, "--gpus", "leave it out: sandboxes have no access to GPUs"},
    {BIT(CP), "-r", "leave it out: cay cp copies directories with their contents"},
    {BIT(CP), "-R", "leave it out: cay cp copies directories with their contents"},
    {BIT(CP), "-a", "leave it out: cay cp keeps modes and times, and copies directories"},
};

const struct grammar sandbox_grammar = {
    .program = "cay",
    .subcommands = commands,
    .subcommand_count = SANDBOX_COMMANDS,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .habits = habits,
    .habit_count = sizeof habits / sizeof *habits,
    .stands_alone = true,
};
