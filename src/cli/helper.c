/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/helper.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { NAME_LEN_MAX = 64 };

/* Where a tree that was moved after it was installed has them. */
static const char *const places[] = {"", "../libexec/cay/"};

/* Whoever else may write beside this program must not become it. */
static bool is_ours(const char *path, uid_t owner)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           (st.st_uid == 0 || st.st_uid == owner);
}

int helper_become(const char *name, char *const *argv, struct cay_error *err)
{
    char own[PATH_MAX], path[PATH_MAX + NAME_LEN_MAX];
    struct stat st;
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);

    own[len > 0 ? len : 0] = '\0';
    const char *slash = stat("/proc/self/exe", &st) == 0 ? strrchr(own, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%.*s%s%s", (int)(slash + 1 - own), own, places[i],
                 name);
        if (is_ours(path, st.st_uid))
            (void)execv(path, argv);
    }
    snprintf(path, sizeof path, "%s/%s", CAY_LIBEXEC, name);
    (void)execv(path, argv);
    return cay_fail(err, errno == ENOENT ? CAY_E_UNAVAILABLE : CAY_E_EXEC_FAILED, errno,
                    "cli.helper", name, "this part of cay is not installed",
                    "install it beside cay, or in " CAY_LIBEXEC);
}
