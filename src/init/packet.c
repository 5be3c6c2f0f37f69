/* SPDX-License-Identifier: Apache-2.0 */
#include "init/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(MESSAGE_FDS_MAX * sizeof(int))];
};

static void close_fds(int fds[MESSAGE_FDS_MAX])
{
    for (size_t i = 0; i < MESSAGE_FDS_MAX; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
        fds[i] = -1;
    }
}

void packet_close_fds(struct packet *packet)
{
    close_fds(packet->fds);
}

/* Takes the descriptors whatever else is wrong, so that they can be closed. */
static size_t take_fds(struct msghdr *message, int fds[MESSAGE_FDS_MAX])
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
            if (count < MESSAGE_FDS_MAX)
                fds[count] = fd;
            else
                (void)close(fd);
            count++;
        }
    }
    return count;
}

static int receive(int socket, struct message *head, int fds[MESSAGE_FDS_MAX],
                   void *payload, size_t room, int flags)
{
    union control control;
    struct iovec parts[2] = {{head, sizeof *head}, {payload, room}};
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = 2,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    ssize_t len;

    for (size_t i = 0; i < MESSAGE_FDS_MAX; i++)
        fds[i] = -1;
    /* A peer that went away without reading everything may have said something before. */
    int resets = 0;
    do
        len = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
    while (len < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
    if (len < 0)
        return errno == EAGAIN ? -EAGAIN : errno == ECONNRESET ? 0 : -errno;
    if (len == 0)
        return 0;
    size_t count = take_fds(&message, fds);
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || (size_t)len < sizeof *head ||
        head->version != PROTOCOL_VERSION || head->len != (size_t)len - sizeof *head ||
        head->fd_count != count || count > MESSAGE_FDS_MAX) {
        close_fds(fds);
        return -EPROTO;
    }
    return 1;
}

int packet_receive(int socket, struct packet *ret_packet)
{
    return receive(socket, &ret_packet->head, ret_packet->fds, ret_packet->payload,
                   sizeof ret_packet->payload, 0);
}

int packet_poll(int socket, struct packet *ret_packet)
{
    return receive(socket, &ret_packet->head, ret_packet->fds, ret_packet->payload,
                   sizeof ret_packet->payload, MSG_DONTWAIT);
}

int packet_poll_small(int socket, struct message *head, int fds[MESSAGE_FDS_MAX],
                      void *payload, size_t room)
{
    return receive(socket, head, fds, payload, room, MSG_DONTWAIT);
}

int packet_send(int socket, unsigned kind, const void *payload, size_t len,
                const int *fds, size_t fd_count)
{
    struct message head = {PROTOCOL_VERSION, kind, (uint32_t)len, (uint32_t)fd_count};
    union control control;
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)(uintptr_t)payload, len}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = len ? 2 : 1};
    ssize_t sent;

    if (len > MESSAGE_MAX || fd_count > MESSAGE_FDS_MAX)
        return -EMSGSIZE;
    if (fd_count) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof *fds);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof *fds);
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof *fds);
    }
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}
