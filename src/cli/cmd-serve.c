/* SPDX-License-Identifier: Apache-2.0 */

/* `cay serve`, `cay key` and `cay env` are another program. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/helper.h"
#include "cli/output.h"

enum { WORDS_MAX = 128 };

static int run(const char *command, char *const *argv)
{
    char name[] = "cay-serve", first[16];
    char *words[WORDS_MAX + 3] = {name, first};
    struct cay_error err;

    snprintf(first, sizeof first, "%s", command);
    for (size_t i = 0; i < WORDS_MAX && argv[i]; i++)
        words[i + 2] = argv[i];
    (void)helper_become(name, words, &err);
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
