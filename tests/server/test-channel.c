/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "base/auto.h"

static int send_one(int socket)
{
    const struct request request = {.version = CHANNEL_VERSION, .op = OP_HEALTH};
    AUTO_BUF none = {0};
    int ends[2];

    buf_init(&none, 1);
    ASSERT_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    int error = request_send(socket, &request, &none, ends[1]);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return error;
}

/* As it is for the first who comes after a keeper was killed. */
TEST(a_send_to_a_closed_peer_returns_epipe_with_or_without_unread_data)
{
    for (int unread = 0; unread < 3; unread++) {
        int ends[2];
        ASSERT_INT(
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
            0);
        for (int i = 0; i < unread; i++)
            ASSERT_INT(send_one(ends[0]), 0);
        (void)close(ends[1]);
        ASSERT_INT(send_one(ends[0]), -EPIPE);
        (void)close(ends[0]);
    }
}
