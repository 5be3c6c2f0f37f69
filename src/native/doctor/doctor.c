/* SPDX-License-Identifier: Apache-2.0 */

/* Every check tries the thing itself, since a kernel that has it may still refuse it to
 * this user: a security module, a container's filter, a sysctl.  What has to be mounted
 * or made for that is made in a process of its own (trial.h) and goes with it. */
#include "native/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/idmap.h"

void doctor_say(struct doctor *doctor, enum cay_finding finding, const char *facility,
                const char *fix, const char *detail, ...)
{
    va_list values;

    if (doctor->count == DOCTOR_MAX)
        return;
    struct cay_check *check = &doctor->checks[doctor->count++];
    check->finding = finding;
    cay_copy_text(check->facility, sizeof check->facility, facility);
    cay_copy_text(check->fix, sizeof check->fix, finding == CAY_FINDING_OK ? "" : fix);
    va_start(values, detail);
    vsnprintf(check->detail, sizeof check->detail, detail, values);
    va_end(values);
}

void doctor_tell(struct doctor *doctor, const char *facility, int error,
                 enum cay_finding otherwise, const char *fix, const char *fine,
                 const char *not_fine)
{
    if (!error)
        doctor_say(doctor, CAY_FINDING_OK, facility, "", "%s", fine);
    else
        doctor_say(doctor, otherwise, facility, fix, "%s: %s", not_fine,
                   cay_errno_words(error));
}

long doctor_number(const char *path)
{
    char text[32];
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (len <= 0)
        return -1;
    text[len] = '\0';
    return strtol(text, NULL, 10);
}

static bool is_something_missing(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++)
        if (doctor->checks[i].finding == CAY_FINDING_MISSING)
            return true;
    return false;
}

/* The sum of it all: one is made, looked at, and killed. */
static void say_rung(struct doctor *doctor)
{
    static const char facility[] = "sandboxes";
    static const struct {
        enum cay_finding finding;
        const char *detail, *fix;
    } rungs[] = {
        [CAY_RUNG_ROOT] = {CAY_FINDING_OK,
                           "rung \"root\": each gets a range of user ids of its own", ""},
        [CAY_RUNG_RANGE] = {CAY_FINDING_OK,
                            "rung \"range\": user ids from /etc/subuid; \"user\" inside "
                            "is you",
                            ""},
        [CAY_RUNG_SINGLE] = {CAY_FINDING_WEAKER,
                             "rung \"single\": one user id inside, so nobody but "
                             "\"user\" can run commands there",
                             "give this user a range of ids: see \"range of user ids\""},
        [CAY_RUNG_LANDLOCK] = {CAY_FINDING_WEAKER,
                               "rung \"landlock\": no namespaces; the host's programs "
                               "can be seen, and some of its files' names and modes",
                               "allow namespaces of all kinds: see what else is missing"},
    };
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    struct cay_sandbox_info info = {.rung = CAY_RUNG_BEST};
    struct cay_error error = {0};
    cay_sandbox *sandbox = NULL;

    int code = cay_sandbox_create(&options, &sandbox, &error);
    if (!code)
        code = cay_sandbox_inspect(sandbox, &info, &error);
    if (code)
        doctor_say(doctor, CAY_FINDING_MISSING, facility,
                   is_something_missing(doctor) || strstr(error.hint, "cay doctor")
                       ? "see what else is missing"
                       : error.hint,
                   "none can be made: %.80s%s%.150s", error.subject,
                   *error.subject ? ", " : "", error.message);
    else
        doctor_say(doctor, rungs[info.rung].finding, facility,
                   doctor->lacks_capabilities ? "see \"capabilities\""
                                              : rungs[info.rung].fix,
                   "%s", rungs[info.rung].detail);
    if (sandbox)
        (void)!cay_sandbox_kill(sandbox, NULL);
    cay_sandbox_free(sandbox);
}

int cay_doctor(struct cay_check **ret_checks, size_t *ret_count, struct cay_error *err)
{
    AUTO_FREE struct cay_check *checks = calloc(DOCTOR_MAX, sizeof *checks);
    struct doctor doctor = {.checks = checks, .is_root = idmap_is_root()};

    if (!checks)
        return cay_fail_memory(err, "doctor");
    doctor_host(&doctor);
    doctor_namespaces(&doctor);
    doctor_limits(&doctor);
    say_rung(&doctor);
    *ret_checks = TAKE_PTR(checks);
    *ret_count = doctor.count;
    return CAY_OK;
}
