/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/native.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/native/home.h"
#include "backend/native/inspect.h"
#include "backend/native/storage.h"
#include "backend/native/template.h"
#include "base/auto.h"
#include "base/error.h"
#include "sandbox/backend.h"

enum { KILL_MS = 10000 };

/* All but the record: of a sandbox that has ended, or of a handle that goes. */
static void let_go(struct native *native)
{
    int *const fds[] = {&native->pidfd, &native->leash, &native->socket,
                        &native->memory_events};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            (void)close(*fds[i]);
        *fds[i] = -1;
    }
}

static void native_free(void *cookie)
{
    struct native *native = cookie;

    if (!native)
        return;
    let_go(native);
    free(native->piece);
    free(native);
}

static void auto_native(struct native **native)
{
    native_free(*native);
}

#define AUTO_NATIVE __attribute__((cleanup(auto_native))) struct native *

static struct native *native_new(void)
{
    struct native *native = calloc(1, sizeof *native);

    if (native)
        native->pidfd = native->leash = native->socket = native->memory_events = -1;
    return native;
}

static int create(const struct cay_sandbox_options *options, void **ret_cookie,
                  struct cay_error *err)
{
    struct cay_sandbox_options known;
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, "sandbox.create");
    int code = cay_take_struct(&known, sizeof known, options, "sandbox.create", err);
    if (!code)
        code = native_create(&known, native, err);
    if (!code)
        *ret_cookie = TAKE_PTR(native);
    return code;
}

static int find(const char *id, struct record *ret_record, struct cay_error *err)
{
    struct storage_saved saved;

    if (runtime_load(id, ret_record, NULL) != CAY_E_NOT_FOUND ||
        storage_load(id, &saved, NULL) != CAY_OK)
        return runtime_load(id, ret_record, err);
    storage_saved_done(&saved);
    *ret_record = (struct record){.storage = CAY_STORAGE_DISK};
    memcpy(ret_record->id, id, strlen(id) + 1);
    return CAY_OK;
}

static int open_by_id(const char *id, void **ret_cookie, struct cay_error *err)
{
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, "sandbox.open");
    int code = find(id, &native->record, err);
    if (!code &&
        (native->record.storage != CAY_STORAGE_DISK || runtime_is_alive(&native->record)))
        code = native_connect(native, err);
    if (!code)
        *ret_cookie = TAKE_PTR(native);
    return code;
}

/* Somebody else may have started it again meanwhile. */
int native_check(struct native *native, struct cay_error *err)
{
    struct record now;

    if (native->record.storage != CAY_STORAGE_DISK || runtime_is_alive(&native->record))
        return CAY_OK;
    if (runtime_load(native->record.id, &now, NULL) == CAY_OK && runtime_is_alive(&now)) {
        let_go(native);
        native->record = now;
        return CAY_OK;
    }
    return cay_fail(err, CAY_E_BUSY, 0, "sandbox.connect", native->record.id,
                    "the sandbox is stopped", "start it first");
}

int native_connect(struct native *native, struct cay_error *err)
{
    if (native->socket >= 0)
        return CAY_OK;
    int code = native_check(native, err);
    return code ? code : native_dial(&native->record, &native->socket, err);
}

int native_dial(const struct record *record, int *ret_socket, struct cay_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[PATH_MAX];

    int code = runtime_socket(record, path, err);
    if (code)
        return code;
    if (strlen(path) >= sizeof address.sun_path)
        return cay_fail_errno(err, ENAMETOOLONG, "sandbox.connect", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return cay_fail(err, CAY_E_NOT_FOUND, errno, "sandbox.connect", record->id,
                        "the sandbox does not answer", "it has ended; make a new one");
    *ret_socket = TAKE_FD(fd);
    return CAY_OK;
}

static const char *id_of(const void *cookie)
{
    return ((const struct native *)cookie)->record.id;
}

static unsigned layers_of(const void *cookie)
{
    return ((const struct native *)cookie)->record.layers;
}

/* Without a PID namespace the end of init is not the end of all: it is asked to end them
 * first.  Its holders do it if it cannot. */
static void end_init(const struct record *record, int pidfd)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};

    if (record->rung == CAY_RUNG_LANDLOCK) {
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
        if (poll(&ended, 1, KILL_MS) > 0)
            return;
    }
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    (void)poll(&ended, 1, KILL_MS);
}

void native_remove(const struct record *record, int pidfd)
{
    AUTO_FD opened = -1;

    if (pidfd < 0 && runtime_is_alive(record))
        opened = (int)syscall(SYS_pidfd_open, record->init, 0);
    if (opened >= 0)
        pidfd = opened;
    if (pidfd >= 0)
        end_init(record, pidfd);
    groups_remove(&record->groups);
    if (record->rung == CAY_RUNG_LANDLOCK)
        home_remove(record);
    runtime_release(record);
}

static void collect_one(const char *id, void *cookie)
{
    struct record record;
    size_t *count = cookie;
    AUTO_FD lock = runtime_lock(id);

    if (lock < 0)
        return;
    int code = runtime_load(id, &record, NULL);
    if (code == CAY_E_NOT_FOUND)
        *count += runtime_forget(id);
    if (code || runtime_is_alive(&record))
        return;
    native_remove(&record, -1);
    ++*count;
}

int native_collect(size_t *ret_count, struct cay_error *err)
{
    *ret_count = 0;
    int code = runtime_visit(collect_one, ret_count, err);
    *ret_count += storage_sweep() + template_sweep();
    return code;
}

static int kill_it(void *cookie, struct cay_error *err)
{
    struct native *native = cookie;
    size_t ended = 0;

    (void)err;
    if (native_check(native, NULL) == CAY_OK)
        native_remove(&native->record, native->pidfd);
    else
        collect_one(native->record.id, &ended); /* it may have ended by itself */
    if (native->record.storage == CAY_STORAGE_DISK) {
        let_go(native);
        native->record.init = 0;
    }
    return CAY_OK;
}

static int remove_it(void *cookie, struct cay_error *err)
{
    struct native *native = cookie;
    int code = kill_it(cookie, err);

    if (!code && native->record.storage == CAY_STORAGE_DISK)
        code = storage_remove(native->record.id, err);
    return code;
}

/* One that is just about to end lives, but does not answer; it is helped along. */
static bool answers(struct native *native)
{
    struct state state;

    if (native_check(native, NULL) != CAY_OK)
        return false;
    if (native->socket >= 0)
        (void)close(native->socket);
    native->socket = -1;
    if (native_state(native, &state, NULL) == CAY_OK)
        return true;
    native_remove(&native->record, native->pidfd);
    return false;
}

static int start_it(void *cookie, struct cay_error *err)
{
    struct native *native = cookie;
    size_t ended = 0;
    char id[CAY_ID_MAX];

    if (native->record.storage != CAY_STORAGE_DISK)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "sandbox.start", native->record.id,
                        "a sandbox in memory is gone when it ends",
                        "make it with storage on disk");
    if (answers(native))
        return CAY_OK;
    memcpy(id, native->record.id, sizeof id);
    collect_one(id, &ended); /* it may have ended by itself */
    let_go(native);
    int code = native_start(id, native, err);
    if (code) {
        let_go(native);
        native->record = (struct record){.storage = CAY_STORAGE_DISK};
        memcpy(native->record.id, id, sizeof id);
    }
    return code;
}

const struct backend backend_native = {
    .name = "native",
    .create = create,
    .open = open_by_id,
    .free = native_free,
    .id = id_of,
    .layers = layers_of,
    .inspect = inspect_one,
    .list = inspect_all,
    .files = native_files,
    .exec = native_exec,
    .pause = native_pause,
    .resume = native_resume,
    .set_ttl = native_set_ttl,
    .kill = kill_it,
    .start = start_it,
    .remove = remove_it,
    .collect = native_collect,
    .processes = &native_processes,
    .dial = native_dial_port,
};
