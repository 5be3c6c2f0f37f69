/* SPDX-License-Identifier: Apache-2.0 */

/* Background commands write straight into files inside, not into what the backend keeps
 * for cay_process_read(): that has the last bytes only, and how it ended is told there
 * but once.  Files can be read again and again, from any process, and what bounds them is
 * the sandbox's own disk.
 *
 * On this machine the shell that opens the files executes the command in its own fs:
 * the number is the command's own, and its end is what the backend says it is.  Backends
 * elsewhere may forget what has ended, so there the shell stays and writes the exit code
 * down itself. */
#include "agent/background.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/command.h"
#include "agent/task.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

static const char op[] = "background.start";

const char *const shells[] = {"bash", "sh", NULL};

/* $0: the shell; $1: the command or its file; $2, $3: the output; $4: the exit code, by
 * which its whole tree is found, too; $5: what the shell itself says: bash does if a
 * signal has ended the command, which the code alone does not tell. */
static const char exec_argument[] = "exec \"$0\" -c -- \"$1\" >\"$2\" 2>\"$3\"";
static const char exec_file[] = "exec \"$0\" -- \"$1\" >\"$2\" 2>\"$3\"";
static const char run_file[] =
    "exec 2>\"$5\"\n" TASK_MARK "\"$4\" \"$0\" -- \"$1\" >\"$2\" 2>\"$3\"\n"
    "echo \"$?\" >\"$4\"\n";

/* --- The start ------------------------------------------------------------------------
 */

struct launch {
    cay_sandbox *sandbox;
    const char *command;
    char *file;     /* that has the command, too */
    bool from_file; /* the shell reads it: the command is too long for an argument, or the
                       sandbox is elsewhere */
    char *exit_file, *said_file;
    const struct cay_command_options *options;
    struct task task;
};

static const char *script_of(const struct launch *launch)
{
    return !launch->task.fs.files ? run_file
           : launch->from_file    ? exec_file
                                  : exec_argument;
}

static int start_shell(const struct launch *launch, const char *shell,
                       cay_process **ret_process, struct cay_error *err)
{
    const struct cay_command_options *known = launch->options;
    const struct results *results = &launch->task.results;
    const char *const argv[] = {shell,
                                "-c",
                                script_of(launch),
                                shell,
                                launch->from_file ? launch->file : launch->command,
                                results->files[0],
                                results->files[1],
                                launch->exit_file,
                                launch->said_file,
                                NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .flags = CAY_EXEC_BACKGROUND,
                                             .argv = argv,
                                             .env = known->env,
                                             .cwd = known->cwd,
                                             .user = known->user,
                                             .timeout_ms = launch->task.timeout_ms,
                                             .tag = launch->task.tag};

    return cay_process_start(launch->sandbox, &options, ret_process, err);
}

static int start_any_shell(const struct launch *launch, cay_process **ret_process,
                           struct cay_error *err)
{
    int code = CAY_OK;

    for (size_t i = 0; shells[i]; i++) {
        code = start_shell(launch, shells[i], ret_process, err);
        if (code != CAY_E_EXEC_FAILED || err->sys_errno != ENOENT)
            break;
    }
    return code;
}

static int prepare(struct launch *launch, struct cay_error *err)
{
    const struct cay_command_options *known = launch->options;
    struct task *task = &launch->task;
    struct userfs *fs = &task->fs;

    int code = userfs_open(launch->sandbox, known->user, fs, err);
    if (!code)
        code = results_new(fs, &task->results, err);
    if (code)
        return code;
    launch->from_file = strlen(launch->command) > COMMAND_ARGUMENT_MAX || !fs->files;
    launch->exit_file = userfs_join(task->results.dir, TASK_EXIT);
    launch->said_file = userfs_join(task->results.dir, TASK_SAID);
    if (!launch->exit_file || !launch->said_file)
        return cay_fail_memory(err, op);
    /* Elsewhere the time of this file is also when the command began, by that clock. */
    code = results_keep_command(fs, &task->results, launch->command, &launch->file, err);
    if (code)
        return code;
    task->timeout_ms = command_timeout(known, 0);
    if (known->tag) {
        cay_copy_text(task->tag, sizeof task->tag, known->tag);
    } else {
        memcpy(task->tag, "cay-", 4);
        results_hex(task->tag + 4, 16);
    }
    return CAY_OK;
}

/* Nobody could ask for a command that is not written down. */
static int start(struct launch *launch, struct cay_error *err)
{
    struct task *task = &launch->task;
    cay_process *process = NULL;

    int code = prepare(launch, err);
    if (code)
        return code;
    task->started_ms = clock_since_1970_ms();
    code = start_any_shell(launch, &process, err);
    if (!code) {
        task->pid = cay_process_pid(process);
        code = task_save(&task->fs, task, err);
        if (code)
            (void)!cay_process_kill(process, NULL);
    }
    cay_process_free(process);
    if (code)
        (void)!userfs_remove(&task->fs, task->results.dir, NULL);
    return code;
}

static int tell_start(const struct task *task, struct cay_command_result *result,
                      struct cay_error *err)
{
    AUTO_BUF text;

    buf_init(&text, 4096);
    buf_format(&text, "Background task started (pid: %d)\nOutput will be saved to %s/\n",
               task->pid, task->results.dir);
    result->status = CAY_STATUS_SUCCESS;
    result->background_pid = task->pid;
    result->out_len = result->original_out_len = text.len;
    result->out = buf_take(&text);
    result->output_dir = strdup(task->results.dir);
    result->out_file = strdup(task->results.files[0]);
    result->error_file = strdup(task->results.files[1]);
    if (!result->out || !result->output_dir || !result->out_file || !result->error_file)
        return cay_fail_memory(err, op);
    return command_fill(result, err);
}

int background_start(cay_sandbox *sandbox, const char *command,
                     const struct cay_command_options *options,
                     struct cay_command_result *ret_result, struct cay_error *err)
{
    struct launch launch = {.sandbox = sandbox, .command = command, .options = options};
    struct cay_command_result result = {0};
    struct cay_error error = {0};

    int code = start(&launch, &error);
    if (code && command_blame(&error, &result))
        code = command_fill(&result, &error);
    else if (!code)
        code = tell_start(&launch.task, &result, &error);
    task_done(&launch.task);
    free(launch.file);
    free(launch.exit_file);
    free(launch.said_file);
    if (!code) {
        *ret_result = result;
        return CAY_OK;
    }
    cay_command_done(&result);
    if (err)
        *err = error;
    return code;
}
