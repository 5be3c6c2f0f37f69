/* SPDX-License-Identifier: Apache-2.0 */
#include "init/packet.h"

#include <errno.h>
#include <sys/socket.h>

#include "sys/rights.h"

void packet_close_fds(struct packet *packet)
{
    rights_close(packet->fds, MESSAGE_FDS_MAX);
}

static int receive(int socket, struct message *head, int fds[MESSAGE_FDS_MAX],
                   void *payload, size_t room, int flags)
{
    struct iovec parts[2] = {{head, sizeof *head}, {payload, room}};
    size_t count;
    ssize_t len = rights_receive(socket, parts, 2, fds, MESSAGE_FDS_MAX, &count, flags);

    if (len <= 0)
        return (int)len;
    if ((size_t)len < sizeof *head || head->version != PROTOCOL_VERSION ||
        head->len != (size_t)len - sizeof *head || head->fd_count != count) {
        rights_close(fds, MESSAGE_FDS_MAX);
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
    const struct iovec parts[2] = {{&head, sizeof head},
                                   {(void *)(uintptr_t)payload, len}};

    if (len > MESSAGE_MAX || fd_count > MESSAGE_FDS_MAX)
        return -EMSGSIZE;
    return rights_send(socket, parts, len ? 2 : 1, fds, fd_count, 0);
}
