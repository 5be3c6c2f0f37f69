/* SPDX-License-Identifier: Apache-2.0 */
/* cay ps and cay logs: the processes of a sandbox, and their output. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/stream.h"
#include "json/json.h"

/* --- ps --- */

static void put_process(struct json *json, const void *item)
{
    const struct cay_process_info *info = item;
    char state[2] = {info->state ? info->state : '?', '\0'};

    json_set_int(json, "pid", info->pid);
    json_set_int(json, "parent", info->parent);
    json_set_uint(json, "uid", info->uid);
    json_set_text(json, "state", info->has_ended ? "ended" : state);
    json_set_bool(json, "started_by_exec", info->is_command);
    json_set_bool(json, "background", info->is_background);
    json_put_key(json, "exit_code");
    if (info->has_ended)
        json_put_int(json, info->exit_code);
    else
        json_put_null(json);
    json_set_text(json, "cause", show_cause(info->cause));
    json_set_text(json, "tag", info->tag[0] ? info->tag : NULL);
    json_set_text(json, "command", info->command);
    json_set_int(json, "started_ms", info->started_ms);
    json_set_uint(json, "cpu_us", info->cpu_us);
    json_set_uint(json, "memory_bytes", info->memory_bytes);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_process_info *info = item;
    /* The cause is added where the exit code does not show it. */
    bool is_plain = info->cause <= CAY_CAUSE_SIGNALLED;
    char room[QUANTITY_ROOM];

    table_cell(table, "%d", info->pid);
    table_cell(table, "%d", info->parent);
    table_cell(table, "%" PRIu32, info->uid);
    if (info->has_ended)
        table_cell(table, "ended %d%s%s", info->exit_code, is_plain ? "" : " ",
                   is_plain ? "" : show_cause(info->cause));
    else
        table_cell(table, "%c%s", info->state ? info->state : '?',
                   info->is_background ? " bg" : "");
    table_cell(table, "%s", quantity_age(info->started_ms, room));
    table_cell(table, "%" PRIu64 ".%02u s", info->cpu_us / 1000000,
               (unsigned)(info->cpu_us / 10000 % 100));
    table_cell(table, "%s", quantity_bytes(info->memory_bytes, room));
    table_cell(table, "%s", info->tag);
    table_cell(table, "%s", info->command);
}

int cmd_ps(struct call *call, struct cay_error *err)
{
    static const struct call_list processes = {
        "processes",
        "PID|PARENT|UID|STATE|AGE|CPU|MEMORY|TAG|COMMAND",
        sizeof(struct cay_process_info),
        put_process,
        add_row,
        NULL};
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0;

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    TRY(cay_process_list(sandbox, &infos, &count, err));
    return call_list(call, &processes, infos, count, err);
}

/* --- logs --- */

/* Whether this is the background command that `which` names; NULL names any. */
static bool matches(const struct cay_process_info *info, const char *which)
{
    char pid[16];

    if (!info->is_background || !info->is_command)
        return false;
    snprintf(pid, sizeof pid, "%d", info->pid);
    return !which || strcmp(which, pid) == 0 || strcmp(which, info->tag) == 0;
}

static int fail_which(const struct cay_process_info *infos, size_t count,
                      const char *sandbox, struct cay_error *err)
{
    char names[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < count && used < sizeof names; i++)
        if (matches(&infos[i], NULL))
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%d%s%s",
                                     used ? ", " : "", infos[i].pid,
                                     infos[i].tag[0] ? " " : "", infos[i].tag);
    if (!used)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "cli.logs", sandbox,
                        "no background command in this sandbox",
                        "start one with cay exec -d; cay logs prints only their output");
    return cay_fail(err, CAY_E_INVALID, 0, "cli.logs", sandbox,
                    "several background commands in this sandbox", "pass one of: %s",
                    names);
}

/* `which` may be NULL if there is only one background command. */
static int find_process(cay_sandbox *sandbox, const char *which,
                        struct cay_process_info *ret_info, struct cay_error *err)
{
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0, found = 0;

    TRY(cay_process_list(sandbox, &infos, &count, err));
    for (size_t i = 0; i < count; i++)
        if (matches(&infos[i], which)) {
            *ret_info = infos[i];
            found++;
        }
    if (found != 1 && !which)
        return fail_which(infos, count, cay_sandbox_id(sandbox), err);
    if (found == 0)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "cli.logs", which,
                        "no background command has this PID or tag",
                        "cay ps %s lists them", cay_sandbox_id(sandbox));
    return CAY_OK;
}

int cmd_logs(struct call *call, struct cay_error *err)
{
    cay_sandbox *sandbox = NULL;
    struct stream stream = {.only_shows = true};
    struct cay_process_info info = {0};
    char pid[16];

    int code = find_sandbox(call->line.arguments[0], &sandbox, err);
    signals_catch(); /* not before: cay-full would inherit the blocked signals */
    if (!code)
        code = find_process(sandbox, call->line.arguments[1], &info, err);
    if (!code) {
        snprintf(pid, sizeof pid, "%d", info.pid);
        stream.only_kept = !call->options.follow && !info.has_ended;
        code = cay_process_attach(sandbox, pid, &stream.process, err);
    }
    if (!code)
        code = stream_run(&stream, err);
    cay_process_free(stream.process);
    cay_sandbox_free(sandbox);
    if (stream.signal)
        signals_die(stream.signal);
    return code;
}
