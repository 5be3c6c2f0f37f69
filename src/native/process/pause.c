/* SPDX-License-Identifier: Apache-2.0 */

/* The commands of a sandbox are in the cgroup "work", init is not: frozen is only what
 * runs in it, and init goes on answering.  Init is told
 * first, so that it starts nothing that would freeze on its way to execve.
 *
 * The kernel tells of a change in cgroup.events at most every 10 ms, so the file is read
 * again and again rather than polled. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/process/wire.h"

enum { SPINS = 200, FREEZE_MS = 10000, TURN_MS = 3 * FREEZE_MS };

struct freezer {
    int control, events;
    bool is_held;
};

/* Unlocked by hand: a child that somebody else forked meanwhile has the lock, too. */
static void auto_freezer(struct freezer *freezer)
{
    if (freezer->is_held)
        (void)flock(freezer->control, LOCK_UN);
    auto_close(&freezer->control);
    auto_close(&freezer->events);
}

static int open_freezer(const struct native *native, const char *op,
                        struct freezer *ret_freezer, struct cay_error *err)
{
    const char *group = native->record.groups.unified;
    char path[PATH_MAX + 32];

    if (!*group)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, native->record.id,
                        "this sandbox has no cgroup that could be frozen",
                        "sandboxes of root, or of a user with a delegated cgroup, have");
    snprintf(path, sizeof path, "%s/work/cgroup.freeze", group);
    ret_freezer->control = open(path, O_WRONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/work/cgroup.events", group);
    if (ret_freezer->control >= 0)
        ret_freezer->events = open(path, O_RDONLY | O_CLOEXEC);
    if (ret_freezer->events < 0)
        return errno == ENOENT ? wire_fail_gone(op, native->record.id, ENOENT, err)
                               : cay_fail_errno(err, errno, op, native->record.id);
    return CAY_OK;
}

/* 1, 0, or a negative errno if there is no such group any more. */
static int is_frozen(const struct freezer *freezer, bool frozen)
{
    char text[128];
    ssize_t len = pread(freezer->events, text, sizeof text - 1, 0);

    if (len < 0)
        return -errno;
    text[len] = '\0';
    return strstr(text, frozen ? "frozen 1" : "frozen 0") != NULL;
}

/* Init and the kernel are told one after the other.  Who pauses while somebody else
 * resumes would leave one of them paused and the other not. */
static int take_turn(struct freezer *freezer)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    uint64_t end = clock_ms() + TURN_MS;

    while (flock(freezer->control, LOCK_EX | LOCK_NB) != 0) {
        int error = errno != EWOULDBLOCK ? -errno
                    : clock_ms() >= end  ? -ETIMEDOUT
                                         : is_frozen(freezer, true);
        if (error < 0)
            return error;
        nanosleep(&moment, NULL);
    }
    freezer->is_held = true;
    return 0;
}

/* 0, -ETIMEDOUT if it does not come about in time, or another negative errno. */
static int set_frozen(const struct freezer *freezer, bool frozen)
{
    struct timespec rest = {.tv_nsec = 20000};

    if (write(freezer->control, frozen ? "1" : "0", 1) != 1)
        return -errno;
    uint64_t end = clock_ms() + FREEZE_MS;
    for (int i = 0;; i++) {
        int done = is_frozen(freezer, frozen);
        if (done)
            return done < 0 ? done : 0;
        if (i < SPINS)
            continue;
        if (clock_ms() >= end)
            return -ETIMEDOUT;
        nanosleep(&rest, NULL);
        if (rest.tv_nsec < 1000000)
            rest.tv_nsec *= 2;
    }
}

static int fail(const struct native *native, const char *op, int error,
                const char *message, const char *hint, struct cay_error *err)
{
    const char *id = native->record.id;

    if (error == -ENODEV || error == -ENOENT)
        return wire_fail_gone(op, id, -error, err);
    return error == -ETIMEDOUT
               ? cay_fail(err, CAY_E_TIMEOUT, 0, op, id, message, "%s", hint)
               : cay_fail_errno(err, -error, op, id);
}

/* Everything that comes before the change itself. */
static int get_ready(struct native *native, const char *op, struct freezer *freezer,
                     struct cay_error *err)
{
    int code = native_check(native, err);

    if (!code)
        code = open_freezer(native, op, freezer, err);
    int error = code ? 0 : take_turn(freezer);
    return error ? fail(native, op, error, "somebody else is pausing or resuming it",
                        "try again", err)
                 : code;
}

static int tell(struct native *native, const char *op, enum message_kind kind,
                struct cay_error *err)
{
    return wire_ask(native, op, kind, NULL, 0, MESSAGE_DONE, NULL, 0, err);
}

int native_pause(void *cookie, struct cay_error *err)
{
    static const char op[] = "sandbox.pause";
    struct native *native = cookie;
    __attribute__((cleanup(auto_freezer))) struct freezer freezer = {-1, -1, false};

    int code = get_ready(native, op, &freezer, err);
    if (!code)
        code = tell(native, op, MESSAGE_PAUSE, err);
    int error = code ? 0 : set_frozen(&freezer, true);
    if (!error)
        return code;
    if (error == -ETIMEDOUT) {
        (void)set_frozen(&freezer, false);
        (void)tell(native, op, MESSAGE_RESUME, NULL);
    }
    return fail(native, op, error, "something inside cannot be stopped at this moment",
                "it may wait for the disk; try again", err);
}

int native_resume(void *cookie, struct cay_error *err)
{
    static const char op[] = "sandbox.resume";
    struct native *native = cookie;
    __attribute__((cleanup(auto_freezer))) struct freezer freezer = {-1, -1, false};

    int code = get_ready(native, op, &freezer, err);
    if (code)
        return code;
    int error = set_frozen(&freezer, false);
    return error ? fail(native, op, error, "the sandbox does not go on",
                        "see whether the cgroup it is in is frozen as a whole", err)
                 : tell(native, op, MESSAGE_RESUME, err);
}

int native_set_ttl(void *cookie, uint64_t ttl_ms, struct cay_error *err)
{
    return wire_ask(cookie, "sandbox.ttl", MESSAGE_TTL, &ttl_ms, sizeof ttl_ms,
                    MESSAGE_DONE, NULL, 0, err);
}

int native_state(struct native *native, struct state *ret_state, struct cay_error *err)
{
    return wire_ask(native, "sandbox.inspect", MESSAGE_STATUS, NULL, 0, MESSAGE_STATE,
                    ret_state, sizeof *ret_state, err);
}
