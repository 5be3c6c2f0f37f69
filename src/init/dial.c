/* SPDX-License-Identifier: Apache-2.0 */
#include "init/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/error.h"

enum { ANSWER_MS = 20 };

/* On loopback a connection is there at once or refused at once, on a busy machine a
 * moment later; or it waits for a listener that has its hands full: then the receiver
 * waits, not we. */
static int dial(const struct sockaddr *address, socklen_t len)
{
    AUTO_FD fd =
        socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (connect(fd, address, len) != 0) {
        if (errno != EINPROGRESS)
            return -errno;
        (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, ANSWER_MS);
    }
    int error = 0; /* of a refusal that came before connect(2) was through */
    socklen_t error_len = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) != 0 || error)
        return error ? -error : -errno;
    return TAKE_FD(fd);
}

static int dial_port(uint16_t port)
{
    const struct sockaddr_in four = {.sin_family = AF_INET,
                                     .sin_port = htons(port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                                     .sin6_port = htons(port),
                                     .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    int fd = dial((const struct sockaddr *)&four, sizeof four);
    return fd >= 0 ? fd : dial((const struct sockaddr *)&six, sizeof six);
}

bool dial_answer(struct peer *peer, const struct packet *packet)
{
    uint16_t port;
    char text[8];

    if (packet->head.len != sizeof port)
        return false;
    memcpy(&port, packet->payload, sizeof port);
    AUTO_FD fd = dial_port(port);
    if (fd >= 0) {
        peer_send(peer, MESSAGE_DIALLED, NULL, 0, fd);
        return true;
    }
    struct cay_error error = {0};
    snprintf(text, sizeof text, "%u", port);
    cay_fail(&error, CAY_E_NOT_FOUND, -fd, "sandbox.dial", text,
             "nothing listens on this port in the sandbox",
             "start a server there, on 127.0.0.1 or on all addresses");
    peer_fail(peer, &error);
    return true;
}
