/* SPDX-License-Identifier: Apache-2.0 */

/* `cay` where musl is installed: a small static program with the commands about native
 * sandboxes.  It starts in a fifth of the time of cay-full, the full program, which is
 * linked to glibc and can load libraries.  For everything else, and for a command line
 * with a mistake, it executes cay-full. */
#include <linux/close_range.h>
#include <pwd.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/progress.h"
#include "sandbox/approve.h"

static char **own_argv;

/* The timer of a progress display survives execve(2), but not its handler: the alarm
 * would kill cay-full. */
static int exec_full(struct cay_error *err)
{
    progress_stop();
    return cli_exec("cay-full", own_argv, err);
}

static int open_local(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    (void)id;
    (void)ret_sandbox;
    return exec_full(err);
}

static int copy_dir(cay_files *files, const char *source, const char *target,
                    struct cay_error *err)
{
    (void)files;
    (void)source;
    (void)target;
    return exec_full(err);
}

static int send_archive(cay_files *files, int fd, const char *target,
                        struct cay_error *err)
{
    (void)files;
    (void)fd;
    (void)target;
    return exec_full(err);
}

static int collect_sessions(size_t *ret_count, struct cay_error *err)
{
    (void)ret_count;
    return exec_full(err);
}

static int run_full(struct call *call, struct cay_error *err)
{
    (void)call;
    return exec_full(err);
}

static int list_warm(struct cay_warm_info **ret_infos, size_t *ret_count,
                     struct cay_error *err)
{
    (void)ret_infos;
    (void)ret_count;
    return exec_full(err);
}

/* Differences of files are in cay-full. */
static int rollback(cay_sandbox *sandbox, const char *which,
                    const struct cay_rollback_options *options,
                    struct cay_rollback *ret_rollback, struct cay_error *err)
{
    ret_rollback->ended = NULL;
    return options->keep
               ? exec_full(err)
               : cay_sandbox_rollback_with(sandbox, which, options, ret_rollback, err);
}

/* The queue is in cay-full. */
static int watch_egress(cay_sandbox *sandbox, struct cay_error *err)
{
    (void)sandbox;
    return exec_full(err);
}

int approve_await(cay_sandbox *sandbox, const struct approve_command *command,
                  struct cay_error *err)
{
    (void)sandbox;
    (void)command;
    return exec_full(err);
}

static int checkpoint_try(struct call *call, bool *ret_is_try, struct cay_error *err)
{
    (void)call;
    *ret_is_try = true;
    return exec_full(err);
}

const struct sandbox_program sandbox_program = {
    .rollback = rollback,
    .start = cay_process_start,
    .watch_egress = watch_egress,
    .checkpoint_try = checkpoint_try,
    .open_local = open_local,
    .send_dir = copy_dir,
    .send_archive = send_archive,
    .receive_dir = copy_dir,
    .collect_sessions = collect_sessions,
    .try = run_full,
    .mcp = run_full,
    .doctor = run_full,
    .list_warm = list_warm,
};

/* musl reads /etc/passwd only, but a user may come from another source (NSS).  The name
 * is needed to find the user's ids in /etc/subuid. */
static bool knows_user(void)
{
    return geteuid() == 0 || getpwuid(getuid());
}

/* Whether the command line is about sandboxes and has no mistake: cay-full explains
 * mistakes. */
static bool is_plain(char *const *argv)
{
    struct call call = {.line = {.count = 0}};
    struct cay_error err;

    bool is_plain = options_parse(&sandbox_grammar, argv, &call, &err) == 0 &&
                    !call.options.help && !call.options.help_all &&
                    !call.options.config && !call.options.approvals.count &&
                    !call.options.approve_egress && !call.options.contexts &&
                    options_check(&sandbox_grammar, &call.line, &err) == 0 &&
                    strcmp(argv[0], call.line.subcommand->name) == 0;
    options_done(&call);
    return is_plain;
}

int main(int argc, char **argv)
{
    struct cay_error err;

    (void)argc;
    own_argv = argv;
    if (argv[0] && is_plain(argv + 1) && knows_user()) {
        cli_begin();
        /* The command must not inherit other descriptors.  Commands besides run may
         * execute cay-full, which can need them: cay cp /dev/fd/9 ID:/dir/ */
        if (strcmp(argv[1], "run") == 0)
            (void)syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
        return call_run(&sandbox_grammar, argv + 1);
    }
    (void)exec_full(&err);
    cli_begin();
    return output_error(&err, false);
}
