/* SPDX-License-Identifier: Apache-2.0 */
/* cay pool: sandboxes that are ready before they are requested. */
#include "cay/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/scope.h"
#include "cli/signals.h"
#include "json/json.h"

enum { START, STOP, LS, COUNT };

static call_runner start, stop, list;

static const struct subcommand subcommands[] = {
    [START] = {"start", "", "Create sandboxes ahead for cay run and cay create", 0, 0,
               start},
    [STOP] = {"stop", "ID...", "Stop pools; sandboxes in use live on", 0, UINT32_MAX,
              stop},
    [LS] = {"ls", "", "List the pools", 0, 0, list},
};

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"count", 'n', OPTION_NUMBER, BIT(START), FIELD(count), "N",
     "number of spares (default 4)"},
    {"limit", 0, OPTION_PARSED, BIT(START), FIELD(limit), "SIZE",
     "memory of all spares (default 256M)", quantity_parse_size, "like 64M or 1G"},
    {"template", 0, OPTION_TEXT, BIT(START), FIELD(template_name), "NAME|DIR",
     "root file system (default: host)"},
    {"from", 0, OPTION_TEXT, BIT(START), FIELD(from), "ID:CHECKPOINT|SNAPSHOT",
     "begin with the files of a checkpoint: a pool of forks"},
    {"network", 0, OPTION_CHOICE, BIT(START), FIELD(network), "none|host|rules",
     "own loopback (default), the host's, or by rules"},
    {"volume", 'v', OPTION_LIST, BIT(START), FIELD(binds), "SRC:DST[:ro]",
     "make SRC of the host, or a volume, visible as DST"},
    {"disk", 0, OPTION_PARSED, BIT(START), FIELD(disk), "SIZE",
     "limit of written files (default 512M)", quantity_parse_size, "like 512M or 2G"},
    {"foreground", 0, OPTION_FLAG, BIT(START), FIELD(foreground), NULL,
     "stay until SIGTERM or cay pool stop"},
    {"daemon", 0, OPTION_FLAG, BIT(START), FIELD(daemon), NULL,
     "with --foreground: leave the terminal when it is ready"},
    {"all", 0, OPTION_FLAG, BIT(STOP), FIELD(all), NULL, "all pools of cay pool start"},
    {"output", 'o', OPTION_CHOICE, BIT(START) | BIT(LS), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar pool_grammar = {
    .program = "cay pool",
    .usage = "COMMAND [ARGUMENT]...\n"
             "Create sandboxes before they are requested.",
    .manual = "Manual: cay-pool(1).",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* --- start --- */

static int create_pool(const struct options *options, cay_pool **ret_pool,
                       struct cay_error *err)
{
    struct sandbox_plan plan;
    struct cay_pool_options wish = {.size = sizeof wish,
                                    .sandbox = &plan.sandbox,
                                    .count = (uint32_t)options->count.value,
                                    .memory_bytes = options->limit,
                                    .is_shared = true,
                                    .may_stop = true};
    int code = sandbox_plan(options, NULL, NULL, &plan, err);

    if (!code && options->count.given &&
        (options->count.value == 0 || options->count.value > CAY_POOL_COUNT_MAX))
        code = cay_fail(err, CAY_E_INVALID, 0, "cli.pool", "--count",
                        "invalid number of spares", "use a number from 1 to %d",
                        CAY_POOL_COUNT_MAX);
    if (!code)
        code = cay_pool_create(&wish, ret_pool, err);
    sandbox_plan_done(&plan);
    return code;
}

/* Until SIGTERM and the like, or cay pool stop. */
static _Noreturn void serve_pool(cay_pool *pool)
{
    int signal = 0;

    while (!signal && cay_pool_wait_stop(pool, 500, NULL) != CAY_OK)
        signal = signals_take();
    cay_pool_free(pool);
    _exit(0);
}

static int print_id(struct call *call, const char *id, struct cay_error *err)
{
    if (call->options.as_json)
        json_set_text(output_json(&call->output), "id", id);
    else
        fprintf(call->output.file, "%s\n", id);
    return output_finish(&call->output, err);
}

/* Lets go of the terminal, and of a pipe whose reader waits for its end. */
static void detach(void)
{
    (void)!chdir("/");
    (void)!freopen("/dev/null", "re", stdin);
    (void)!freopen("/dev/null", "we", stdout);
    (void)!freopen("/dev/null", "we", stderr);
}

static int start_here(struct call *call, struct cay_error *err)
{
    cay_pool *pool = NULL;

    scope_join();
    signals_catch();
    TRY(create_pool(&call->options, &pool, err));
    int code = print_id(call, cay_pool_id(pool), err);
    if (!code && call->options.daemon)
        detach();
    if (!code)
        serve_pool(pool);
    cay_pool_free(pool);
    return code;
}

/* The same command line with --foreground --daemon, in a session of its own. */
static int spawn(char *const *words, int output, pid_t *ret_pid)
{
    static char names[][16] = {"cay", "pool", "--foreground", "--daemon"};
    enum { FIRST = sizeof names / sizeof *names };
    size_t count = 0;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;

    while (words[count])
        count++;
    AUTO_FREE char **argv = calloc(FIRST + count + 1, sizeof *argv);
    if (!argv)
        return ENOMEM;
    for (size_t i = 0; i < FIRST; i++)
        argv[i] = names[i];
    memcpy(argv + FIRST, words, count * sizeof *words);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    int error =
        posix_spawn(ret_pid, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error;
}

/* The pool's output is its ID, in the requested format.  If there is none, it has failed
 * and printed its error. */
static int start(struct call *call, struct cay_error *err)
{
    int ends[2], status = 0;
    char text[256];
    pid_t pid;

    if (call->options.foreground)
        return start_here(call, err);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, "cli.pool", "pipe");
    int error = spawn(call->words, ends[1], &pid);
    (void)close(ends[1]);
    AUTO_FD from = ends[0];
    if (error)
        return cay_fail_errno(err, error, "cli.pool", "posix_spawn");
    ssize_t len = read(from, text, sizeof text);
    if (len > 0) {
        (void)!fwrite(text, 1, (size_t)len, call->output.file);
        return output_finish(&call->output, err);
    }
    (void)waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1;
}

/* --- stop --- */

static int stop_one(struct call *call, const char *id, struct json *json,
                    struct cay_error *err)
{
    (void)call;
    (void)json;
    return cay_pool_stop(id, err);
}

static int stop(struct call *call, struct cay_error *err)
{
    AUTO_FREE struct cay_pool_info *infos = NULL;
    size_t count = 0;

    if (!call->options.all == !call->line.count)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.pool", "stop",
                        call->line.count ? "both --all and a pool given"
                                         : "no pool given",
                        "pass an ID of cay pool ls, or --all");
    if (!call->options.all)
        return call_each(call, call->line.arguments, call->line.count, stop_one, NULL,
                         err);
    TRY(cay_pool_list(&infos, &count, err));
    for (size_t i = 0; i < count; i++)
        if (infos[i].may_stop)
            TRY(cay_pool_stop(infos[i].id, err));
    return CAY_OK;
}

/* --- ls --- */

static void put_pool(struct json *json, const void *item)
{
    const struct cay_pool_info *info = item;
    const struct cay_pool_stats *stats = &info->stats;

    json_set_text(json, "id", info->id);
    json_set_int(json, "pid", info->pid);
    json_set_bool(json, "shared", info->is_shared);
    json_set_text(json, "template", info->template_name);
    json_set_int(json, "created_ms", info->created_ms);
    json_set_uint(json, "count", stats->count);
    json_set_uint(json, "ready", stats->ready);
    json_set_uint(json, "created", stats->created);
    json_set_uint(json, "claimed", stats->claimed);
    json_set_uint(json, "failed", stats->failed);
    json_set_uint(json, "memory_used", stats->memory_used);
    json_set_uint(json, "memory_limit", info->memory_bytes);
    json_set_bool(json, "full", stats->is_full);
    json_set_bool(json, "yielding", stats->is_yielding);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_pool_info *info = item;
    const struct cay_pool_stats *stats = &info->stats;
    char room[QUANTITY_ROOM];

    table_cell(table, "%s", info->id);
    table_cell(table, "%u/%u%s", stats->ready, stats->count,
               stats->is_yielding ? " (memory is short)"
               : stats->is_full   ? " (limit reached)"
                                  : "");
    table_cell(table, "%llu", (unsigned long long)stats->claimed);
    table_cell(table, "%s", quantity_bytes(stats->memory_used, room));
    table_cell(table, "%s", quantity_age(info->created_ms, room));
    table_cell(table, "%s", info->template_name);
}

static int list(struct call *call, struct cay_error *err)
{
    static const struct call_list pools = {"pools",
                                           "ID|READY|CLAIMED|MEMORY|AGE|TEMPLATE",
                                           sizeof(struct cay_pool_info),
                                           put_pool,
                                           add_row,
                                           NULL};
    AUTO_FREE struct cay_pool_info *infos = NULL;
    size_t count = 0;

    TRY(cay_pool_list(&infos, &count, err));
    return call_list(call, &pools, infos, count, err);
}
