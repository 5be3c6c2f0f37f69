/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/remove.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/home.h"
#include "native/record/recover.h"

enum { KILL_MS = 10000 };

static bool has_ended(int pidfd)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    int got;

    do
        got = poll(&ended, 1, KILL_MS);
    while (got < 0 && errno == EINTR);
    return got > 0;
}

/* Without a PID namespace the end of init is not the end of all: it is asked to end them
 * first.  Its holders do it if it cannot. */
bool record_end_init(const struct record *record, int pidfd)
{
    if (!runtime_has_namespaces(record)) {
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
        if (has_ended(pidfd))
            return true;
    }
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    groups_clear(&record->groups); /* while it dies */
    return has_ended(pidfd);
}

/* -1 if it has ended.  In another PID namespace its number may be somebody else's. */
static int open_init(const struct record *record, int *ret_pidfd, struct cay_error *err)
{
    *ret_pidfd = -1;
    if (record->init <= 0)
        return CAY_OK;
    AUTO_FD fd = (int)syscall(SYS_pidfd_open, record->init, 0);
    int lives = fd < 0 && cay_errno_is_shortage(errno)
                    ? -errno
                    : runtime_look(record); /* now, so that it is not another's */
    if (lives < 0)
        return cay_fail_errno(err, -lives, "sandbox.kill", record->id);
    if (lives && (fd < 0 || record->pid_namespace != runtime_pid_namespace()))
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, "sandbox.kill", record->id,
                        "the sandbox runs in another PID namespace than this process",
                        "end it from where it was made");
    if (lives)
        *ret_pidfd = TAKE_FD(fd);
    return CAY_OK;
}

int record_begin_end(const struct record *record, int *ret_pidfd, struct cay_error *err)
{
    int code = open_init(record, ret_pidfd, err);

    if (!code && *ret_pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, *ret_pidfd,
                      runtime_has_namespaces(record) ? SIGKILL : SIGTERM, NULL, 0);
    return code;
}

int record_fail_end(const struct record *record, int error, struct cay_error *err)
{
    if (error != EBUSY)
        return cay_fail_errno(err, error, "sandbox.kill", record->id);
    return cay_fail(err, CAY_E_BUSY, error, "sandbox.kill", record->id,
                    "what ran in the sandbox was killed and has not ended yet",
                    "try again later, or run cay gc");
}

/* Without its record nobody would know of what is left. */
int record_remove(const struct record *record, int pidfd, struct cay_error *err)
{
    AUTO_FD opened = -1;
    int code = pidfd < 0 ? open_init(record, &opened, err) : CAY_OK;

    if (code)
        return code;
    if ((pidfd >= 0 || opened >= 0) &&
        !record_end_init(record, pidfd >= 0 ? pidfd : opened))
        return record_fail_end(record, EBUSY, err);
    int error = groups_remove(&record->groups);
    if (error)
        return record_fail_end(record, -error, err);
    code = runtime_has_namespaces(record) ? CAY_OK : home_remove(record, err);
    if (!code)
        runtime_release(record);
    return code;
}

/* With its lock held.  What is found again after the kill still runs: its cgroups and its
 * uid range must not be given to the next sandbox. */
int record_remove_damaged(const char *id, struct cay_error *err)
{
    struct record record;
    AUTO_FD pidfd = -1;
    int lives = recover_record(id, &record);
    int code = lives > 0 ? open_init(&record, &pidfd, err) : CAY_OK;

    if (code)
        return code;
    if (pidfd >= 0 && !record_end_init(&record, pidfd))
        return record_fail_end(&record, EBUSY, err);
    int error = lives > 0 ? recover_kill(&record) : 0;
    if (!error && lives)
        lives = recover_record(id, &record);
    if (error || lives)
        return record_fail_end(&record, error ? -error : lives < 0 ? -lives : EBUSY, err);
    return record_remove(&record, -1, err);
}
