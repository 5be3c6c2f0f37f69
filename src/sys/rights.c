/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/rights.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for the kernel's maximum of descriptors; it would close those that do not fit. */
enum { KERNEL_MOST = 253 };

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(KERNEL_MOST * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

int rights_send(int socket, const struct iovec *parts, size_t part_count, const int *fds,
                size_t fd_count, int flags)
{
    union control control;
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts,
                             .msg_iovlen = part_count};
    ssize_t sent;

    if (fd_count > RIGHTS_MAX)
        return -EMSGSIZE;
    if (fd_count > 0) {
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof *fds);
        memset(&control, 0, message.msg_controllen);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fd_count * sizeof *fds);
        memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof *fds);
    }
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | flags);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* The sender may have set SO_LINGER, which makes close(2) wait until the other end has
 * read everything, for ever if it does not.  So disconnect first, by AF_UNSPEC.  The
 * length is that of the family alone, so that no socket takes it for an address. */
void rights_dismiss(int fd)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

    (void)connect(fd, &nobody, sizeof nobody.sa_family);
    (void)close(fd);
}

/* Collects the descriptors in any case, so that they can be closed. */
static size_t take(struct msghdr *message, int *fds, size_t room)
{
    size_t count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (count < room)
                fds[count] = fd;
            else
                rights_dismiss(fd);
            count++;
        }
    }
    return count;
}

static ssize_t receive(int socket, struct msghdr *message, int flags)
{
    int resets = 0;
    ssize_t len;

    message->msg_controllen = sizeof(union control);
    /* A peer that went away without reading everything may have sent something before. */
    do
        len = recvmsg(socket, message, MSG_CMSG_CLOEXEC | flags);
    while (len < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
    return len;
}

ssize_t rights_receive(int socket, struct iovec *parts, size_t part_count, int *fds,
                       size_t fd_room, size_t *ret_fd_count, int flags)
{
    union control control;
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = part_count, .msg_control = control.room};

    if (fd_room > 0)
        memset(fds, -1, fd_room * sizeof *fds);
    ssize_t len = receive(socket, &message, flags);
    /* The kernel checks for a packet and then for a closed peer.  If the peer sends its
     * last packet and closes in between, end of file is reported although there is a
     * packet: so read again. */
    if (len == 0 && message.msg_controllen == 0 &&
        (len = receive(socket, &message, flags | MSG_DONTWAIT)) < 0)
        return 0;
    if (len < 0)
        return errno == ECONNRESET ? 0 : -errno;
    *ret_fd_count = take(&message, fds, fd_room);
    if (len > 0 && *ret_fd_count <= fd_room &&
        !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return len;
    rights_close(fds, fd_room);
    if (len == 0)
        return 0;
    /* There was room in the packet for all that came, and for more of them. */
    bool is_short = !(message.msg_flags & MSG_TRUNC) && *ret_fd_count <= fd_room &&
                    *ret_fd_count < RIGHTS_MAX;
    return is_short ? -EMFILE : -EPROTO;
}

void rights_close(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0)
            rights_dismiss(fds[i]);
        fds[i] = -1;
    }
}

/* Every packet carries credentials, so an empty packet differs from end of file; of a
 * stream end of file has them, too. */
static bool drain(int socket, bool is_stream)
{
    union control control;
    char bytes[4096];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    ssize_t len = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    if (len < 0)
        return errno == EINTR || errno == ECONNRESET;
    (void)take(&message, NULL, 0);
    return is_stream ? len > 0 : message.msg_controllen > 0;
}

void rights_hang_up(int socket)
{
    const int on = 1;
    int type = SOCK_SEQPACKET;
    socklen_t len = sizeof type;

    (void)getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &len);
    (void)setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    (void)shutdown(socket, SHUT_RDWR);
    while (drain(socket, type == SOCK_STREAM))
        continue;
    (void)close(socket);
}

void rights_let_go(int socket, pid_t owner)
{
    if (getpid() == owner)
        rights_hang_up(socket);
    else
        (void)close(socket);
}
