/* SPDX-License-Identifier: Apache-2.0 */

/* `cay serve`, `cay key` and `cay env` are another program, which lies beside this one
 * where both were built and in the directory for such helpers where they are installed.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/output.h"

enum { WORDS_MAX = 128 };

static void beside_us(char path[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 16);
    char *slash;

    path[len > 0 ? len : 0] = '\0';
    slash = strrchr(path, '/');
    snprintf(slash ? slash + 1 : path, 16, "cay-serve");
}

static int run(const char *command, char *const *argv)
{
    char path[PATH_MAX], name[] = "cay-serve", first[16];
    char *words[WORDS_MAX + 3] = {name, first};
    struct cay_error err;

    snprintf(first, sizeof first, "%s", command);
    for (size_t i = 0; i < WORDS_MAX && argv[i]; i++)
        words[i + 2] = argv[i];
    beside_us(path);
    (void)execv(path, words);
    (void)execv(CAY_LIBEXEC "/cay-serve", words);
    cay_fail(&err, errno == ENOENT ? CAY_E_UNAVAILABLE : CAY_E_EXEC_FAILED, errno,
             "cli.serve", command, "the server is not installed",
             "install cay-serve beside cay, or in " CAY_LIBEXEC);
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
