/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "harness.h"
#include "sys/rights.h"

static int ends[2];

static void make_pair(void)
{
    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) ==
           0);
}

static void close_pair(void)
{
    close(ends[0]);
    close(ends[1]);
}

/* The harness fails a test after which one of them is still open. */
static void send_some(size_t len, size_t count)
{
    const struct iovec part = {(char[]){"text"}, len};
    int fds[RIGHTS_MAX];

    for (size_t i = 0; i < count; i++)
        fds[i] = STDERR_FILENO;
    ASSERT_INT(rights_send(ends[0], &part, 1, fds, count, 0), 0);
}

static ssize_t receive(size_t len, int *fds, size_t room, size_t *ret_count)
{
    char text[8];
    struct iovec part = {text, len};

    return rights_receive(ends[1], &part, 1, fds, room, ret_count, 0);
}

TEST(descriptors_arrive_with_their_packet)
{
    int fds[RIGHTS_MAX];
    size_t count;

    make_pair();
    send_some(4, 2);
    ASSERT_INT(receive(4, fds, 3, &count), 4);
    ASSERT_INT(count, 2);
    ASSERT(fcntl(fds[0], F_GETFD) & FD_CLOEXEC && fds[1] >= 0);
    ASSERT_INT(fds[2], -1);
    rights_close(fds, 3);
    ASSERT_INT(fds[0], -1);
    send_some(4, RIGHTS_MAX);
    ASSERT_INT(receive(4, fds, RIGHTS_MAX, &count), 4);
    ASSERT_INT(count, RIGHTS_MAX);
    rights_close(fds, RIGHTS_MAX);
    send_some(4, 0);
    ASSERT_INT(receive(8, fds, 0, &count), 4);
    ASSERT_INT(count, 0);
    close_pair();
}

TEST(what_does_not_fit_is_refused_and_closed)
{
    int fds[4];
    size_t count;

    make_pair();
    for (size_t room = 0; room < 4; room++) {
        send_some(4, room + 1);
        ASSERT_INT(receive(4, fds, room, &count), -EPROTO);
    }
    send_some(4, 3);
    ASSERT_INT(receive(3, fds, 4, &count), -EPROTO);
    ASSERT_INT(fds[0], -1);
    ASSERT_INT(rights_send(ends[0], NULL, 0, fds, RIGHTS_MAX + 1, 0), -EMSGSIZE);
    close_pair();
}

TEST(a_packet_of_nothing_keeps_no_descriptor)
{
    int fds[2];
    size_t count;

    make_pair();
    send_some(0, 2);
    ASSERT_INT(receive(4, fds, 2, &count), 0);
    close_pair();
}

TEST(a_peer_that_is_gone_has_said_what_it_said)
{
    int fds[2];
    size_t count;

    make_pair();
    ASSERT_INT(receive(4, fds, 2, &count), -EAGAIN);
    send_some(4, 1);
    ASSERT_INT(write(ends[1], "unread", 6), 6);
    close(ends[0]);
    ASSERT_INT(receive(4, fds, 2, &count), 4);
    rights_close(fds, 2);
    ASSERT_INT(receive(4, fds, 2, &count), 0);
    close(ends[1]);
}
