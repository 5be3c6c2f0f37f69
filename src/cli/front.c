/* SPDX-License-Identifier: Apache-2.0 */

/* `cay` where there is musl: a small program that is loaded in a fifth of the time which
 * the whole one takes, and does what time matters for, `cay run`.  For everything else,
 * and for what is no proper `cay run`, it becomes the whole one, cay-full.  That is
 * linked to libraries which come for the other C library, and can load more. */
#include <linux/close_range.h>
#include <pwd.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/helper.h"

const struct sandbox_program sandbox_program = {
    .commands = {[SANDBOX_RUN] = {cmd_run, "cay-run"}},
};

/* Names may come from more than /etc/passwd, which this C library does not know; they are
 * needed to find the ids that /etc/subuid gives somebody. */
static bool knows_us(void)
{
    return geteuid() == 0 || getpwuid(getuid());
}

/* Whether it is one that nothing but running it remains of. */
static bool is_plain_run(char *const *argv)
{
    struct sandbox_options options = {0};
    struct command_line line = {0};
    struct cay_error err;

    if (!argv[0] || strcmp(argv[0], "run") != 0)
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
    if (argv[0] && is_plain_run(argv + 1) && knows_us()) {
        cli_begin();
        /* What else we were given is not for the programs we start. */
        (void)syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
        return cmd_sandbox(argv + 1);
    }
    (void)helper_become("cay-full", argv, &err);
    cli_begin();
    return output_error(&err, false);
}
