/* SPDX-License-Identifier: Apache-2.0 */

/* A background command afterwards: what has become of it, what it has written, its end on
 * request. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/command.h"
#include "agent/output.h"
#include "agent/task.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

static const char kill_op[] = "background.kill";

enum { AGAIN = 20, AGAIN_MS = 5, END_MS = 10000, TREE_MS = 60000 };

/* --- What has become of it ------------------------------------------------------------
 */

/* The exit code that the shell itself has written down. */
static bool read_exit(struct task *task, struct task_end *ret_end)
{
    AUTO_FREE char *exit = userfs_join(task->results.dir, TASK_EXIT);
    AUTO_FREE char *said = userfs_join(task->results.dir, TASK_SAID);
    AUTO_FREE char *command = userfs_join(task->results.dir, RESULTS_COMMAND);

    struct cay_content content = {0};
    struct cay_stat begin, end, words;
    uint64_t total;

    if (!exit || !said || !command ||
        userfs_read(&task->fs, exit, 0, 16, &content, &total, NULL) != CAY_OK)
        return false;
    char *stop;
    long code = strtol(content.data, &stop, 10);
    bool whole = stop != content.data && *stop == '\n' && code >= 0 && code <= 255;
    free(content.data);
    if (!whole)
        return false;
    *ret_end =
        (struct task_end){.end = {.cause = CAY_CAUSE_EXITED, .exit_code = (int)code}};
    if (code > 128 && code <= 128 + 64 &&
        userfs_stat(&task->fs, said, false, &words, NULL) == CAY_OK && words.bytes) {
        ret_end->end.cause = CAY_CAUSE_SIGNALLED;
        ret_end->end.signal = (int)code - 128;
    }
    if (userfs_stat(&task->fs, command, false, &begin, NULL) == CAY_OK &&
        userfs_stat(&task->fs, exit, false, &end, NULL) == CAY_OK &&
        end.mtime_ns > begin.mtime_ns)
        ret_end->end.wall_us = ((uint64_t)end.mtime_ns - (uint64_t)begin.mtime_ns) / 1000;
    return true;
}

/* Over and over, for what forks may be a step ahead. */
static const char kill_marked[] =
    "i=0\n"
    "while [ $i -lt 200 ]; do\n"
    "  found=$(grep -lsF -- \"$1\" /proc/[0-9]*/environ)\n"
    "  [ \"$found\" ] || exit 0\n"
    "  for one in $found; do one=${one#/proc/}; kill -9 \"${one%/environ}\"; done\n"
    "  i=$((i + 1))\n"
    "done\n"
    "exit 1\n";

/* What is left of one elsewhere whose first process is gone, by which its backend would
 * find the others. */
static int end_tree(cay_sandbox *sandbox, const struct task *task, struct cay_error *err)
{
    AUTO_FREE char *mark = NULL;
    struct cay_exec_result result = {0};

    if (asprintf(&mark, TASK_MARK "%s/" TASK_EXIT, task->results.dir) < 0)
        return cay_fail_memory(err, kill_op);
    const char *const argv[] = {"sh", "-c", kill_marked, "sh", mark, NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .cwd = "/",
                                             .user = task->fs.user,
                                             .timeout_ms = TREE_MS};
    int code = cay_sandbox_exec(sandbox, &options, &result, err);
    if (!code && result.exit_code != 0)
        code = cay_fail(err, CAY_E_BUSY, 0, kill_op, NULL,
                        "not all that the command has started could be ended",
                        "try again, or stop the sandbox");
    cay_exec_done(&result);
    return code;
}

/* Servers elsewhere end it when its time is over, and nobody may have been there to hear
 * why: then it was killed, and had no time to say how it ended.  Of its tree that is
 * perhaps only the first process. */
static bool was_its_time(cay_sandbox *sandbox, struct task *task,
                         struct task_end *ret_end)
{
    if (!task->timeout_ms ||
        clock_since_1970_ms() - task->started_ms < (int64_t)task->timeout_ms)
        return false;
    *ret_end = (struct task_end){.end = {.cause = CAY_CAUSE_TIMEOUT,
                                         .signal = SIGKILL,
                                         .wall_us = task->timeout_ms * 1000}};
    (void)!end_tree(sandbox, task, NULL);
    task_save_end(task, ret_end);
    return true;
}

enum progress { RUNS, ENDED, LOST };

static int wait_for(cay_process *process, uint64_t timeout_ms, struct task_end *ret_end,
                    struct cay_error *err)
{
    int code = cay_process_wait(process, timeout_ms, &ret_end->end, err);

    if (code)
        return code;
    /* The output is in the files. */
    free(TAKE_PTR(ret_end->end.out));
    free(TAKE_PTR(ret_end->end.error));
    return CAY_OK;
}

/* Learns how it ended from its process, and writes it down before anybody else can want
 * to know: it is told only once. */
static int ask_process(cay_sandbox *sandbox, struct task *task, cay_process *process,
                       enum progress *ret_progress, struct task_end *ret_end,
                       struct cay_error *err)
{
    struct cay_error why = {0};

    int code = wait_for(process, 0, ret_end, &why);
    *ret_progress = code ? RUNS : ENDED;
    if (code == CAY_E_TIMEOUT)
        return CAY_OK;
    if (code) {
        if (err)
            *err = why;
        return code;
    }
    if (!task->fs.files && !read_exit(task, ret_end) && ret_end->end.signal &&
        was_its_time(sandbox, task, ret_end))
        return CAY_OK;
    task_save_end(task, ret_end);
    return CAY_OK;
}

/* NULL and CAY_OK if there is no such process any more. */
static int attach(cay_sandbox *sandbox, const struct task *task,
                  cay_process **ret_process, struct cay_error *err)
{
    struct cay_error why = {0};
    int code = cay_process_attach(sandbox, task->tag, ret_process, &why);

    if (!code && cay_process_pid(*ret_process) != task->pid) {
        cay_process_free(*ret_process); /* another that has its tag now */
        *ret_process = NULL;
    }
    if (code == CAY_E_NOT_FOUND) {
        *ret_process = NULL;
        return CAY_OK;
    }
    if (code && err)
        *err = why;
    return code;
}

/* Who asked a moment ago may be about to write it down. */
static bool await_end(struct task *task, struct task_end *ret_end)
{
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000};

    for (int i = 0; i < AGAIN; i++) {
        if (task_read_end(task, ret_end) || read_exit(task, ret_end))
            return true;
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

static int look(cay_sandbox *sandbox, struct task *task, enum progress *ret_progress,
                struct task_end *ret_end, struct cay_error *err)
{
    cay_process *process = NULL;

    *ret_progress = ENDED;
    *ret_end = (struct task_end){0};
    if (task_read_end(task, ret_end))
        return CAY_OK;
    int code = attach(sandbox, task, &process, err);
    if (code)
        return code;
    if (process)
        code = ask_process(sandbox, task, process, ret_progress, ret_end, err);
    else if (!await_end(task, ret_end) && !was_its_time(sandbox, task, ret_end))
        *ret_progress = LOST;
    cay_process_free(process);
    return code;
}

/* --- Its status -----------------------------------------------------------------------
 */

static int read_output(struct task *task, struct output *output, struct cay_error *err)
{
    struct userfs *fs = &task->fs;

    for (int i = 0; i < 2; i++) {
        struct raw *raw = &output->raw[i];
        struct cay_content content = {0};
        struct cay_stat stat = {0};
        const char *file = task->results.files[i];
        int code = userfs_stat(fs, file, false, &stat, NULL);
        uint64_t from = stat.bytes > OUTPUT_MAX ? stat.bytes - OUTPUT_MAX : 0;
        if (!code)
            code = userfs_read(fs, file, from, OUTPUT_MAX, &content, &raw->total, NULL);
        raw->data = code ? calloc(1, 1) : content.data; /* it has not begun to write */
        raw->len = content.len;
        raw->total = code ? stat.bytes : from + content.len;
        if (!raw->data)
            return cay_fail_memory(err, "background.status");
    }
    output->fs = fs;
    output->results = &task->results;
    return CAY_OK;
}

static int judge(cay_sandbox *sandbox, const struct task *task, enum progress progress,
                 const struct task_end *end, struct cay_command_result *result,
                 struct cay_error *err)
{
    int64_t now = clock_since_1970_ms();

    result->background_pid = task->pid;
    if (progress == RUNS) {
        result->status = CAY_STATUS_RUNNING;
        result->exit_code = -1;
        result->duration_ms =
            now > task->started_ms ? (uint64_t)(now - task->started_ms) : 0;
        return CAY_OK;
    }
    if (progress == LOST) {
        result->status = CAY_STATUS_ERROR;
        result->exit_code = -1;
        snprintf(result->message, sizeof result->message,
                 "Background task (pid=%d) has ended; its exit code is unknown",
                 task->pid);
        return CAY_OK;
    }
    int code =
        command_judge(sandbox, &end->end, task->timeout_ms, "command", result, err);
    if (!code && end->is_stopped) {
        result->status = CAY_STATUS_STOPPED;
        snprintf(result->message, sizeof result->message,
                 "Background task (pid=%d) was killed", task->pid);
    }
    return code;
}

static int tell_status(cay_sandbox *sandbox, struct task *task,
                       const struct cay_command_options *options,
                       struct cay_command_result *result, struct cay_error *err)
{
    struct output output = {0};
    struct task_end end;
    enum progress progress;

    int code = look(sandbox, task, &progress, &end, err);
    if (!code)
        code = judge(sandbox, task, progress, &end, result, err);
    if (!code)
        code = read_output(task, &output, err);
    if (!code)
        code = output_show(&output, options, result, err);
    output_done(&output);
    return code;
}

int cay_background_status(cay_sandbox *sandbox, int pid,
                          const struct cay_command_options *options,
                          struct cay_command_result *ret_result, struct cay_error *err)
{
    struct cay_command_options known;
    struct cay_command_result result = {0};
    AUTO_TASK task = {0};

    int code = command_take_options(options, CAY_COMMAND_CLEAN, "background.status",
                                    &known, err);
    if (!code)
        code = task_find(sandbox, known.user, pid, &task, err);
    if (code)
        return code;
    code = tell_status(sandbox, &task, &known, &result, err);
    if (code)
        cay_command_done(&result);
    else
        *ret_result = result;
    return code;
}

/* --- Its end on request ---------------------------------------------------------------
 */

/* What has ended by itself may have left something running, which goes too. */
static int stop(cay_sandbox *sandbox, struct task *task, struct cay_error *err)
{
    struct task_end end = {0};
    enum progress progress = ENDED;
    cay_process *process = NULL;

    bool known = task_read_end(task, &end);
    int code = attach(sandbox, task, &process, err);
    if (!code && process && !known)
        code = ask_process(sandbox, task, process, &progress, &end, err);
    if (!code && process)
        code = cay_process_kill(process, err);
    if (!code && progress == RUNS && wait_for(process, END_MS, &end, NULL) == CAY_OK) {
        end.is_stopped = true;
        task_save_end(task, &end);
    }
    cay_process_free(process);
    if (!code && progress != RUNS && !task->fs.files)
        code = end_tree(sandbox, task, err);
    return code;
}

int cay_background_kill(cay_sandbox *sandbox, int pid,
                        struct cay_command_result *ret_result, struct cay_error *err)
{
    struct cay_command_result result = {.status = CAY_STATUS_SUCCESS,
                                        .background_pid = pid};
    AUTO_TASK task = {0};
    AUTO_BUF text;

    buf_init(&text, 256);
    int code = task_find(sandbox, NULL, pid, &task, err);
    if (!code)
        code = stop(sandbox, &task, err);
    if (code)
        return code;
    buf_format(&text, "Background task (pid=%d) killed successfully", pid);
    result.out_len = result.original_out_len = text.len;
    result.out = buf_take(&text);
    code = command_fill(&result, err);
    if (code)
        cay_command_done(&result);
    else
        *ret_result = result;
    return code;
}
