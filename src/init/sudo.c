/* SPDX-License-Identifier: Apache-2.0 */
#include "init/sudo.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/process.h"

/* If the socket cannot be created, the sandbox has no sudo. */
int sudo_listen(const struct plan *plan)
{
    const struct sockaddr_un address = {AF_UNIX, SUDO_SOCKET};

    if (!plan->has_sudo)
        return -1;
    (void)unlink(SUDO_SOCKET); /* of an earlier start */
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(SUDO_SOCKET, 0666) != 0 || listen(fd, SUDO_PEERS_MAX) != 0)
        return -1;
    return TAKE_FD(fd);
}

bool sudo_may_connect(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == 0 || peer.uid == PLAN_USER);
}

/* close(2) of the last descriptor of a network connection can wait, and PID 1 with it. */
static bool may_be_closed(int fd)
{
    struct stat st;
    int domain = AF_UNIX;
    socklen_t len = sizeof domain;

    if (fstat(fd, &st) != 0)
        return false;
    return !S_ISSOCK(st.st_mode) ||
           (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
            domain == AF_UNIX);
}

/* Unsealed, it could be a file on a slow file system, or change while it is read. */
static bool is_sealed(int fd)
{
    const int needed = F_SEAL_SHRINK | F_SEAL_WRITE;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & needed) == needed;
}

static bool is_proper(const struct packet *packet)
{
    const unsigned allowed = EXEC_INPUT | EXEC_TTY | EXEC_IN_MEMFD;
    struct exec_request request;

    if (packet->head.len < sizeof request)
        return false;
    memcpy(&request, packet->payload, sizeof request);
    for (uint32_t i = 0; i < packet->head.fd_count; i++)
        if (!may_be_closed(packet->fds[i]))
            return false;
    bool in_memfd = request.flags & EXEC_IN_MEMFD;
    if (in_memfd && (packet->head.fd_count == 0 ||
                     !is_sealed(packet->fds[packet->head.fd_count - 1])))
        return false;
    return !(request.flags & ~allowed) && !request.timeout_ms;
}

bool sudo_handle(struct peer *peer, struct packet *packet)
{
    if (packet->head.kind == MESSAGE_EXEC)
        return !peer->process && is_proper(packet) && process_execute(peer, packet);
    if (packet->head.kind == MESSAGE_SIGNAL)
        return packet->head.fd_count == 0 && control_signal(peer, packet);
    return false;
}
