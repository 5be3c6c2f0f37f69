/* SPDX-License-Identifier: Apache-2.0 */
#include "native/process/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/process/command.h"
#include "native/process/wire.h"
#include "sys/rights.h"

void native_close(struct native *native)
{
    int *const fds[] = {&native->pidfd, &native->leash, &native->events.memory,
                        &native->events.pids, &native->attempts};

    if (native->socket >= 0)
        rights_let_go(native->socket, native->owner);
    native->socket = -1;
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        auto_close(fds[i]);
        *fds[i] = -1;
    }
}

void native_free(void *cookie)
{
    struct native *native = cookie;

    if (!native)
        return;
    native_close(native);
    free(native->piece);
    free(native);
}

struct native *native_new(void)
{
    struct native *native = calloc(1, sizeof *native);

    if (native)
        *native = NATIVE_NONE;
    return native;
}

int native_fail_damaged(const char *id, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INTERNAL, 0, "sandbox.connect", id,
                    "the sandbox's record is damaged, or from another version of cay",
                    "run cay kill %s to end the sandbox", id);
}

/* Another process may have started it again meanwhile. */
int native_check(struct native *native, struct cay_error *err)
{
    struct record now;

    if (native->is_damaged)
        return native_fail_damaged(native->record.id, err);
    if (native->record.storage != CAY_STORAGE_DISK || runtime_is_alive(&native->record))
        return CAY_OK;
    if (runtime_load(native->record.id, &now, NULL) == CAY_OK && runtime_is_alive(&now)) {
        native_close(native);
        native->record = now;
        return CAY_OK;
    }
    return cay_fail(err, CAY_E_BUSY, 0, "sandbox.connect", native->record.id,
                    "the sandbox is stopped", "start it first");
}

int native_connect(struct native *native, struct cay_error *err)
{
    int code =
        native_check(native, err); /* the connection may belong to an ended sandbox */

    if (code || native->socket >= 0)
        return code;
    return native_connect_init(&native->record, native->reply_ms, &native->socket, err);
}

/* With a timeout, for an init that does not accept connections or messages. */
int native_connect_init(const struct record *record, int reply_ms, int *ret_socket,
                        struct cay_error *err)
{
    const struct timeval limit = {reply_ms / 1000, reply_ms % 1000 * 1000};
    struct sockaddr_un address;
    int code = runtime_address(record->id, &address, err);

    if (code)
        return code;
    if (runtime_protocol(record) != PROTOCOL_VERSION)
        return cay_fail(
            err, CAY_E_UNSUPPORTED, 0, "sandbox.connect", record->id,
            "the sandbox was created by a version of cay with another protocol",
            "use that version, or end the sandbox with cay kill %s", record->id);
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return wire_fail_gone("sandbox.connect", record->id, errno, err);
    *ret_socket = TAKE_FD(fd);
    return CAY_OK;
}

static void open_once(const char *path, int *fd)
{
    if (*fd < 0 && *path)
        *fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
}

int native_prepare_exec(struct native *native, struct cay_error *err)
{
    int code = native_connect(native, err);

    if (!code) {
        open_once(native->record.cgroup.memory_events, &native->events.memory);
        open_once(native->record.cgroup.pids_events, &native->events.pids);
    }
    return code;
}

const char *native_id(const void *cookie)
{
    return ((const struct native *)cookie)->record.id;
}

unsigned native_layers(const void *cookie)
{
    return ((const struct native *)cookie)->record.layers;
}

/* --- Pause and resume --- */

/* The commands of a sandbox are in the cgroup "work", init is not: a pause freezes only
 * commands, and init keeps replying.  Init is informed first, so that it starts no
 * command that would freeze before execve.
 *
 * The kernel reports changes in cgroup.events at most every 10 ms, so the file is read in
 * a loop instead of polled. */

enum { SPINS = 200, FREEZE_MS = 10000, TURN_MS = 3 * FREEZE_MS };

struct freezer {
    int control, events;
    bool is_held;
};

/* Unlocked explicitly: a child forked meanwhile by another thread shares the lock. */
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
    const char *group = native->record.cgroup.unified;
    char path[PATH_MAX + 32];

    if (!*group)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, native->record.id,
                        "this sandbox has no cgroup to freeze",
                        "create it as root, or as a user with a delegated cgroup");
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

/* 1, 0, or a negative errno if the cgroup is gone. */
static int is_frozen(const struct freezer *freezer, bool frozen)
{
    char text[128];
    ssize_t len = pread(freezer->events, text, sizeof text - 1, 0);

    if (len < 0)
        return -errno;
    text[len] = '\0';
    return strstr(text, frozen ? "frozen 1" : "frozen 0") != NULL;
}

/* Init and the kernel are changed one after the other.  Without the lock, a concurrent
 * resume could leave one paused and the other not. */
static int take_turn(struct freezer *freezer)
{
    uint64_t end = clock_ms() + TURN_MS;

    while (flock(freezer->control, LOCK_EX | LOCK_NB) != 0) {
        int error = errno != EWOULDBLOCK ? -errno
                    : clock_ms() >= end  ? -ETIMEDOUT
                                         : is_frozen(freezer, true);
        if (error < 0)
            return error;
        clock_sleep_ms(1);
    }
    freezer->is_held = true;
    return 0;
}

/* 0, -ETIMEDOUT, or another negative errno. */
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

/* Everything before the change itself. */
static int prepare(struct native *native, const char *op, struct freezer *freezer,
                   struct cay_error *err)
{
    int code = native_check(native, err);

    if (!code)
        code = open_freezer(native, op, freezer, err);
    int error = code ? 0 : take_turn(freezer);
    return error ? fail(native, op, error,
                        "another process is pausing or resuming this sandbox",
                        "try again", err)
                 : code;
}

static int send_frozen(struct native *native, const char *op, enum message_kind kind,
                       struct cay_error *err)
{
    return wire_request(native, op, kind, NULL, 0, MESSAGE_DONE, NULL, 0, err);
}

int native_pause(void *cookie, struct cay_error *err)
{
    static const char op[] = "sandbox.pause";
    struct native *native = cookie;
    __attribute__((cleanup(auto_freezer))) struct freezer freezer = {-1, -1, false};

    int code = prepare(native, op, &freezer, err);
    if (!code)
        code = send_frozen(native, op, MESSAGE_PAUSE, err);
    int error = code ? 0 : set_frozen(&freezer, true);
    if (!error)
        return code;
    if (error == -ETIMEDOUT) {
        (void)set_frozen(&freezer, false);
        (void)send_frozen(native, op, MESSAGE_RESUME, NULL);
    }
    return fail(native, op, error, "a process in the sandbox cannot be frozen now",
                "it may be waiting for the disk; try again", err);
}

int native_resume(void *cookie, struct cay_error *err)
{
    static const char op[] = "sandbox.resume";
    struct native *native = cookie;
    __attribute__((cleanup(auto_freezer))) struct freezer freezer = {-1, -1, false};

    int code = prepare(native, op, &freezer, err);
    if (code)
        return code;
    int error = set_frozen(&freezer, false);
    return error ? fail(native, op, error, "the sandbox cannot be thawed",
                        "check whether a parent cgroup is frozen", err)
                 : send_frozen(native, op, MESSAGE_RESUME, err);
}

int native_set_ttl(void *cookie, uint64_t ttl_ms, struct cay_error *err)
{
    return wire_request(cookie, "sandbox.ttl", MESSAGE_TTL, &ttl_ms, sizeof ttl_ms,
                        MESSAGE_DONE, NULL, 0, err);
}

int native_init_state(struct native *native, struct state *ret_state,
                      struct cay_error *err)
{
    return wire_request(native, "sandbox.inspect", MESSAGE_STATUS, NULL, 0, MESSAGE_STATE,
                        ret_state, sizeof *ret_state, err);
}

/* --- Ports --- */

/* Accepts only a stream socket of this family (AF_INET: and AF_INET6), whatever init has
 * sent. */
static bool is_stream(int fd, int family)
{
    int domain = 0, type = 0;
    socklen_t len = sizeof domain;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
           (domain == family || (family == AF_INET && domain == AF_INET6)) &&
           type == SOCK_STREAM && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

int native_dial_port(void *cookie, uint16_t port, int *ret_fd, struct cay_error *err)
{
    static const char op[] = "sandbox.dial";
    struct native *native = cookie;
    AUTO_FD fd = -1;

    if (!(native->record.layers & CAY_LAYER_NETWORK))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, native->record.id,
                        "the sandbox uses the host's network",
                        "connect to the port on the host");
    int code = wire_request_fd(native, op, MESSAGE_DIAL, &port, sizeof port,
                               MESSAGE_DIALLED, &fd, err);
    if (code)
        return code;
    if (!is_stream(fd, AF_INET))
        return wire_error(NULL, 0, err);
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

int native_dial_code(void *cookie, const char *user, int *ret_fd,
                     uint64_t *ret_memory_kills, const char **ret_template,
                     struct cay_error *err)
{
    static const char op[] = "code.connect";
    struct native *native = cookie;
    const char *who = user ? user : "";
    AUTO_FD fd = -1;

    if (strlen(who) >= CODE_USER_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, who, "the user's name is too long",
                        "pass a name of /etc/passwd inside, or a number");
    TRY(native_prepare_exec(native, err));
    TRY(wire_request_fd(native, op, MESSAGE_CODE, who, strlen(who), MESSAGE_DIALLED, &fd,
                        err));
    if (!is_stream(fd, AF_UNIX))
        return wire_error(NULL, 0, err);
    *ret_memory_kills = (uint32_t)command_mark(&native->events, 0);
    *ret_template = native->record.storage == CAY_STORAGE_MEMORY && !native->is_damaged
                        ? native->record.template_name
                        : NULL;
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}
