/* SPDX-License-Identifier: Apache-2.0 */
#include "init/report.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "init/plan.h"

void report_failure(int sys_errno, const char *step, const char *subject)
{
    struct cay_error error;
    char message[256];

    memset(&error, 0, sizeof error);
    cay_copy_text(message, sizeof message, cay_errno_words(sys_errno));
    cay_fail(&error, CAY_E_UNAVAILABLE, sys_errno, step, subject, message,
             "sandboxes need root, or Linux 6.1 or newer with user namespaces enabled; "
             "run cay doctor");
    (void)!send(STATUS_FD, &error, sizeof error, MSG_NOSIGNAL);
    _exit(1);
}

void report_no_effect(const char *step, const char *subject)
{
    struct cay_error error;

    memset(&error, 0, sizeof error);
    cay_fail(&error, CAY_E_UNAVAILABLE, 0, step, subject,
             "the call succeeded but has no effect",
             "run cay outside the sandbox or emulator that intercepts system calls here");
    (void)!send(STATUS_FD, &error, sizeof error, MSG_NOSIGNAL);
    _exit(1);
}

void report_place(int sys_errno, const char *path)
{
    struct cay_error error;
    char place[sizeof error.subject];

    memset(&error, 0, sizeof error);
    snprintf(place, sizeof place, "/%s", path); /* as the caller wrote it */
    (void)cay_fail_errno(&error, sys_errno, "sandbox.mount", place);
    cay_copy_text(error.hint, sizeof error.hint,
                  "mount a directory on a directory, a file on a file, or either on a "
                  "path that can be created");
    (void)!send(STATUS_FD, &error, sizeof error, MSG_NOSIGNAL);
    _exit(1);
}

void report_ready(void)
{
    struct cay_error ok;

    memset(&ok, 0, sizeof ok);
    if (send(STATUS_FD, &ok, sizeof ok, MSG_NOSIGNAL) != sizeof ok)
        _exit(1);
}
