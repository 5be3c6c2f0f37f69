/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/process/wire.h"

/* A stream of the internet's, and nothing else that init may have sent. */
static bool is_socket(int fd)
{
    int domain = 0, type = 0;
    socklen_t len = sizeof domain;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
           (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM &&
           fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

int native_dial_port(void *cookie, uint16_t port, int *ret_fd, struct cay_error *err)
{
    static const char op[] = "sandbox.dial";
    struct native *native = cookie;
    AUTO_FD fd = -1;

    if (!(native->record.layers & CAY_LAYER_NETWORK))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, native->record.id,
                        "the sandbox has no network of its own",
                        "its ports are the host's, and reached there");
    int code = wire_ask_fd(native, op, MESSAGE_DIAL, &port, sizeof port, MESSAGE_DIALLED,
                           &fd, err);
    if (code)
        return code;
    if (!is_socket(fd))
        return wire_error(NULL, 0, err);
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}
