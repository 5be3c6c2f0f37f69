/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* With a standard descriptor closed, the next file opened would take its number and get
 * what was meant for the user.  These make such reads and writes fail instead. */
static void open_standard_fds(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            /* allow: cloexec it is to be inherited like any standard descriptor */
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

static void ignore_signal(int number)
{
    (void)number;
}

void cli_begin(void)
{
    /* End silently by SIGPIPE like any filter, even if the caller ignored it. */
    struct sigaction quiet_end = {.sa_handler = SIG_DFL};
    /* Beyond the file size limit (ulimit -f) writing fails with EFBIG. */
    struct sigaction ignored = {.sa_handler = ignore_signal};
    /* One write per line, so that lines of several programs do not mix.  musl ignores the
     * mode without a buffer. */
    static char line[4096];

    open_standard_fds();
    sigaction(SIGPIPE, &quiet_end, NULL);
    sigaction(SIGXFSZ, &ignored, NULL);
    setvbuf(stderr, line, _IOLBF, sizeof line);
}

enum { NAME_LEN_MAX = 64 };

/* Relative to this program: a build directory, or an installed tree that was moved. */
static const char *const places[] = {"", "../libexec/cay/"};

/* Another user's file beside this program must not be executed. */
static bool is_ours(const char *path, uid_t owner)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           (st.st_uid == 0 || st.st_uid == owner);
}

int cli_exec(const char *name, char *const *argv, struct cay_error *err)
{
    char own[PATH_MAX], path[PATH_MAX + NAME_LEN_MAX];
    struct stat st;
    int error = ENOENT;
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);

    own[len > 0 ? len : 0] = '\0';
    const char *slash = stat("/proc/self/exe", &st) == 0 ? strrchr(own, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%.*s%s%s", (int)(slash + 1 - own), own, places[i],
                 name);
        if (is_ours(path, st.st_uid) && execv(path, argv) != 0)
            error = errno;
    }
    snprintf(path, sizeof path, "%s/%s", CAY_LIBEXEC, name);
    if (execv(path, argv) != 0 && errno != ENOENT)
        error = errno;
    if (error != ENOENT)
        return cay_fail(err, CAY_E_EXEC_FAILED, error, "cli.helper", name,
                        cay_errno_words(error), "install this part of cay again");
    return cay_fail(err, CAY_E_UNAVAILABLE, error, "cli.helper", name,
                    "this part of cay is not installed",
                    "install it beside cay, or in " CAY_LIBEXEC);
}
