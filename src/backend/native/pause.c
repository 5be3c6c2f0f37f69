/* SPDX-License-Identifier: Apache-2.0 */

/* The commands of a sandbox are in the cgroup "work", init is not: frozen is only what
 * runs in it, and init goes on answering and counting the time to live.  Init is told
 * first, so that it starts nothing that would freeze on its way to execve.
 *
 * The kernel tells of a change in cgroup.events at most every 10 ms, so the file is read
 * again and again rather than polled. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/native/wire.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

enum { SPINS = 200, FREEZE_MS = 10000 };

struct freezer {
    int control, events;
};

static void auto_freezer(struct freezer *freezer)
{
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

static bool is_frozen(const struct freezer *freezer, bool frozen)
{
    char text[128];
    ssize_t len = pread(freezer->events, text, sizeof text - 1, 0);

    text[len > 0 ? len : 0] = '\0';
    return strstr(text, frozen ? "frozen 1" : "frozen 0") != NULL;
}

/* False if it does not come about in time. */
static bool set_frozen(const struct freezer *freezer, bool frozen)
{
    struct timespec rest = {.tv_nsec = 20000};

    if (write(freezer->control, frozen ? "1" : "0", 1) != 1)
        return false;
    for (int i = 0; i < SPINS; i++)
        if (is_frozen(freezer, frozen))
            return true;
    uint64_t end = clock_ms() + FREEZE_MS;
    while (clock_ms() < end) {
        nanosleep(&rest, NULL);
        if (is_frozen(freezer, frozen))
            return true;
        if (rest.tv_nsec < 1000000)
            rest.tv_nsec *= 2;
    }
    return false;
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
    __attribute__((cleanup(auto_freezer))) struct freezer freezer = {-1, -1};

    int code = native_check(native, err);
    if (!code)
        code = open_freezer(native, op, &freezer, err);
    if (!code)
        code = tell(native, op, MESSAGE_PAUSE, err);
    if (code || set_frozen(&freezer, true))
        return code;
    (void)set_frozen(&freezer, false);
    (void)tell(native, op, MESSAGE_RESUME, NULL);
    return cay_fail(err, CAY_E_TIMEOUT, 0, op, native->record.id,
                    "something inside cannot be stopped at this moment",
                    "it may wait for the disk; try again");
}

int native_resume(void *cookie, struct cay_error *err)
{
    static const char op[] = "sandbox.resume";
    struct native *native = cookie;
    __attribute__((cleanup(auto_freezer))) struct freezer freezer = {-1, -1};

    int code = native_check(native, err);
    if (!code)
        code = open_freezer(native, op, &freezer, err);
    if (code)
        return code;
    if (!set_frozen(&freezer, false))
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, native->record.id,
                        "the sandbox does not go on",
                        "see whether the cgroup it is in is frozen as a whole");
    return tell(native, op, MESSAGE_RESUME, err);
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
