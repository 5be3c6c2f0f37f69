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

#include "base/auto.h"
#include "base/error.h"
#include "sandbox/backend.h"

enum { KILL_MS = 10000 };

static void native_free(void *cookie)
{
    struct native *native = cookie;

    if (!native)
        return;
    const int fds[] = {native->pidfd, native->leash, native->socket,
                       native->memory_events};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
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

static int open_by_id(const char *id, void **ret_cookie, struct cay_error *err)
{
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, "sandbox.open");
    int code = runtime_load(id, &native->record, err);
    if (!code)
        code = native_connect(native, err);
    if (!code)
        *ret_cookie = TAKE_PTR(native);
    return code;
}

int native_connect(struct native *native, struct cay_error *err)
{
    return native->socket >= 0 ? CAY_OK
                               : native_dial(&native->record, &native->socket, err);
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

void native_remove(const struct record *record, int pidfd)
{
    AUTO_FD opened = -1;

    if (pidfd < 0 && record->init > 0 &&
        runtime_start_time(record->init) == record->init_start)
        opened = (int)syscall(SYS_pidfd_open, record->init, 0);
    if (opened >= 0)
        pidfd = opened;
    if (pidfd >= 0) {
        struct pollfd ended = {.fd = pidfd, .events = POLLIN};
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        (void)poll(&ended, 1, KILL_MS);
    }
    groups_remove(&record->groups);
    runtime_release(record);
}

static int kill_it(void *cookie, struct cay_error *err)
{
    const struct native *native = cookie;

    (void)err;
    native_remove(&native->record, native->pidfd);
    return CAY_OK;
}

static void collect_one(const char *id, void *cookie)
{
    struct record record;
    size_t *count = cookie;
    AUTO_FD lock = runtime_lock(id);

    if (lock < 0 || runtime_load(id, &record, NULL) != CAY_OK ||
        (record.init > 0 && runtime_start_time(record.init) == record.init_start))
        return;
    native_remove(&record, -1);
    ++*count;
}

int native_collect(size_t *ret_count, struct cay_error *err)
{
    *ret_count = 0;
    return runtime_visit(collect_one, ret_count, err);
}

const struct backend backend_native = {
    .name = "native",
    .create = create,
    .open = open_by_id,
    .free = native_free,
    .id = id_of,
    .layers = layers_of,
    .files = native_files,
    .exec = native_exec,
    .pause = native_pause,
    .resume = native_resume,
    .set_ttl = native_set_ttl,
    .kill = kill_it,
    .remove = kill_it,
    .collect = native_collect,
    .processes = &native_processes,
};
