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
    [SANDBOX_CREATE] = {"create", "", "Make a sandbox that stays, and print its id", 0, 0,
                        0},
    [SANDBOX_EXEC] = {"exec", "ID [--] COMMAND [ARGUMENT]...",
                      "Run a command in a sandbox", 2, UINT32_MAX, 2},
    [SANDBOX_SHELL] = {"shell", "ID", "Work in a sandbox at its own terminal", 1, 1, 0},
    [SANDBOX_LS] = {"ls", "", "List the sandboxes", 0, 0, 0},
    [SANDBOX_INSPECT] = {"inspect", "ID", "Tell all about a sandbox", 1, 1, 0},
    [SANDBOX_PS] = {"ps", "ID", "List the processes of a sandbox", 1, 1, 0},
    [SANDBOX_LOGS] = {"logs", "ID [PID|TAG]", "Print what a background command wrote", 1,
                      2, 0},
    [SANDBOX_CP] = {"cp", "SOURCE DESTINATION", "Copy files into a sandbox or out of it",
                    2, 2, 0},
    [SANDBOX_CAT] = {"cat", "ID PATH", "Print a file of a sandbox", 2, 2, 0},
    [SANDBOX_PUT] = {"put", "ID PATH", "Write standard input to a file of a sandbox", 2,
                     2, 0},
    [SANDBOX_PAUSE] = {"pause", "ID...", "Stop the clock for everything inside", 1,
                       UINT32_MAX, 0},
    [SANDBOX_RESUME] = {"resume", "ID...", "Let paused sandboxes go on", 1, UINT32_MAX,
                        0},
    [SANDBOX_START] = {"start", "ID...", "Bring killed sandboxes back from disk", 1,
                       UINT32_MAX, 0},
    [SANDBOX_KILL] = {"kill", "ID... | -s SIGNAL ID PID|TAG",
                      "End sandboxes, or signal a background command in one", 0,
                      UINT32_MAX, 0},
    [SANDBOX_RM] = {"rm", "ID...", "End sandboxes and remove what they have on disk", 0,
                    UINT32_MAX, 0},
    [SANDBOX_GC] = {"gc", "", "Clean up after sandboxes and makers that are gone", 0, 0,
                    0},
    [SANDBOX_DOCTOR] = {"doctor", "", "Check what this machine offers sandboxes", 0, 0,
                        0},
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
     "most memory: 512M, 2G (default 1G)", quantity_parse_size, SIZE_ALLOWED},
    {"disk", 0, OPTION_PARSED, MAKES, FIELD(disk), "SIZE",
     "most files written (default 512M)", quantity_parse_size, SIZE_ALLOWED},
    {"pids", 0, OPTION_PARSED, MAKES, FIELD(pids), "N", "most processes (default 512)",
     quantity_parse_count, COUNT_ALLOWED},
    {"cpus", 0, OPTION_PARSED, MAKES, FIELD(cpu_percent), "N",
     "most CPUs: 0.5, 2 (default: all)", quantity_parse_share, "like 0.5 or 2"},
    {"timeout", 0, OPTION_PARSED, RUNS, FIELD(timeout_ms), "TIME",
     "kill it after: 500ms, 30, 2m (default: never)", quantity_parse_time, TIME_ALLOWED},
    {"ttl", 0, OPTION_PARSED, BIT(CREATE), FIELD(ttl_ms), "TIME",
     "it ends by itself after: 10m, 2h (default: never)", quantity_parse_time,
     TIME_ALLOWED},
    {"env", 'e', OPTION_LIST, MAKES | BIT(EXEC) | BIT(SHELL), FIELD(env), "NAME=VALUE",
     "set a variable; NAME alone passes yours on"},
    {"volume", 'v', OPTION_LIST, MAKES, FIELD(binds), "SRC:DST[:ro]",
     "show SRC of this machine inside, as DST"},
    {"workdir", 'w', OPTION_TEXT, MAKES, FIELD(workdir), "DIR",
     "start there (default: home, or the template's)"},
    {"workdir", 'w', OPTION_TEXT, BIT(EXEC) | BIT(SHELL), FIELD(workdir), "DIR",
     "start there (default: its working directory)"},
    {"user", 'u', OPTION_TEXT,
     MAKES | BIT(EXEC) | BIT(SHELL) | BIT(CP) | BIT(CAT) | BIT(PUT), FIELD(user), "USER",
     "as user, root, a name or a number inside"},
    {"network", 0, OPTION_CHOICE, MAKES, FIELD(network), "none|host",
     "own loopback (default), or this machine's"},
    {"name", 0, OPTION_TEXT, MAKES, FIELD(name), "NAME",
     "a name for it, taken wherever an ID is"},
    {"config", 0, OPTION_TEXT, MAKES, FIELD(config), "FILE",
     "what it is to be like: a cay.yaml, or a policy"},
    {"template", 0, OPTION_TEXT, MAKES, FIELD(template_name), "NAME|DIR",
     "what it starts from (default: host)"},
    {"require", 0, OPTION_PARSED, MAKES, FIELD(require), "LAYER,...",
     "fail unless these layers are active: seccomp, ...", parse_layers,
     "of user, pid, mount, network, ipc, uts, cgroup, seccomp, landlock, memory, pids, "
     "cpu, disk"},
    {"storage", 0, OPTION_CHOICE, MAKES, FIELD(storage), "memory|disk",
     "where what it writes is kept"},
    {"interactive", 'i', OPTION_FLAG, RUNS, FIELD(interactive), NULL,
     "pass standard input on"},
    {"tty", 't', OPTION_FLAG, RUNS, FIELD(tty), NULL, "give it a terminal of its own"},
    {"detach", 'd', OPTION_FLAG, BIT(EXEC), FIELD(detach), NULL,
     "in the background: print its pid, do not wait"},
    {"tag", 0, OPTION_TEXT, BIT(EXEC), FIELD(tag), "NAME",
     "a name for it in cay ps, logs and kill"},
    {"follow", 'f', OPTION_FLAG, BIT(LOGS), FIELD(follow), NULL, "go on until it ends"},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "only the ids"},
    {"quiet", 'q', OPTION_FLAG, MAKES, FIELD(quiet), NULL,
     "print no note about a weak isolation level"},
    {"all", 0, OPTION_FLAG, BIT(KILL) | BIT(RM), FIELD(all), NULL,
     "every sandbox of yours"},
    {"force", 'f', OPTION_FLAG, BIT(RM), FIELD(force), NULL,
     "one that is gone already is no error"},
    {"signal", 's', OPTION_PARSED, BIT(KILL), FIELD(signal), "SIGNAL",
     "send this: TERM, INT, 9; KILL takes all it started", parse_signal,
     "a name like TERM or a number"},
    {"output", 'o', OPTION_CHOICE, TELLS, FIELD(as_json), "text|json",
     "how it is told; json for programs"},
    {"help", 'h', OPTION_FLAG, ALL, FIELD(help), NULL, "this"},
};

static const char no_ports[] =
    "leave it out: the network of a sandbox is its own; with --network host it has "
    "this machine's, and its ports";
static const struct option_habit habits[] = {
    {MAKES, "--rm",
     "leave it out: cay run leaves nothing behind, cay create makes what stays"},
    {MAKES, "--image", "name a template with --template; cay template create makes one"},
    {MAKES, "-p", no_ports},
    {MAKES, "--publish", no_ports},
    {MAKES, "--gpus", "leave it out: sandboxes have no access to GPUs"},
    {BIT(CP), "-r", "leave it out: cay cp copies a directory with all that is in it"},
    {BIT(CP), "-R", "leave it out: cay cp copies a directory with all that is in it"},
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
