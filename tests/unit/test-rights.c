/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
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

/* M7: a shortage of descriptors here is no fault of the peer. */
TEST(descriptors_that_find_no_room_in_this_process_are_a_shortage)
{
    struct rlimit limit, none;
    int fds[4];
    size_t count;

    make_pair();
    ASSERT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    for (rlim_t room = 0; room < 2; room++) {
        int next = dup(STDERR_FILENO);
        ASSERT(next >= 0 && close(next) == 0);
        none.rlim_cur = (rlim_t)next + room;
        send_some(4, 2);
        send_some(4, 0);
        ASSERT(setrlimit(RLIMIT_NOFILE, &none) == 0);
        ssize_t first = receive(4, fds, 4, &count), second = receive(4, fds, 4, &count);
        ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        ASSERT_INT(first, -EMFILE);
        ASSERT_INT(second, 4); /* the next packet is whole */
    }
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

/* What recvmsg() reports next instead of looking; -1: nothing, it looks. */
static _Atomic int pretended = -1;

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    if (pretended < 0)
        return syscall(SYS_recvmsg, fd, message, flags);
    message->msg_controllen = 0;
    message->msg_flags = 0;
    return atomic_exchange(&pretended, -1);
}

/* R3, as the kernel does it once in a while: the end is reported before the packet. */
TEST(an_end_that_is_reported_too_early_hides_no_packet)
{
    int fds[2];
    size_t count;

    make_pair();
    send_some(4, 1);
    pretended = 0;
    ASSERT_INT(receive(4, fds, 2, &count), 4);
    ASSERT_INT(count, 1);
    rights_close(fds, 2);
    pretended = 0;
    ASSERT_INT(receive(4, fds, 2, &count), 0);
    close_pair();
}

/* R3: the kernel may report the end to a receiver that looks while the peer sends its
 * last packet and closes; about one in ten thousand times where there are two CPUs. */
enum { ROUNDS = 100000, ROUNDS_MS = 8000, LAST = 2 };

static pthread_barrier_t barrier;
static _Atomic bool is_last_round;

static void *send_and_close(void *cookie)
{
    const struct iovec part = {(char[]){"x"}, 1};

    (void)cookie;
    do {
        (void)pthread_barrier_wait(&barrier);
        for (int j = 0; j < LAST; j++)
            (void)!rights_send(ends[0], &part, 1, NULL, 0, 0);
        close(ends[0]);
        (void)pthread_barrier_wait(&barrier);
    } while (!is_last_round);
    return NULL;
}

static int receive_all(void)
{
    size_t count;
    int packets = 0;
    ssize_t got;

    while ((got = receive(1, NULL, 0, &count)) != 0)
        packets += got > 0;
    return packets;
}

TEST(the_last_packets_before_the_end_are_received)
{
    uint64_t began_ms = clock_ms();
    pthread_t sender;
    int lost = 0;

    ASSERT(pthread_barrier_init(&barrier, NULL, 2) == 0 &&
           pthread_create(&sender, NULL, send_and_close, NULL) == 0);
    for (int i = 1; !is_last_round; i++) {
        make_pair();
        (void)pthread_barrier_wait(&barrier);
        /* between the barriers: the sender reads it after the second */
        is_last_round = i == ROUNDS || clock_ms() - began_ms > ROUNDS_MS;
        lost += receive_all() != LAST;
        (void)pthread_barrier_wait(&barrier);
        close(ends[1]);
    }
    ASSERT(pthread_join(sender, NULL) == 0);
    (void)pthread_barrier_destroy(&barrier);
    ASSERT_INT(lost, 0);
}
