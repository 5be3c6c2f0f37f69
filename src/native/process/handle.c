/* SPDX-License-Identifier: Apache-2.0 */
#include "native/process/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/process/wire.h"
#include "sys/rights.h"

void native_let_go(struct native *native)
{
    int *const fds[] = {&native->pidfd, &native->leash, &native->events.memory,
                        &native->events.pids};

    if (native->socket >= 0)
        rights_let_go(native->socket, native->owner);
    native->socket = -1;
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            (void)close(*fds[i]);
        *fds[i] = -1;
    }
}

void native_free(void *cookie)
{
    struct native *native = cookie;

    if (!native)
        return;
    native_let_go(native);
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
                    "the sandbox's record is damaged, or of another version of cay",
                    "cay kill %s ends the sandbox", id);
}

/* Somebody else may have started it again meanwhile. */
int native_check(struct native *native, struct cay_error *err)
{
    struct record now;

    if (native->is_damaged)
        return native_fail_damaged(native->record.id, err);
    if (native->record.storage != CAY_STORAGE_DISK || runtime_is_alive(&native->record))
        return CAY_OK;
    if (runtime_load(native->record.id, &now, NULL) == CAY_OK && runtime_is_alive(&now)) {
        native_let_go(native);
        native->record = now;
        return CAY_OK;
    }
    return cay_fail(err, CAY_E_BUSY, 0, "sandbox.connect", native->record.id,
                    "the sandbox is stopped", "start it first");
}

int native_connect(struct native *native, struct cay_error *err)
{
    int code = native_check(native, err); /* or the connection is to one that has ended */

    if (code || native->socket >= 0)
        return code;
    return native_dial(&native->record, native->answer_ms, &native->socket, err);
}

/* One that takes no connections, or no messages, is not waited for for ever. */
int native_dial(const struct record *record, int answer_ms, int *ret_socket,
                struct cay_error *err)
{
    const struct timeval limit = {answer_ms / 1000, answer_ms % 1000 * 1000};
    struct sockaddr_un address;
    int code = runtime_address(record->id, &address, err);

    if (code)
        return code;
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return wire_fail_gone("sandbox.connect", record->id, errno, err);
    *ret_socket = TAKE_FD(fd);
    return CAY_OK;
}

const char *native_id(const void *cookie)
{
    return ((const struct native *)cookie)->record.id;
}

unsigned native_layers(const void *cookie)
{
    return ((const struct native *)cookie)->record.layers;
}
