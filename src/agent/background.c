/* SPDX-License-Identifier: Apache-2.0 */

/* Background commands write to files inside, not to the output that the backend keeps for
 * cay_process_read(): that is the last bytes only, and the backend reports the outcome
 * once.  Files can be read repeatedly, by any process, and the sandbox's disk limits
 * them.
 *
 * A task is the record of such a command, in its user's base directory (results.h): the
 * file "pid-N" has the name of the command's directory, its tag and its start; the first
 * caller that gets the outcome writes it to the file "status" in that directory.  Pids
 * are reused, random tags are not, so the process is always found by its tag.
 *
 * On this machine the shell that opens the files execs the command, so that the pid and
 * the outcome are the command's own.  A remote backend may forget a process that ended;
 * there the shell stays and writes the exit code to a file. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/command.h"
#include "agent/output.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

static const char start_op[] = "background.start", kill_op[] = "background.kill";

enum {
    RECORD_MAX = 512,
    OTHERS_MAX = 64,
    RETRIES = 20,
    RETRY_MS = 5,
    END_MS = 10000,
    KILL_MS = 60000
};

enum { TASK_TAG = 64 };

/* Of a remote command, in its directory: the exit code, and the standard error of the
 * shell that wrote it.  All descendants of the command have the path of the former in
 * their environment, as TASK_MARK. */
#define TASK_EXIT        "exit"
#define TASK_SHELL_ERROR "said.txt"
#define TASK_MARK        "CAY_TASK="

struct task {
    struct userfs fs; /* of the user who started it */
    char user[16];    /* that user by uid, if it is not the caller's */
    struct results results;
    int pid;
    char tag[TASK_TAG];
    int64_t started_ms; /* since 1970 */
    uint64_t timeout_ms;
};
#define AUTO_TASK __attribute__((cleanup(task_done))) struct task

/* How it ended: only cause, exit code, signal and wall_us are set. */
struct task_end {
    struct cay_exec_result end;
    bool is_stopped; /* on request */
};

static void task_done(struct task *task)
{
    results_done(&task->results);
    userfs_close(&task->fs);
}

/* --- Records --------------------------------------------------------------------------
 */

static char *record_path(const char *dir, int pid)
{
    char name[24];

    snprintf(name, sizeof name, "pid-%d", pid);
    return userfs_join(dir, name);
}

/* The content of a small file; "" if there is none. */
static void read_record(struct userfs *fs, const char *path, char record[RECORD_MAX])
{
    struct cay_content content = {0};
    uint64_t total;

    *record = '\0';
    if (path &&
        userfs_read(fs, path, 0, RECORD_MAX - 1, &content, &total, NULL) == CAY_OK &&
        content.len < RECORD_MAX && !memchr(content.data, '\0', content.len))
        memcpy(record, content.data, content.len + 1);
    free(content.data);
}

/* The next word up to a blank; "" if there is none or it is too long. */
static void next_word(char **at, char *word, size_t room)
{
    size_t len = strcspn(*at, " \n");

    *word = '\0';
    if (len < room) {
        memcpy(word, *at, len);
        word[len] = '\0';
    }
    *at += len + ((*at)[len] != '\0');
}

static bool next_number(char **at, int64_t *ret_number)
{
    char *end;

    *ret_number = strtoll(*at, &end, 10);
    bool fine = end != *at && (*end == ' ' || *end == '\n');
    *at = end + fine;
    return fine;
}

static int task_save(struct userfs *fs, const struct task *task, struct cay_error *err)
{
    char record[RECORD_MAX];
    const char *name = strrchr(task->results.dir, '/') + 1;
    AUTO_FREE char *path = record_path(task->results.base, task->pid);

    if (!path)
        return cay_fail_memory(err, "background.start");
    int len = snprintf(record, sizeof record, "%s %s %lld %llu %s\n", name, task->tag,
                       (long long)task->started_ms, (unsigned long long)task->timeout_ms,
                       cay_sandbox_id(fs->sandbox));
    return userfs_write(fs, path, record, (size_t)len, 0, NULL, err);
}

/* 1 if the base has a task of that pid, 0 if not, or a code. */
static int load(struct userfs *fs, const char *base, int pid, struct task *ret_task,
                struct cay_error *err)
{
    AUTO_FREE char *path = record_path(base, pid);
    char record[RECORD_MAX], *at = record;
    char name[RESULTS_NAME], id[RECORD_MAX];
    int64_t started, timeout;

    read_record(fs, path, record);
    next_word(&at, name, sizeof name);
    next_word(&at, ret_task->tag, sizeof ret_task->tag);
    if (strspn(name, "0123456789abcdef") != RESULTS_NAME - 1 || !*ret_task->tag ||
        !next_number(&at, &started) || !next_number(&at, &timeout))
        return 0;
    /* Sandboxes without a root of their own share the /tmp of the host. */
    next_word(&at, id, sizeof id);
    if (strcmp(id, cay_sandbox_id(fs->sandbox)) != 0)
        return 0;
    ret_task->pid = pid;
    ret_task->started_ms = started;
    ret_task->timeout_ms = (uint64_t)timeout;
    int code = results_at(base, name, &ret_task->results, err);
    return code ? code : 1;
}

static int task_find(cay_sandbox *sandbox, const char *user, int pid,
                     struct task *ret_task, struct cay_error *err)
{
    AUTO_BASES bases = {0};
    struct userfs *fs = &ret_task->fs;
    char message[64];
    unsigned others = 0; /* any user can create directories that look like bases */
    int found = 0;

    *ret_task = (struct task){0};
    int code = userfs_open(sandbox, user, fs, err);
    if (!code)
        code = results_bases(fs, &bases, err);
    if (code)
        return code;
    for (size_t i = 0; !found && i < bases.count && others < OTHERS_MAX; i++) {
        const struct results_base *base = &bases.items[i];
        if (i >= bases.own_count) { /* with the rights of its owner */
            others++;
            snprintf(ret_task->user, sizeof ret_task->user, "%u", base->uid);
            userfs_close(fs);
            if (userfs_open(sandbox, ret_task->user, fs, NULL) != CAY_OK)
                continue;
        }
        found = load(fs, base->path, pid, ret_task, err);
    }
    if (found)
        return found > 0 ? CAY_OK : found;
    snprintf(message, sizeof message, "Background task not found: pid=%d", pid);
    return cay_fail(err, CAY_E_NOT_FOUND, 0, "background.find", NULL, message,
                    "pass the background_pid of a command that was started in the "
                    "background in this sandbox");
}

/* --- Recorded outcomes ----------------------------------------------------------------
 */

static bool task_read_end(struct task *task, struct task_end *ret_end)
{
    AUTO_FREE char *path = userfs_join(task->results.dir, "status");
    char record[RECORD_MAX], *at = record;
    int64_t numbers[5] = {0};

    read_record(&task->fs, path, record);
    for (size_t i = 0; i < 5; i++)
        if (!next_number(&at, &numbers[i]))
            return false;
    *ret_end = (struct task_end){.end = {.cause = (enum cay_cause)numbers[0],
                                         .exit_code = (int)numbers[1],
                                         .signal = (int)numbers[2],
                                         .wall_us = (uint64_t)numbers[3]},
                                 .is_stopped = numbers[4] != 0};
    return numbers[0] >= CAY_CAUSE_EXITED && numbers[0] <= CAY_CAUSE_NOT_STARTED;
}

static void task_save_end(struct task *task, const struct task_end *end)
{
    AUTO_FREE char *path = userfs_join(task->results.dir, "status");
    char record[RECORD_MAX];

    if (!path)
        return;
    int len = snprintf(record, sizeof record, "%d %d %d %llu %d\n", (int)end->end.cause,
                       end->end.exit_code, end->end.signal,
                       (unsigned long long)end->end.wall_us, end->is_stopped);
    (void)!userfs_write(&task->fs, path, record, (size_t)len, 0, NULL, NULL);
}

/* $0: the shell; $1: the command or its file; $2, $3: the output files; $4: the file for
 * the exit code; $5: the standard error of the shell.  bash prints the signal there if
 * one killed the command, which the exit code alone does not show. */
static const char exec_argument[] = "exec \"$0\" -c -- \"$1\" >\"$2\" 2>\"$3\"";
static const char exec_file[] = "exec \"$0\" -- \"$1\" >\"$2\" 2>\"$3\"";
static const char run_file[] =
    "exec 2>\"$5\"\n" TASK_MARK "\"$4\" \"$0\" -- \"$1\" >\"$2\" 2>\"$3\"\n"
    "echo \"$?\" >\"$4\"\n";

/* --- Starting -------------------------------------------------------------------------
 */

struct launch {
    cay_sandbox *sandbox;
    const char *command;
    char *file;     /* command.txt */
    bool from_file; /* the shell reads it: the command is too long for an argument, or the
                       sandbox is remote */
    char *exit_file, *shell_error_file;
    const struct cay_command_options *options;
    struct task task;
};

static int start_shell(const struct launch *launch, cay_process **ret_process,
                       struct cay_error *err)
{
    const struct cay_command_options *known = launch->options;
    const struct results *results = &launch->task.results;
    const char *argv[] = {NULL,
                          "-c",
                          !launch->task.fs.files ? run_file
                          : launch->from_file    ? exec_file
                                                 : exec_argument,
                          NULL,
                          launch->from_file ? launch->file : launch->command,
                          results->files[0],
                          results->files[1],
                          launch->exit_file,
                          launch->shell_error_file,
                          NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .flags = CAY_EXEC_BACKGROUND,
                                             .argv = argv,
                                             .env = known->env,
                                             .cwd = known->cwd,
                                             .user = known->user,
                                             .timeout_ms = launch->task.timeout_ms,
                                             .tag = launch->task.tag};
    int code = CAY_OK;

    for (size_t i = 0; shells[i]; i++) {
        argv[0] = argv[3] = shells[i];
        code = cay_process_start(launch->sandbox, &options, ret_process, err);
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

    TRY(command_check_long(launch->sandbox, launch->command, err));
    int code = userfs_open(launch->sandbox, known->user, fs, err);
    if (!code)
        code = results_new(fs, &task->results, err);
    if (code)
        return code;
    launch->from_file = strlen(launch->command) > COMMAND_ARGUMENT_MAX || !fs->files;
    launch->exit_file = userfs_join(task->results.dir, TASK_EXIT);
    launch->shell_error_file = userfs_join(task->results.dir, TASK_SHELL_ERROR);
    if (!launch->exit_file || !launch->shell_error_file)
        return cay_fail_memory(err, start_op);
    /* Of a remote command the time of this file is also its start, by the clock there. */
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

/* A command without a record could not be found again, so it is killed. */
static int start(struct launch *launch, struct cay_error *err)
{
    struct task *task = &launch->task;
    cay_process *process = NULL;

    int code = prepare(launch, err);
    if (code)
        return code;
    task->started_ms = clock_since_1970_ms();
    code = start_shell(launch, &process, err);
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

static int report_start(const struct task *task, struct cay_command_result *result,
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
    if (!result->out)
        return cay_fail_memory(err, start_op);
    int code = results_name(&task->results, result, err);
    return code ? code : command_fill(result, err);
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
        code = report_start(&launch.task, &result, &error);
    task_done(&launch.task);
    free(launch.file);
    free(launch.exit_file);
    free(launch.shell_error_file);
    if (code)
        cay_command_done(&result);
    else
        *ret_result = result;
    return cay_fail_as(err, code, &error);
}

/* --- Its state ------------------------------------------------------------------------
 */

/* The exit code that the shell of a remote command wrote. */
static bool read_exit(struct task *task, struct task_end *ret_end)
{
    AUTO_FREE char *exit = userfs_join(task->results.dir, TASK_EXIT);
    AUTO_FREE char *shell_error = userfs_join(task->results.dir, TASK_SHELL_ERROR);
    AUTO_FREE char *command = userfs_join(task->results.dir, RESULTS_COMMAND);

    struct cay_content content = {0};
    struct cay_stat begin, end, words;
    uint64_t total;

    if (!exit || !shell_error || !command ||
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
        userfs_stat(&task->fs, shell_error, false, &words, NULL) == CAY_OK &&
        words.bytes) {
        ret_end->end.cause = CAY_CAUSE_SIGNALLED;
        ret_end->end.signal = (int)code - 128;
    }
    if (userfs_stat(&task->fs, command, false, &begin, NULL) == CAY_OK &&
        userfs_stat(&task->fs, exit, false, &end, NULL) == CAY_OK &&
        end.mtime_ns > begin.mtime_ns)
        ret_end->end.wall_us = ((uint64_t)end.mtime_ns - (uint64_t)begin.mtime_ns) / 1000;
    return true;
}

/* Repeatedly: a process may fork between the search and the kill. */
static const char kill_marked[] =
    "i=0\n"
    "while [ $i -lt 200 ]; do\n"
    "  found=$(grep -lsF -- \"$1\" /proc/[0-9]*/environ)\n"
    "  [ \"$found\" ] || exit 0\n"
    "  for one in $found; do one=${one#/proc/}; kill -9 \"${one%/environ}\"; done\n"
    "  i=$((i + 1))\n"
    "done\n"
    "exit 1\n";

/* Kills what is left of a remote command whose first process is gone, by which the
 * backend would find the others. */
static int kill_descendants(cay_sandbox *sandbox, const struct task *task,
                            struct cay_error *err)
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
                                             .timeout_ms = KILL_MS};
    int code = cay_sandbox_exec(sandbox, &options, &result, err);
    if (!code && result.exit_code != 0)
        code = cay_fail(err, CAY_E_BUSY, 0, kill_op, NULL,
                        "some processes of the command are still running",
                        "try again, or stop the sandbox");
    cay_exec_done(&result);
    return code;
}

/* A remote server kills a command at its timeout, perhaps only its first process, while
 * no client is connected: then there is no exit code, and the clock shows the cause. */
static bool has_timed_out(cay_sandbox *sandbox, struct task *task,
                          struct task_end *ret_end)
{
    if (!task->timeout_ms ||
        clock_since_1970_ms() - task->started_ms < (int64_t)task->timeout_ms)
        return false;
    *ret_end = (struct task_end){.end = {.cause = CAY_CAUSE_TIMEOUT,
                                         .signal = SIGKILL,
                                         .wall_us = task->timeout_ms * 1000}};
    (void)!kill_descendants(sandbox, task, NULL);
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
    /* The output is in the result files. */
    free(TAKE_PTR(ret_end->end.out));
    free(TAKE_PTR(ret_end->end.error));
    return CAY_OK;
}

/* Gets the outcome from the process, and records it: the backend reports it only once. */
static int poll_process(cay_sandbox *sandbox, struct task *task, cay_process *process,
                        enum progress *ret_progress, struct task_end *ret_end,
                        struct cay_error *err)
{
    struct cay_error why = {0};

    int code = wait_for(process, 0, ret_end, &why);
    *ret_progress = code ? RUNS : ENDED;
    if (code == CAY_E_TIMEOUT)
        return CAY_OK;
    if (code)
        return cay_fail_as(err, code, &why);
    if (!task->fs.files && !read_exit(task, ret_end) && ret_end->end.signal &&
        has_timed_out(sandbox, task, ret_end))
        return CAY_OK;
    task_save_end(task, ret_end);
    return CAY_OK;
}

/* NULL and CAY_OK if the process no longer exists. */
static int attach(cay_sandbox *sandbox, const struct task *task,
                  cay_process **ret_process, struct cay_error *err)
{
    struct cay_error why = {0};
    int code = cay_process_attach(sandbox, task->tag, ret_process, &why);

    if (!code && cay_process_pid(*ret_process) != task->pid) {
        cay_process_free(*ret_process); /* another one with the same tag */
        *ret_process = NULL;
    }
    if (code == CAY_E_NOT_FOUND) {
        *ret_process = NULL;
        return CAY_OK;
    }
    return cay_fail_as(err, code, &why);
}

/* Another caller may have got the outcome, and be about to record it. */
static bool await_record(struct task *task, struct task_end *ret_end)
{
    const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000};

    for (int i = 0; i < RETRIES; i++) {
        if (task_read_end(task, ret_end) || read_exit(task, ret_end))
            return true;
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

static int get_state(cay_sandbox *sandbox, struct task *task, enum progress *ret_progress,
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
        code = poll_process(sandbox, task, process, ret_progress, ret_end, err);
    else if (!await_record(task, ret_end) && !has_timed_out(sandbox, task, ret_end))
        *ret_progress = LOST;
    cay_process_free(process);
    return code;
}

/* --- The public calls -----------------------------------------------------------------
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
        raw->data = code ? calloc(1, 1) : content.data; /* not created yet */
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

int cay_background_poll(cay_sandbox *sandbox, int pid,
                        const struct cay_command_options *options,
                        struct cay_command_result *ret_result, struct cay_error *err)
{
    struct cay_command_options known;
    struct cay_command_result result = {0};
    struct output output = {0};
    struct task_end end;
    enum progress progress;
    AUTO_TASK task = {0};

    int code = command_take_options(options, CAY_COMMAND_CLEAN, "background.status",
                                    &known, err);
    if (!code)
        code = task_find(sandbox, known.user, pid, &task, err);
    if (!code)
        code = get_state(sandbox, &task, &progress, &end, err);
    if (!code)
        code = judge(sandbox, &task, progress, &end, &result, err);
    if (!code)
        code = read_output(&task, &output, err);
    if (!code)
        code = output_show(&output, &known, &result, err);
    output_done(&output);
    if (code)
        cay_command_done(&result);
    else
        *ret_result = result;
    return code;
}

/* Also kills what a command that ended by itself has left running. */
static int stop(cay_sandbox *sandbox, struct task *task, struct cay_error *err)
{
    struct task_end end = {0};
    enum progress progress = ENDED;
    cay_process *process = NULL;

    bool known = task_read_end(task, &end);
    int code = attach(sandbox, task, &process, err);
    if (!code && process && !known)
        code = poll_process(sandbox, task, process, &progress, &end, err);
    if (!code && process)
        code = cay_process_kill(process, err);
    if (!code && progress == RUNS && wait_for(process, END_MS, &end, NULL) == CAY_OK) {
        end.is_stopped = true;
        task_save_end(task, &end);
    }
    cay_process_free(process);
    if (!code && progress != RUNS && !task->fs.files)
        code = kill_descendants(sandbox, task, err);
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
