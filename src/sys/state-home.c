/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/state-home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/path.h"

static const char op[] = "state.open";

int state_home_path(char ret_path[PATH_MAX], struct cay_error *err)
{
    const char *home = getenv("CAY_HOME");
    const char *suffix = "";

    if ((!home || !*home) && geteuid() == 0) {
        home = "/var/lib/cay";
    } else if (!home || !*home) {
        home = getenv("XDG_STATE_HOME");
        suffix = "/cay";
        if (!home || *home != '/') {
            home = getenv("HOME");
            suffix = "/.local/state/cay";
        }
    }
    if (!home || *home != '/')
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "CAY_HOME",
                        "no state directory: none of CAY_HOME, XDG_STATE_HOME and HOME "
                        "is an absolute path",
                        "set CAY_HOME to the absolute path of a directory that you own");
    if (strlen(home) + strlen(suffix) >= PATH_MAX)
        return cay_fail_errno(err, ENAMETOOLONG, op, "CAY_HOME");
    snprintf(ret_path, PATH_MAX, "%s%s", home, suffix);
    return CAY_OK;
}

/* Not every file system, nor every container, lets a mode be set. */
int state_home_make(int dir, const char *path)
{
    struct stat st;

    if (mkdirat(dir, path, 0700) != 0 ||
        fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    return (st.st_mode & 0777) == 0700 ||
                   fchmodat(dir, path, 0700, AT_SYMLINK_NOFOLLOW) == 0
               ? 0
               : -errno;
}

static int make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        int error = -state_home_make(AT_FDCWD, path);
        if (slash)
            *slash = '/';
        if (error && error != EEXIST && (!slash || error == ENOENT))
            return -error;
        if (!slash)
            return 0;
    }
}

int state_home_check(int fd, const char *subject, mode_t forbidden, struct cay_error *err)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & forbidden))
        return CAY_OK;
    return cay_fail(
        err, CAY_E_UNAVAILABLE, 0, op, subject,
        "the state directory does not belong to this user, or others can write to it",
        "set its owner to this user and its mode to 0700, or set CAY_HOME "
        "to another");
}

int state_home_open(bool make, struct cay_error *err)
{
    char path[PATH_MAX];
    int code = state_home_path(path, err);

    if (code)
        return code;
    AUTO_FD home = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (home < 0 && errno == ENOENT && make) {
        int error = make_parents(path);
        if (error)
            return cay_fail_errno(err, -error, op, path);
        home = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (home < 0)
        return cay_fail_errno(err, errno, op, path);
    code = state_home_check(home, path, 0022, err);
    return code ? code : TAKE_FD(home);
}

void state_home_sweep(const char *directory, time_t seconds)
{
    AUTO_FD home = state_home_open(false, NULL);
    int dir = home < 0 ? -1
                       : openat(home, directory,
                                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTO_DIR list = dir < 0 ? NULL : fdopendir(dir);
    struct stat st;

    for (struct dirent *entry; list && (entry = readdir(list));)
        if (entry->d_name[0] != '.' &&
            fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime + seconds < time(NULL))
            (void)unlinkat(dir, entry->d_name, 0);
}
