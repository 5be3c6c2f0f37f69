/* SPDX-License-Identifier: Apache-2.0 */

/* `cay` where there is musl: a small program that starts in a fifth of the time of the
 * whole one, and has the commands about native sandboxes.  For everything else, and for a
 * command line that is not plain, it becomes the whole one, cay-full, which is linked to
 * libraries of the other C library and can load more. */
#include <linux/close_range.h>
#include <pwd.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/helper.h"

static char **own_argv;

static int become_whole(struct cay_error *err)
{
    return helper_become("cay-full", own_argv, err);
}

static int open_local(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    (void)id;
    (void)ret_sandbox;
    return become_whole(err);
}

static int copy_dir(cay_files *files, const char *source, const char *target,
                    struct cay_error *err)
{
    (void)files;
    (void)source;
    (void)target;
    return become_whole(err);
}

static int send_archive(cay_files *files, int fd, const char *target,
                        struct cay_error *err)
{
    (void)files;
    (void)fd;
    (void)target;
    return become_whole(err);
}

const struct sandbox_program sandbox_program = {
    .commands =
        {
            [SANDBOX_RUN] = {cmd_run, "cay-run"},
            [SANDBOX_CREATE] = {cmd_create, "cay-create"},
            [SANDBOX_EXEC] = {cmd_exec, "cay-exec"},
            [SANDBOX_SHELL] = {cmd_shell, "cay-exec"},
            [SANDBOX_LS] = {cmd_ls, "cay-ls"},
            [SANDBOX_INSPECT] = {cmd_inspect, "cay-ls"},
            [SANDBOX_PS] = {cmd_ps, "cay-ps"},
            [SANDBOX_LOGS] = {cmd_logs, "cay-ps"},
            [SANDBOX_CP] = {cmd_cp, "cay-cp"},
            [SANDBOX_CAT] = {cmd_cat, "cay-cp"},
            [SANDBOX_PUT] = {cmd_put, "cay-cp"},
            [SANDBOX_PAUSE] = {cmd_pause, "cay-kill"},
            [SANDBOX_RESUME] = {cmd_resume, "cay-kill"},
            [SANDBOX_START] = {cmd_start, "cay-kill"},
            [SANDBOX_KILL] = {cmd_kill, "cay-kill"},
            [SANDBOX_RM] = {cmd_rm, "cay-kill"},
        },
    .open_local = open_local,
    .send_dir = copy_dir,
    .send_archive = send_archive,
    .receive_dir = copy_dir,
};

/* Names may come from more than /etc/passwd, which this C library does not know; they are
 * needed to find the ids that /etc/subuid gives a user. */
static bool knows_us(void)
{
    return geteuid() == 0 || getpwuid(getuid());
}

static bool has_command(const char *name)
{
    for (size_t i = 0; i < SANDBOX_COMMANDS; i++)
        if (strcmp(name, sandbox_grammar.subcommands[i].name) == 0)
            return sandbox_program.commands[i].run;
    return false;
}

/* Whether the command line is one of ours, without a mistake: the whole program explains
 * mistakes. */
static bool is_plain(char *const *argv)
{
    struct sandbox_options options = {0};
    struct command_line line = {0};
    struct cay_error err;

    if (!argv[0] || !has_command(argv[0]))
        return false;
    bool is_plain = options_parse(&sandbox_grammar, argv, &options, &line, &err) == 0 &&
                    !options.help && !options.config &&
                    options_check(&sandbox_grammar, &line, &err) == 0;
    options_done(&line);
    return is_plain;
}

int main(int argc, char **argv)
{
    struct cay_error err;

    (void)argc;
    own_argv = argv;
    if (argv[0] && is_plain(argv + 1) && knows_us()) {
        cli_begin();
        /* What else we were given is not for the programs we start.  Other commands may
         * become the whole program, which can need it: cay cp /dev/fd/9 ID:/dir/ */
        if (strcmp(argv[1], "run") == 0)
            (void)syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
        return cmd_sandbox(argv + 1);
    }
    (void)become_whole(&err);
    cli_begin();
    return output_error(&err, false);
}
