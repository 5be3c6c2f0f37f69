/* SPDX-License-Identifier: Apache-2.0 */

/* `cay serve`, `cay key` and `cay env` are another program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cli.h"
#include "cli/output.h"

static int run(const char *command, char *const *argv)
{
    char name[] = "cay-serve", first[16];
    struct cay_error err;
    size_t count = 0;

    while (argv[count])
        count++;
    snprintf(first, sizeof first, "%s", command);
    AUTO_FREE char **words = calloc(count + 3, sizeof *words);
    if (words) {
        words[0] = name;
        words[1] = first;
        memcpy(words + 2, argv, count * sizeof *words);
        (void)cli_exec(name, words, &err);
    } else {
        (void)cay_fail_memory(&err, "cli.serve");
    }
    return output_error(&err, false);
}

int cmd_serve(char *const *argv)
{
    return run("serve", argv);
}

int cmd_key(char *const *argv)
{
    return run("key", argv);
}

int cmd_env(char *const *argv)
{
    return run("env", argv);
}
