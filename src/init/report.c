/* SPDX-License-Identifier: Apache-2.0 */
#include "init/report.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "init/plan.h"

static _Noreturn void leave(const struct cay_error *error)
{
    (void)!send(STATUS_FD, error, sizeof *error, MSG_NOSIGNAL);
    _exit(1);
}

void report_failure(int sys_errno, const char *step, const char *subject)
{
    struct cay_error error = {0};

    cay_fail(&error, CAY_E_UNAVAILABLE, sys_errno, step, subject,
             cay_errno_words(sys_errno),
             "sandboxes need root, or Linux 6.1 or newer with user namespaces enabled; "
             "run cay doctor");
    leave(&error);
}

void report_no_effect(const char *step, const char *subject)
{
    struct cay_error error = {0};

    cay_fail(&error, CAY_E_UNAVAILABLE, 0, step, subject,
             "the call succeeded but has no effect",
             "run cay outside the sandbox or emulator that intercepts system calls here");
    leave(&error);
}

void report_place(int sys_errno, const char *path)
{
    struct cay_error error = {0};
    char place[sizeof error.subject];

    snprintf(place, sizeof place, "/%s", path); /* as the caller wrote it */
    (void)cay_fail_errno(&error, sys_errno, "sandbox.mount", place);
    cay_copy_text(error.hint, sizeof error.hint,
                  "mount a directory on a directory, a file on a file, or either on a "
                  "path that can be created");
    leave(&error);
}

void report_no_marks(bool is_memory)
{
    struct cay_error error = {0};

    if (is_memory)
        cay_fail(&error, CAY_E_UNSUPPORTED, EOPNOTSUPP, "init.mount", "template",
                 "this kernel's tmpfs has no user extended attributes, in which an "
                 "overlay marks removed files",
                 "use Linux 6.6 or newer, or storage on disk, or create it as root");
    else
        cay_fail(&error, CAY_E_UNSUPPORTED, EOPNOTSUPP, "init.mount", "storage",
                 "the file system of the state directory has no user extended "
                 "attributes, in which an overlay marks removed files",
                 "set CAY_HOME to a directory on ext4, xfs or btrfs");
    leave(&error);
}

void report_ready(void)
{
    const struct cay_error ok = {0};

    if (send(STATUS_FD, &ok, sizeof ok, MSG_NOSIGNAL) != sizeof ok)
        _exit(1);
}
