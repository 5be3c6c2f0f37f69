/* SPDX-License-Identifier: Apache-2.0 */
/* cay create, pause, resume, start, kill, rm and gc. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/hint.h"
#include "cli/signals.h"
#include "json/json.h"

/* --- create --- */

static int print_id(struct call *call, const cay_sandbox *sandbox, struct cay_error *err)
{
    if (call->options.as_json)
        json_set_text(output_json(&call->output), "id", cay_sandbox_id(sandbox));
    else
        fprintf(call->output.file, "%s\n", cay_sandbox_id(sandbox));
    return output_finish(&call->output, err);
}

int cmd_create(struct call *call, struct cay_error *err)
{
    struct sandbox_plan plan;
    cay_sandbox *sandbox = NULL;
    int code = sandbox_plan(&call->options, call->configured, NULL, &plan, err);

    if (!code && plan.sandbox.ephemeral)
        code = cay_fail(err, CAY_E_INVALID, 0, "cli.create", call->options.config,
                        "an ephemeral sandbox would end with this command",
                        "leave ephemeral out, or use cay run");
    if (code) {
        sandbox_plan_done(&plan);
        return code;
    }
    signals_catch();
    code = cay_sandbox_create(&plan.sandbox, &sandbox, err);
    if (!code && !call->options.quiet)
        hint_level(sandbox, plan.sandbox.require);
    if (!code)
        code = forward_publish(sandbox, &call->options.ports, err);
    if (!code && sandbox_plan_asks_egress(&plan))
        code = sandbox_program.watch_egress(sandbox, err);
    if (!code)
        code = print_id(call, sandbox, err);
    /* Without its printed ID the caller could not remove it. */
    int signal = signals_take();
    if (sandbox && (code || signal))
        (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    sandbox_plan_done(&plan);
    if (signal)
        signals_die(signal);
    return code;
}

/* --- pause, resume, start, kill, rm and gc --- */

typedef int life_step(cay_sandbox *sandbox, struct cay_error *err);

/* What the command does to each sandbox. */
static life_step *step_of(const struct call *call)
{
    static life_step *const steps[] = {
        [SANDBOX_PAUSE] = cay_sandbox_pause, [SANDBOX_RESUME] = cay_sandbox_resume,
        [SANDBOX_START] = cay_sandbox_start, [SANDBOX_KILL] = cay_sandbox_kill,
        [SANDBOX_RM] = cay_sandbox_remove,
    };

    if (call->options.to_disk)
        return cay_sandbox_pause_disk;
    return steps[call->line.subcommand - sandbox_grammar.subcommands];
}

/* `done`: a JSON array that gets the ID, or NULL. */
static int do_one(struct call *call, const char *id, struct json *done,
                  struct cay_error *err)
{
    bool may_be_gone = call->options.force || call->options.all;
    AUTO(cay_sandbox) sandbox = NULL;
    int code = find_sandbox(id, &sandbox, err);

    if (!code)
        code = step_of(call)(sandbox, err);
    if (!code && done)
        json_put_text(done, cay_sandbox_id(sandbox));
    return code == CAY_E_NOT_FOUND && may_be_gone ? CAY_OK : code;
}

/* Kills all at once; a sandbox may end by itself meanwhile.  do_one() handles failed
 * kills and files on disk. */
static int end_listed(struct call *call, const struct cay_sandbox_info *infos,
                      size_t count, struct json *done, struct cay_error *err)
{
    AUTO_FREE const char **ids = calloc(count + 1, sizeof *ids);
    AUTO_FREE struct cay_error *errors = calloc(count + 1, sizeof *errors);
    size_t left = 0;

    if (!ids || !errors)
        return cay_fail_memory(err, "cli.life");
    for (size_t i = 0; i < count; i++)
        ids[i] = infos[i].id;
    (void)!cay_sandbox_kill_many(ids, count, errors);
    for (size_t i = 0; i < count; i++) {
        bool has_disk =
            infos[i].storage == CAY_STORAGE_DISK && step_of(call) != cay_sandbox_kill;
        if (errors[i].code == CAY_OK && !has_disk && done)
            json_put_text(done, ids[i]);
        if (has_disk || (errors[i].code && errors[i].code != CAY_E_NOT_FOUND))
            ids[left++] = ids[i];
    }
    return call_each(call, ids, left, do_one, done, err);
}

static int end_all(struct call *call, struct json *done, struct cay_error *err)
{
    AUTO_FREE struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    TRY(cay_sandbox_list_brief(&infos, &count, err));
    return end_listed(call, infos, drop_spares(infos, count), done, err);
}

/* Reports a word that is neither an ID nor a name before any sandbox is ended. */
static int check_ids(const char *const *ids, size_t count, bool may_be_gone,
                     struct cay_error *err)
{
    for (size_t i = 0; i < count; i++) {
        AUTO(cay_sandbox) sandbox = NULL;
        int code = find_sandbox(ids[i], &sandbox, err);
        bool is_name = strncmp(ids[i], "sb-", 3) != 0;
        if (code == CAY_E_INVALID || (code == CAY_E_NOT_FOUND && is_name && !may_be_gone))
            return code;
    }
    return CAY_OK;
}

static int check_line(const struct call *call, struct cay_error *err)
{
    const struct command_line *line = &call->line;

    if (call->options.all && line->count)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.life", line->arguments[0],
                        "--all cannot be combined with an ID", "leave out one of them");
    if (!call->options.all && !line->count)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.life", line->subcommand->name,
                        "no sandbox given", "pass an ID, or --all");
    return check_ids(line->arguments, line->count, call->options.force, err);
}

int cmd_life(struct call *call, struct cay_error *err)
{
    const struct command_line *line = &call->line;
    struct json *done = NULL;

    TRY(check_line(call, err));
    if (call->options.as_json)
        done = output_list(&call->output, "sandboxes");
    return call->options.all
               ? end_all(call, done, err)
               : call_each(call, line->arguments, line->count, do_one, done, err);
}

/* SIGKILL also ends all descendants; other signals go to the first process only. */
static int send_signal(struct call *call, struct cay_error *err)
{
    const struct command_line *line = &call->line;
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO(cay_process) process = NULL;

    if (line->count != 2 || call->options.all)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.life", "-s",
                        "a signal needs one sandbox and one background command",
                        "write cay kill -s SIGNAL ID PID|TAG; cay ps ID lists them");
    TRY(find_sandbox(line->arguments[0], &sandbox, err));
    TRY(cay_process_attach(sandbox, line->arguments[1], &process, err));
    TRY(call->options.signal == SIGKILL
            ? cay_process_kill(process, err)
            : cay_process_signal(process, call->options.signal, err));
    if (call->options.as_json)
        json_set_int(output_json(&call->output), "pid", cay_process_pid(process));
    return CAY_OK;
}

int cmd_kill(struct call *call, struct cay_error *err)
{
    if (call->options.signal)
        return send_signal(call, err);
    return cmd_life(call, err);
}

int cmd_gc(struct call *call, struct cay_error *err)
{
    size_t count = 0, starts = 0;
    int failed = sandbox_program.collect_sessions(&starts, err);
    int code = cay_sandbox_collect(&count, failed ? NULL : err);

    if (failed || code)
        return failed ? failed : code;
    count += starts;
    if (call->options.as_json)
        json_set_uint(output_json(&call->output), "collected", count);
    else
        fprintf(call->output.file, "removed %zu leftover%s\n", count,
                count == 1 ? "" : "s");
    return CAY_OK;
}
