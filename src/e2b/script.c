/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/script.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/envd.h"

enum { WATCH_AFTER_MS = 500 };

/* --- Running --- */

static int start_script(struct e2b_command *command, const struct e2b_script *script,
                        uint64_t timeout_ms, struct cay_error *err)
{
    const char *argv[8] = {"/bin/sh", "-c", script->text, E2B_HELPER};
    const struct cay_exec_options options = {
        .size = sizeof options,
        .argv = script->argv ? script->argv : argv,
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

int e2b_script_run(struct e2b *e2b, const struct e2b_script *script, const char *op,
                   struct buf *out, int *ret_exit, struct cay_error *err)
{
    struct e2b_command command;
    struct e2b_event event;
    int next = 0;

    e2b_command_init(&command, e2b, op);
    int code = start_script(&command, script,
                            script->timeout_ms ? script->timeout_ms : E2B_KILL_MS, err);
    while (!code && (next = e2b_command_next(&command, &event)) >= 0 &&
           clock_ms() < command.deadline_ms) {
        if (next > 0 && out && event.stream == 1)
            buf_append(out, event.data, event.len);
        if (next == 0)
            e2b_command_step(&command, command.deadline_ms);
        e2b_event_done(&event);
    }
    if (!code && next > 0)
        e2b_event_done(&event);
    if (!code && command.failure.code) {
        code = command.failure.code;
        if (err)
            *err = command.failure;
    }
    if (!code && (!command.has_end || command.end.is_signalled))
        code = cay_fail(err, CAY_E_TIMEOUT, 0, op, e2b->id,
                        "a helper script in the sandbox did not finish",
                        "the sandbox may be overloaded; try again");
    if (!code)
        *ret_exit = command.end.exit_code;
    e2b_command_done(&command);
    return code;
}

/* --- The end of a command --- */

/* Exits when the process is a zombie: it has ended, and envd has not collected it. */
static const char wait_for_zombie[] = "while read -r line <\"/proc/$1/stat\"; do\n"
                                      "  case ${line##*) } in [ZX]*) exit 0 ;; esac\n"
                                      "  sleep 0.1\n"
                                      "done\n";

static void free_watch(struct e2b_command *command)
{
    e2b_command_done(command->watch);
    free(command->watch);
    command->watch = NULL;
}

static void start_watch(struct e2b_command *command)
{
    char pid[16];
    const struct e2b_script script = {
        .text = wait_for_zombie, .words = {pid}, .user = "root"};

    snprintf(pid, sizeof pid, "%d", command->pid);
    command->is_watched = true;
    command->watch = malloc(sizeof *command->watch);
    if (!command->watch)
        return;
    e2b_command_init(command->watch, command->e2b, command->op);
    command->watch->no_wait = true;
    if (start_script(command->watch, &script, 0, NULL) != CAY_OK)
        free_watch(command);
}

uint64_t e2b_script_watch_due(const struct e2b_command *command)
{
    bool is_due = command->pid && !command->is_over && !command->is_watched &&
                  !command->is_helper && !command->has_output_files;

    return is_due ? command->begin_ms + WATCH_AFTER_MS : UINT64_MAX;
}

void e2b_script_step(struct e2b_command *command, uint64_t until_ms)
{
    uint64_t due = e2b_script_watch_due(command);
    struct e2b_event event;
    int next = 0;

    e2b_command_step(command, due < until_ms ? due : until_ms);
    if (clock_ms() >= e2b_script_watch_due(command))
        start_watch(command);
    while (command->watch && (next = e2b_command_next(command->watch, &event)) > 0)
        e2b_event_done(&event);
    if (!command->watch || next == 0)
        return;
    bool is_zombie = command->watch->has_end && command->watch->end.exit_code == 0;
    free_watch(command);
    /* The signal does nothing to a zombie, but makes envd collect it. */
    if (is_zombie && !command->is_over)
        (void)e2b_command_signal(command, SIGTERM, NULL);
}

/* --- Signals --- */

static int signal_by_envd(struct e2b_command *command, int signal, struct cay_error *err)
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
    static const char op[] = "process.signal";
    char number[16], pid[16];
    const struct e2b_script script = {
        .text = "kill -\"$1\" \"$2\"\n", .words = {number, pid}, .user = "root"};
    int exit_code = 0;

    if (signal == SIGKILL || signal == SIGTERM)
        return signal_by_envd(command, signal, err);
    if (signal < 0 || signal >= NSIG)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "invalid signal number",
                        "signals have numbers from 1 to 64");
    snprintf(number, sizeof number, "%d", signal);
    snprintf(pid, sizeof pid, "%d", command->pid);
    int code = e2b_script_run(command->e2b, &script, op, NULL, &exit_code, err);
    if (!code && exit_code)
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, "the command has ended",
                        "its output and its result can still be read");
    return code;
}

/* --- Killing all processes of a command --- */

/* envd kills only the first process.  Each command has a variable of its own in its
 * environment, which its descendants inherit.  The loop repeats the search because a
 * process may fork meanwhile.  Exits with the status of the last grep. */
static const char kill_marked[] =
    "i=0\n"
    "while [ $i -lt 200 ]; do\n"
    "  found=$(grep -lsF -- \"$1\" /proc/[0-9]*/environ); seen=$?\n"
    "  [ \"$found\" ] || exit $seen\n"
    "  for one in $found; do one=${one#/proc/}; kill -9 \"${one%/environ}\"; done\n"
    "  i=$((i + 1))\n"
    "done\n"
    "exit 3\n";

enum { GREP_COULD_NOT_READ = 2 };

/* Prints the marker of a process, or its uid if the environment is unreadable. */
static const char print_marker[] =
    "tr '\\0' '\\n' <\"/proc/$1/environ\" | grep '^CAY_COMMAND=' || "
    "stat -c %u \"/proc/$1\"\n";

/* Sets the marker, or else the user, of a command that another client started. */
static void read_marker(struct e2b_command *command, const char *user)
{
    char pid[16];
    const struct e2b_script script = {.text = print_marker, .words = {pid}, .user = user};
    int exit_code;
    AUTO_BUF out = {0};

    snprintf(pid, sizeof pid, "%d", command->pid);
    buf_init(&out, sizeof command->marker - 1);
    if (e2b_script_run(command->e2b, &script, "process.kill", &out, &exit_code, NULL) !=
            CAY_OK ||
        exit_code != 0 || out.len == 0 || out.failed)
        return;
    out.data[strcspn(out.data, "\n")] = '\0';
    if (strncmp(out.data, "CAY_COMMAND=", 12) == 0)
        cay_copy_text(command->marker, sizeof command->marker, out.data);
    else if (!out.data[strspn(out.data, "0123456789")])
        cay_copy_text(command->user, sizeof command->user, out.data);
}

int e2b_command_kill(struct e2b_command *command, struct cay_error *err)
{
    static const char op[] = "process.kill";
    struct e2b_script script = {
        .text = kill_marked, .words = {command->marker}, .user = "root"};
    struct cay_error error;
    int code = CAY_OK, exit_code = 0;

    command->is_killed = true;
    if (!*command->marker && command->pid && !command->has_end) {
        read_marker(command, "root");
        if (!*command->marker && *command->user)
            read_marker(command, command->user);
    }
    if (command->pid && !command->has_end)
        code = signal_by_envd(command, SIGKILL, &error);
    /* Without CAP_SYS_PTRACE, root cannot read the environment of other users. */
    if (*command->marker &&
        e2b_script_run(command->e2b, &script, op, NULL, &exit_code, NULL) == CAY_OK &&
        exit_code == GREP_COULD_NOT_READ) {
        script.user = *command->user ? command->user : NULL;
        (void)e2b_script_run(command->e2b, &script, op, NULL, &exit_code, NULL);
    }
    if (!code || code == CAY_E_NOT_FOUND) /* the command has ended meanwhile */
        return CAY_OK;
    if (err)
        *err = error;
    return code;
}
