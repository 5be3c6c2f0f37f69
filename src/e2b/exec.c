/* SPDX-License-Identifier: Apache-2.0 */

/* A command that the caller waits for. */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/api.h"
#include "e2b/script.h"
#include "sandbox/streams.h"

static const char op[] = "sandbox.exec";

struct sink {
    const struct cay_exec_options *options;
    struct tail tails[2];
    bool wants_end; /* the output limit is reached, or the callback returned non-zero */
};

static bool add_output(struct e2b_command *command, struct sink *sink,
                       const struct e2b_event *event)
{
    const struct cay_exec_options *options = sink->options;
    struct tail *tail = &sink->tails[event->stream - 1];

    if (options->on_output) {
        if (event->len && !sink->wants_end)
            sink->wants_end = options->on_output(options->cookie, event->stream,
                                                 event->data, event->len) != 0;
        return true;
    }
    if (!tail_add(tail, event->data, event->len))
        return false;
    if (tail->dropped && options->flags & CAY_EXEC_FAIL_ON_LIMIT)
        sink->wants_end = command->is_over_limit = true;
    return true;
}

/* Passes on the available output.  `is_dying`: the command is being killed. */
static int collect_output(struct e2b_command *command, struct sink *sink, bool is_dying,
                          struct cay_error *err)
{
    struct e2b_event event;

    while ((!sink->wants_end || is_dying) && e2b_command_next(command, &event) > 0) {
        bool is_added = add_output(command, sink, &event);
        e2b_event_done(&event);
        if (!is_added)
            return cay_fail_memory(err, op);
        if (!is_dying && clock_ms() >= command->deadline_ms)
            break;
    }
    if (command->input.failure.code && !is_dying && err)
        *err = command->input.failure;
    return is_dying ? CAY_OK : command->input.failure.code;
}

/* Runs until the command is over, or must be killed. */
static int pump(struct e2b_command *command, struct sink *sink, struct cay_error *err)
{
    for (;;) {
        int code = collect_output(command, sink, false, err);
        if (code || command->is_over || sink->wants_end ||
            clock_ms() >= command->deadline_ms)
            return code;
        uint64_t due = e2b_api_keep_alive_due(command->e2b);
        e2b_script_step(command, due < command->deadline_ms ? due : command->deadline_ms);
        e2b_api_keep_alive(command->e2b, command->deadline_ms);
    }
}

/* Kills the command and collects the output that it wrote before. */
static void kill_command(struct e2b_command *command, struct sink *sink)
{
    uint64_t until = clock_ms() + E2B_KILL_MS;

    if (!command->request.sent) /* the server has not received it */
        e2b_http_abort(&command->request, CURLE_OPERATION_TIMEDOUT);
    else if (!command->is_over)
        (void)e2b_command_wait_start(command, until, NULL);
    if (e2b_command_may_live(command))
        (void)e2b_command_kill(command, NULL);
    while (!command->is_over && clock_ms() < until &&
           collect_output(command, sink, true, NULL) == CAY_OK && !command->is_over)
        e2b_script_step(command, until);
    if (!command->end_ms)
        command->end_ms = clock_ms();
}

/* Looks up $1 as execvp(3) does: exits with 127 if it is missing, 126 if it is not
 * executable. */
static const char find_program[] =
    "case $1 in\n"
    "*/*) p=$1 ;;\n"
    "*) p=$(command -v \"$1\") || exit 127; case $p in */*) ;; *) exit 127 ;; esac ;;\n"
    "esac\n"
    "[ -e \"$p\" ] || exit 127\n"
    "[ -f \"$p\" ] && [ -x \"$p\" ] || exit 126\n";

/* The exit status 126 or 127 is the program's own, or means that it did not start. */
static void classify(struct e2b *e2b, const struct cay_exec_options *options,
                     struct cay_exec_result *result)
{
    const struct e2b_script script = {.text = find_program,
                                      .words = {options->argv[0]},
                                      .user = options->user,
                                      .cwd = options->cwd ? options->cwd : "",
                                      .env = options->env};
    int exit_code = 0;

    if (result->cause != CAY_CAUSE_EXITED ||
        (result->exit_code != 126 && result->exit_code != 127) ||
        e2b_script_run(e2b, &script, op, NULL, &exit_code, NULL) != CAY_OK ||
        exit_code != result->exit_code)
        return;
    result->cause = CAY_CAUSE_NOT_STARTED;
    result->exec_errno = exit_code == 127 ? ENOENT : EACCES;
    /* The output is an error message of envd's own shell. */
    free(result->out);
    free(result->error);
    result->out = calloc(1, 1);
    result->error = calloc(1, 1);
    result->out_len = result->error_len = 0;
}

int e2b_exec(void *cookie, const struct cay_exec_options *options,
             struct cay_exec_result *ret_result, struct cay_error *err)
{
    struct cay_exec_options known;
    struct cay_exec_result result = {0};
    struct e2b_command command;

    int code = cay_take_struct(&known, sizeof known, options, op, err);
    if (!code)
        code = e2b_start_check(&known, op, CAY_EXEC_FAIL_ON_LIMIT | CAY_EXEC_TTY, err);
    if (code)
        return code;
    uint64_t limit = known.output_limit ? known.output_limit : CAY_OUTPUT_DEFAULT;
    struct sink sink = {.options = &known};
    tail_init(&sink.tails[0], (size_t)limit);
    tail_init(&sink.tails[1], (size_t)limit);
    e2b_api_keep_alive(cookie, UINT64_MAX);
    e2b_command_init(&command, cookie, op);
    code = e2b_command_start(&command, &known, E2B_GRACE_MS, err);
    if (!code) {
        code = pump(&command, &sink, err);
        command.is_timed_out |= !code && !command.is_over && !sink.wants_end;
        if (code || e2b_command_may_live(&command))
            kill_command(&command, &sink);
    }
    if (!code)
        code = e2b_command_result(&command, &result, err);
    if (!code)
        code = streams_take(sink.tails, &result, op, err);
    if (!code)
        classify(cookie, &known, &result);
    e2b_command_done(&command);
    tail_done(&sink.tails[0]);
    tail_done(&sink.tails[1]);
    if (code)
        cay_exec_done(&result);
    else
        *ret_result = result;
    return code;
}
