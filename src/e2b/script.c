/* SPDX-License-Identifier: Apache-2.0 */

/* What the daemon cannot do is done inside, by small scripts that never change: what they
 * are about comes as their arguments. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/command.h"

enum { WATCH_AFTER_MS = 500 };

/* The daemon ends only the first process of a command.  The others are found by a
 * variable in their environment, of which each command has its own; over and over,
 * for what forks may be a step ahead.  It ends as the last grep did. */
static const char end_tree[] =
    "i=0\n"
    "while [ $i -lt 200 ]; do\n"
    "  found=$(grep -lsF -- \"$1\" /proc/[0-9]*/environ); seen=$?\n"
    "  [ \"$found\" ] || exit $seen\n"
    "  for one in $found; do one=${one#/proc/}; kill -9 \"${one%/environ}\"; done\n"
    "  i=$((i + 1))\n"
    "done\n"
    "exit 3\n";

enum { GREP_COULD_NOT_READ = 2 };

/* Or whose process it is, if that cannot be read. */
static const char find_marker[] =
    "tr '\\0' '\\n' <\"/proc/$1/environ\" | grep '^CAY_COMMAND=' || "
    "stat -c %u \"/proc/$1\"\n";

/* One that has ended, but was not collected, is a zombie. */
static const char await_end[] = "while read -r line <\"/proc/$1/stat\"; do\n"
                                "  case ${line##*) } in [ZX]*) exit 0 ;; esac\n"
                                "  sleep 0.1\n"
                                "done\n";

static const char send_signal[] = "kill -\"$1\" \"$2\"\n";

static const char tell_user[] = "id -u\n";
static const char give_directory[] = "mkdir -p -- \"$1\" && chown -- \"$2\" \"$1\"\n";

static const char find_program[] =
    "case $1 in\n"
    "*/*) p=$1 ;;\n"
    "*) p=$(command -v \"$1\") || exit 127; case $p in */*) ;; *) exit 127 ;; esac ;;\n"
    "esac\n"
    "[ -e \"$p\" ] || exit 127\n"
    "[ -f \"$p\" ] && [ -x \"$p\" ] || exit 126\n";

/* --- Running them --- */

/* One of ours, by sh(1), which has the words as its arguments. */
struct script {
    const char *text;
    const char *words[3]; /* up to a NULL */
    const char *user, *cwd;
    const char *const *env;
};

static int start_script(struct e2b_command *command, const struct script *script,
                        uint64_t timeout_ms, struct cay_error *err)
{
    const char *argv[8] = {"/bin/sh", "-c", script->text, E2B_HELPER};
    const struct cay_exec_options options = {
        .size = sizeof options,
        .argv = argv,
        .env = script->env,
        .cwd = script->cwd ? script->cwd : "/",
        .user = script->user,
        .timeout_ms = timeout_ms,
    };

    for (size_t i = 0; i < 3 && script->words[i]; i++)
        argv[4 + i] = script->words[i];
    command->is_helper = true;
    return e2b_command_start(command, &options, 0, err);
}

/* Until it has ended: its exit status, and what it wrote if somebody wants that. */
static int finish(struct e2b_command *command, struct buf *out, int *ret_exit,
                  struct cay_error *err)
{
    struct e2b_event event;
    int next;

    while ((next = e2b_command_next(command, &event)) >= 0 &&
           clock_ms() < command->deadline_ms) {
        if (next > 0 && out && event.stream == 1)
            buf_append(out, event.data, event.len);
        if (next > 0)
            e2b_event_done(&event);
        else
            e2b_command_step(command, command->deadline_ms);
    }
    if (next > 0)
        e2b_event_done(&event);
    if (command->failure.code) {
        if (err)
            *err = command->failure;
        return command->failure.code;
    }
    if (!command->has_end || command->end.is_signalled)
        return cay_fail(err, CAY_E_TIMEOUT, 0, command->op, command->e2b->id,
                        "a helper inside did not end as it should",
                        "the sandbox may be overloaded; try again");
    *ret_exit = command->end.exit_code;
    return CAY_OK;
}

static int run_script(struct e2b *e2b, const struct script *script, const char *op,
                      struct buf *out, int *ret_exit, struct cay_error *err)
{
    struct e2b_command command;

    e2b_command_init(&command, e2b, op);
    int code = start_script(&command, script, E2B_KILL_MS, err);
    if (!code)
        code = finish(&command, out, ret_exit, err);
    e2b_command_done(&command);
    return code;
}

int e2b_script_words(struct e2b *e2b, const char *op, const char *user,
                     const char *const *argv, struct buf *out, int *ret_exit,
                     struct cay_error *err)
{
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .user = user,
                                             .cwd = "/",
                                             .timeout_ms = E2B_HELPER_MS};
    struct e2b_command command;

    e2b_command_init(&command, e2b, op);
    command.is_helper = true;
    int code = e2b_command_start(&command, &options, 0, err);
    if (!code)
        code = finish(&command, out, ret_exit, err);
    e2b_command_done(&command);
    return code;
}

void e2b_script_classify(struct e2b *e2b, const struct cay_exec_options *options,
                         struct cay_exec_result *result)
{
    const struct script script = {.text = find_program,
                                  .words = {options->argv[0]},
                                  .user = options->user,
                                  .cwd = options->cwd ? options->cwd : "",
                                  .env = options->env};
    int exit_code = 0;

    if (result->cause != CAY_CAUSE_EXITED ||
        (result->exit_code != 126 && result->exit_code != 127) ||
        run_script(e2b, &script, "sandbox.exec", NULL, &exit_code, NULL) != CAY_OK ||
        exit_code != result->exit_code)
        return;
    result->cause = CAY_CAUSE_NOT_STARTED;
    result->exec_errno = exit_code == 127 ? ENOENT : EACCES;
    /* What was written is about that, and by a helper of the daemon's. */
    free(result->out);
    free(result->error);
    result->out = calloc(1, 1);
    result->error = calloc(1, 1);
    result->out_len = result->error_len = 0;
}

int e2b_script_make_workdir(struct e2b *e2b, struct cay_error *err)
{
    static const char op[] = "sandbox.create";
    const char *path = e2b->settings.workdir;
    const struct script ask = {.text = tell_user};
    struct script make = {.text = give_directory, .user = "root"};
    struct cay_error error;
    int exit_code = 1;
    AUTO_BUF user = {0};

    int code = e2b_files.mkdir(e2b, NULL, path, CAY_NAME_EXIST_OK, &error);
    if (code == CAY_E_DENIED) { /* root can, and gives it away */
        buf_init(&user, 64);
        code = run_script(e2b, &ask, op, &user, &exit_code, &error);
        if (user.len)
            user.data[strcspn(user.data, "\n")] = '\0';
        make.words[0] = path;
        make.words[1] = user.data;
        if (!code && exit_code == 0)
            code = run_script(e2b, &make, op, NULL, &exit_code, &error);
        if (!code && exit_code)
            code = cay_fail(&error, CAY_E_DENIED, 0, op, path,
                            "the working directory cannot be made",
                            "choose one below the home directory");
    }
    if (code && err)
        *err = error;
    return code;
}

/* --- Watching --- */

static void begin_watch(struct e2b_command *command)
{
    char pid[16];
    const struct script script = {.text = await_end, .words = {pid}, .user = "root"};

    snprintf(pid, sizeof pid, "%d", command->pid);
    command->is_watched = true;
    command->watch = malloc(sizeof *command->watch);
    if (!command->watch)
        return;
    e2b_command_init(command->watch, command->e2b, command->op);
    command->watch->opens_later = true;
    if (start_script(command->watch, &script, 0, NULL) == CAY_OK)
        return;
    e2b_command_done(command->watch);
    free(command->watch);
    command->watch = NULL;
}

uint64_t e2b_script_watch_due(const struct e2b_command *command)
{
    bool wants = command->pid && !command->is_over && !command->is_watched &&
                 !command->is_helper && !command->has_output_files;

    return wants ? command->begin_ms + WATCH_AFTER_MS : UINT64_MAX;
}

void e2b_script_watch(struct e2b_command *command)
{
    struct e2b_event event;
    int next = 0;

    if (clock_ms() >= e2b_script_watch_due(command))
        begin_watch(command);
    while (command->watch && (next = e2b_command_next(command->watch, &event)) > 0)
        e2b_event_done(&event);
    if (!command->watch || next == 0)
        return;
    bool has_ended = command->watch->has_end && command->watch->end.exit_code == 0;
    e2b_command_done(command->watch);
    free(command->watch);
    command->watch = NULL;
    /* It is dead already; but this makes the daemon collect it. */
    if (has_ended && !command->is_over)
        (void)e2b_command_signal(command, SIGTERM, NULL);
}

/* --- Signals --- */

static int signal_by_daemon(struct e2b_command *command, int signal,
                            struct cay_error *err)
{
    const struct e2b_call call = {.op = "process.signal",
                                  .subject = command->e2b->id,
                                  .method = "process.Process/SendSignal",
                                  .repeatable = true,
                                  .fallback = CAY_E_UNAVAILABLE,
                                  .until_ms = clock_ms() + E2B_KILL_MS};
    AUTO_BUF body;

    buf_init(&body, 256);
    buf_format(&body, "{\"process\":{\"pid\":%d},\"signal\":\"SIGNAL_SIG%s\"}",
               command->pid, signal == SIGKILL ? "KILL" : "TERM");
    return e2b_call(command->e2b, &call, &body, NULL, err);
}

int e2b_command_signal(struct e2b_command *command, int signal, struct cay_error *err)
{
    char number[16], pid[16];
    const struct script script = {
        .text = send_signal, .words = {number, pid}, .user = "root"};
    int exit_code = 0;

    if (signal == SIGKILL || signal == SIGTERM)
        return signal_by_daemon(command, signal, err);
    if (signal < 0 || signal >= NSIG)
        return cay_fail(err, CAY_E_INVALID, 0, "process.signal", NULL,
                        "there is no such signal", "signals have numbers from 1 to 64");
    snprintf(number, sizeof number, "%d", signal);
    snprintf(pid, sizeof pid, "%d", command->pid);
    int code = run_script(command->e2b, &script, "process.signal", NULL, &exit_code, err);
    if (!code && exit_code)
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, "process.signal", NULL,
                        "the command has ended", "fetch its result");
    return code;
}

/* That of one that somebody else has started, as this user sees it; or else its owner. */
static void look_for_marker(struct e2b_command *command, const char *user)
{
    char pid[16];
    const struct script script = {.text = find_marker, .words = {pid}, .user = user};
    int exit_code;
    AUTO_BUF out = {0};

    snprintf(pid, sizeof pid, "%d", command->pid);
    buf_init(&out, sizeof command->marker - 1);
    if (run_script(command->e2b, &script, "process.kill", &out, &exit_code, NULL) !=
            CAY_OK ||
        exit_code != 0 || out.len == 0 || out.failed)
        return;
    out.data[strcspn(out.data, "\n")] = '\0';
    if (strncmp(out.data, "CAY_COMMAND=", 12) == 0)
        cay_copy_text(command->marker, sizeof command->marker, out.data);
    else if (!out.data[strspn(out.data, "0123456789")])
        cay_copy_text(command->user, sizeof command->user, out.data);
}

static void learn_marker(struct e2b_command *command)
{
    if (*command->marker || !command->pid)
        return;
    look_for_marker(command, "root");
    if (!*command->marker && *command->user)
        look_for_marker(command, command->user);
}

/* Where root is not all-powerful, only its owner sees a process's environment. */
static void kill_tree(const struct e2b_command *command)
{
    struct script script = {.text = end_tree, .words = {command->marker}, .user = "root"};
    int exit_code = 0;

    if (run_script(command->e2b, &script, "process.kill", NULL, &exit_code, NULL) !=
            CAY_OK ||
        exit_code != GREP_COULD_NOT_READ)
        return;
    script.user = *command->user ? command->user : NULL;
    (void)run_script(command->e2b, &script, "process.kill", NULL, &exit_code, NULL);
}

int e2b_command_kill(struct e2b_command *command, struct cay_error *err)
{
    struct cay_error error;
    int code = CAY_OK;

    command->is_killed = true;
    if (!command->has_end)
        learn_marker(command);
    if (command->pid && !command->has_end)
        code = signal_by_daemon(command, SIGKILL, &error);
    if (*command->marker)
        kill_tree(command);
    if (!code || code == CAY_E_NOT_FOUND) /* it has ended meanwhile */
        return CAY_OK;
    if (err)
        *err = error;
    return code;
}
