/* SPDX-License-Identifier: Apache-2.0 */

/* Every check tries the thing itself, since a kernel that has it may still refuse it to
 * this user: a security module, a container's filter, a sysctl.  What has to be mounted
 * or made for that is made in a process of its own (trial.h) and goes with it. */
#include "backend/native/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/native/idmap.h"
#include "base/auto.h"
#include "base/error.h"

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
                   strerrordesc_np(error));
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

/* The sum of it all: where on the ladder this user's sandboxes will stand. */
static void say_rung(struct doctor *doctor)
{
    static const char facility[] = "sandboxes";

    if (doctor->has_namespaces && doctor->has_proc && doctor->is_root)
        doctor_say(doctor, CAY_FINDING_OK, facility, "",
                   "rung \"root\": each gets a range of user ids of its own");
    else if (doctor->has_namespaces && doctor->has_proc && doctor->has_range)
        doctor_say(doctor, CAY_FINDING_OK, facility, "",
                   "rung \"range\": user ids from /etc/subuid; \"user\" inside is you");
    else if (doctor->has_namespaces && doctor->has_proc)
        doctor_say(doctor, CAY_FINDING_WEAKER, facility,
                   "give this user a range of ids: see \"range of user ids\"",
                   "rung \"single\": one user id inside, so nobody but \"user\" can run "
                   "commands there");
    else if (doctor->has_landlock && doctor->has_seccomp)
        doctor_say(doctor, CAY_FINDING_WEAKER, facility,
                   "allow user namespaces: see \"user namespaces\" and \"/proc\"",
                   "rung \"landlock\": no namespaces; the host's programs and processes "
                   "can be seen, though not touched");
    else
        doctor_say(doctor, CAY_FINDING_MISSING, facility,
                   "allow user namespaces, or use a kernel with landlock and seccomp",
                   "none can be made by this user");
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
