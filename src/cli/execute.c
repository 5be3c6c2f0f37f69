/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/execute.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/hint.h"
#include "cli/quantity.h"
#include "cli/show.h"
#include "cli/stream.h"
#include "json/json.h"

enum { STATUS_CANNOT_RUN = 126, STATUS_NOT_FOUND = 127 };

static struct hint hint_of(const struct execute *execute)
{
    return (struct hint){execute->sandbox, &execute->plan.exec,
                         execute->is_fresh ? &execute->plan.sandbox : NULL};
}

/* --- What became of it --- */

static void find_limits(const struct execute *execute, uint64_t *ret_memory,
                        uint32_t *ret_pids)
{
    const struct cay_sandbox_options *wish = &execute->plan.sandbox;
    struct cay_sandbox_info info = {.id = ""};

    if (execute->is_fresh) {
        info.memory_bytes = wish->memory_bytes ? wish->memory_bytes : CAY_MEMORY_DEFAULT;
        info.pids = wish->pids ? wish->pids : CAY_PIDS_DEFAULT;
    } else {
        (void)!cay_sandbox_inspect(execute->sandbox, &info, NULL);
    }
    *ret_memory = info.memory_bytes;
    *ret_pids = info.pids;
}

/* Which limit it met. */
static void put_limits(struct json *json, const struct execute *execute,
                       const struct cay_exec_result *result)
{
    uint64_t memory;
    uint32_t pids;

    json_set_uint(json, "memory_kills", result->memory_kills);
    json_set_uint(json, "refused_forks", result->refused_forks);
    if (result->cause != CAY_CAUSE_MEMORY && !result->memory_kills &&
        !result->refused_forks)
        return;
    find_limits(execute, &memory, &pids);
    json_set_uint(json, "memory_limit", memory);
    json_set_uint(json, "pids_limit", pids);
}

static void put_words(struct json *json, const char *key, const char *words)
{
    json_put_key(json, key);
    json_put_bytes(json, words, strlen(words));
}

/* Why it was not started, or what it may have failed for want of. */
static void put_reason(struct json *json, const struct execute *execute,
                       const struct cay_exec_result *result)
{
    struct hint hint = hint_of(execute);
    char room[HINT_ROOM];
    bool has_failed = result->cause == CAY_CAUSE_EXITED && result->exit_code != 0;

    if (result->cause == CAY_CAUSE_NOT_STARTED) {
        json_set_int(json, "errno", result->exec_errno);
        json_set_text(json, "message", cay_errno_words(result->exec_errno));
        put_words(json, "subject", execute->plan.exec.argv[0]);
        put_words(json, "hint", hint_program(&hint, result->exec_errno, room));
    } else if (has_failed) {
        const char *word = hint_failure(&hint, result->exit_code, room);
        if (!word)
            return;
        put_words(json, "subject", word);
        put_words(json, "hint", room);
    }
}

static int tell_json(const struct execute *execute, const struct cay_exec_result *result,
                     struct cay_error *err)
{
    struct output *output = &execute->call->output;
    struct json json;

    output_begin_json(output, &json);
    json_set_text(&json, "cause", show_cause(result->cause));
    json_set_int(&json, "exit_code", result->exit_code);
    json_set_int(&json, "signal", result->signal);
    json_put_key(&json, "stdout");
    json_put_bytes(&json, result->out, result->out_len);
    json_put_key(&json, "stderr");
    json_put_bytes(&json, result->error, result->error_len);
    json_set_uint(&json, "stdout_dropped", result->out_dropped);
    json_set_uint(&json, "stderr_dropped", result->error_dropped);
    json_set_uint(&json, "wall_us", result->wall_us);
    json_set_uint(&json, "user_us", result->user_us);
    json_set_uint(&json, "system_us", result->system_us);
    json_set_uint(&json, "peak_memory", result->peak_memory);
    put_limits(&json, execute, result);
    put_reason(&json, execute, result);
    output_end_json(output, &json);
    return output_finish(output, err);
}

/* Which limit it met, and what became of whom: a shell may have gone on without. */
static void tell_limits(const struct execute *execute,
                        const struct cay_exec_result *result)
{
    bool is_killed = result->cause == CAY_CAUSE_MEMORY;
    char room[QUANTITY_ROOM];
    uint64_t memory;
    uint32_t pids;

    if (!is_killed && !result->memory_kills && !result->refused_forks)
        return;
    find_limits(execute, &memory, &pids);
    const char *how =
        execute->is_fresh ? "raise it with" : "create the sandbox with a larger";
    if (is_killed || result->memory_kills)
        fprintf(stderr, "cay: %skilled: memory limit %s (%s -m)\n",
                is_killed ? "" : "note: a process inside was ",
                quantity_bytes(memory, room), how);
    if (result->refused_forks)
        fprintf(stderr,
                "cay: note: a process inside was not started: limit of %u processes (%s "
                "--pids)\n",
                pids, how);
}

static void tell_failure(const struct execute *execute,
                         const struct cay_exec_result *result)
{
    struct hint hint = hint_of(execute);
    char room[HINT_ROOM];
    const char *word = hint_failure(&hint, result->exit_code, room);

    if (!word)
        return;
    fputs("cay: note: ", stderr);
    show_name(stderr, word);
    fputs(": ", stderr);
    show_name(stderr, room);
    fputc('\n', stderr);
}

static void tell_not_started(const struct execute *execute, int exec_errno)
{
    struct hint hint = hint_of(execute);
    char room[HINT_ROOM];

    fprintf(stderr, "cay: %s: ", cay_code_slug(CAY_E_EXEC_FAILED));
    show_name(stderr, execute->plan.exec.argv[0]);
    fprintf(stderr, ": %s (", cay_errno_words(exec_errno));
    show_name(stderr, hint_program(&hint, exec_errno, room));
    fputs(")\n", stderr);
}

/* Says why, where a bare number would leave people guessing. */
static void tell_text(const struct execute *execute, const struct cay_exec_result *result)
{
    tell_limits(execute, result);
    switch (result->cause) {
    case CAY_CAUSE_TIMEOUT:
        fprintf(stderr, "cay: killed: timeout of %llu ms (raise it with --timeout)\n",
                (unsigned long long)execute->plan.exec.timeout_ms);
        break;
    case CAY_CAUSE_GONE:
        fputs("cay: killed: the sandbox ended (its time to live expired, or it was "
              "killed)\n",
              stderr);
        break;
    case CAY_CAUSE_NOT_STARTED:
        tell_not_started(execute, result->exec_errno);
        break;
    case CAY_CAUSE_EXITED:
        if (result->exit_code != 0)
            tell_failure(execute, result);
        break;
    case CAY_CAUSE_MEMORY:
    case CAY_CAUSE_SIGNALLED:
    case CAY_CAUSE_OUTPUT_LIMIT:
        break;
    }
}

/* --- Running it --- */

static int take_kept(struct tail *kept, struct cay_exec_result *result,
                     struct cay_error *err)
{
    free(result->out);
    free(result->error);
    result->out_dropped = kept[0].dropped;
    result->error_dropped = kept[1].dropped;
    result->out = tail_take(&kept[0], &result->out_len);
    result->error = tail_take(&kept[1], &result->error_len);
    return result->out && result->error ? CAY_OK : cay_fail_memory(err, "cli.execute");
}

static int tell(struct execute *execute, struct cay_exec_result *result,
                struct cay_error *err)
{
    int code = CAY_OK;

    if (execute->call->options.as_json)
        code = tell_json(execute, result, err);
    else
        tell_text(execute, result);
    return code ? code : result->exit_code;
}

int execute_not_started(struct execute *execute, struct cay_error *err)
{
    struct cay_exec_result result = {
        .cause = CAY_CAUSE_NOT_STARTED,
        .exec_errno = err->sys_errno,
        .exit_code = err->sys_errno == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN,
    };

    return tell(execute, &result, err);
}

static int finish(struct execute *execute, cay_process *process, struct tail *kept,
                  struct cay_error *err)
{
    struct cay_exec_result result;
    int code = cay_process_wait(process, UINT64_MAX, &result, err);

    if (code)
        return code;
    int status = result.exit_code;
    /* A program that was asked to end and did so in its own way has the last word. */
    if (result.cause == CAY_CAUSE_EXITED && execute->signal != SIGPIPE)
        execute->signal = 0;
    if (execute->call->options.as_json)
        code = take_kept(kept, &result, err);
    if (!code && !execute->signal)
        status = tell(execute, &result, err);
    cay_exec_done(&result);
    return code ? code : status;
}

static int stream_process(struct execute *execute, cay_process *process,
                          struct cay_error *err)
{
    const struct sandbox_options *options = &execute->call->options;
    struct tail kept[2] = {0};
    struct stream stream = {
        .process = process,
        .passes_input = options->interactive,
        .is_raw = options->interactive && options->tty,
        .kept = options->as_json ? kept : NULL,
    };

    tail_init(&kept[0], CAY_OUTPUT_DEFAULT);
    tail_init(&kept[1], CAY_OUTPUT_DEFAULT);
    int code = stream_run(&stream, err);
    execute->signal = stream.signal;
    if (!code)
        code = finish(execute, process, kept, err);
    tail_done(&kept[0]);
    tail_done(&kept[1]);
    return code;
}

int execute_wait(struct execute *execute, struct cay_error *err)
{
    struct sandbox_plan *plan = &execute->plan;
    int code =
        execute->is_fresh
            ? cay_sandbox_run(&plan->sandbox, &plan->exec, &execute->sandbox,
                              &execute->process, err)
            : cay_process_start(execute->sandbox, &plan->exec, &execute->process, err);

    if (execute->is_fresh) /* while the command runs: see cmd-sandbox.c */
        cay_sandbox_tidy();
    if (execute->is_fresh && execute->sandbox && !execute->call->options.quiet)
        hint_level(execute->sandbox, plan->sandbox.require);
    if (!code)
        code = stream_process(execute, execute->process, err);
    else if (code == CAY_E_EXEC_FAILED)
        code = execute_not_started(execute, err);
    return code;
}

void execute_done(struct execute *execute)
{
    cay_process_free(execute->process);
    cay_sandbox_free(execute->sandbox);
}
