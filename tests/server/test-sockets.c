/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "server/front/front.h"

/* S8: sockets that were opened before the confinement, as a port of a sandbox's is: what
 * can be reached from them beyond their peer? */
static struct {
    int datagram, stream;
    struct sockaddr_un path;
    struct sockaddr_in inet;
} reach;

static int try_pair_of_datagrams(void)
{
    int ends[2];

    return socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends);
}

static int try_raw_pair(void)
{
    int ends[2];

    return socketpair(AF_UNIX, SOCK_RAW | SOCK_CLOEXEC, 0, ends);
}

static int try_path(void)
{
    return (int)sendto(reach.datagram, "x", 1, 0, (struct sockaddr *)&reach.path,
                       sizeof reach.path);
}

static int try_bind(void)
{
    return bind(reach.datagram, (struct sockaddr *)&reach.path, sizeof(sa_family_t));
}

static int try_connect(void)
{
    return connect(reach.datagram, (struct sockaddr *)&reach.path, sizeof reach.path);
}

static bool disconnect(void)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};

    return connect(reach.stream, &none, sizeof none.sa_family) == 0;
}

/* TCP connects to the address of such a packet. */
static int try_fast_open(void)
{
    char byte = 0;
    struct iovec part = {&byte, 1};
    const struct msghdr message = {.msg_name = &reach.inet,
                                   .msg_namelen = sizeof reach.inet,
                                   .msg_iov = &part,
                                   .msg_iovlen = 1};

    return disconnect() ? (int)sendmsg(reach.stream, &message, MSG_FASTOPEN) : -1;
}

static int try_fast_open_by_sendto(void)
{
    if (!disconnect())
        return -1;
    return (int)sendto(reach.stream, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&reach.inet,
                       sizeof reach.inet);
}

static const struct attempt {
    const char *name;
    int (*act)(void);
} socket_attempts[] = {
    {"a pair of datagram sockets", try_pair_of_datagrams},
    {"a raw pair", try_raw_pair},
    {"sendto a path", try_path},
    {"bind", try_bind},
    {"connect to a path", try_connect},
    {"fast open", try_fast_open},
    {"fast open by sendto", try_fast_open_by_sendto},
};

enum { SUCCEEDED = 0, FORBIDDEN = 1, FAILED_OTHERWISE = 2 };

/* Without root there is no other root directory, which would hide the path as well. */
static int attempt_alone(const struct attempt *attempt, bool confined, bool as_root)
{
    int status = 0;
    pid_t child = fork();

    ASSERT(child >= 0);
    if (child == 0) {
        struct cay_error error;
        if (!as_root && setresuid(65534, 65534, 65534) != 0)
            _exit(100);
        if (confined && confine(&error) != CAY_OK)
            _exit(101);
        _exit(attempt->act() >= 0 ? SUCCEEDED
              : errno == EPERM    ? FORBIDDEN
                                  : FAILED_OTHERWISE);
    }
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A socket at a path that everyone may write to, and a port. */
static void listen_for_reach(int *ret_path, int *ret_port)
{
    static const struct sockaddr_in any = {.sin_family = AF_INET,
                                           .sin_addr = {.s_addr = 0x0100007f}};
    socklen_t len = sizeof reach.inet;

    reach.path.sun_family = AF_UNIX;
    snprintf(reach.path.sun_path, sizeof reach.path.sun_path, "/tmp/cay-s8-%d",
             (int)getpid());
    *ret_path = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *ret_port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    reach.inet = any;
    ASSERT(bind(*ret_path, (struct sockaddr *)&reach.path, sizeof reach.path) == 0 &&
           chmod(reach.path.sun_path, 0777) == 0 &&
           bind(*ret_port, (struct sockaddr *)&reach.inet, len) == 0 &&
           listen(*ret_port, 64) == 0 &&
           getsockname(*ret_port, (struct sockaddr *)&reach.inet, &len) == 0);
}

TEST(the_sockets_of_a_front_reach_only_their_peer)
{
    int path, port, ends[2];

    listen_for_reach(&path, &port);
    for (size_t i = 0; i < sizeof socket_attempts / sizeof *socket_attempts; i++)
        for (int as_root = 0; as_root <= (geteuid() == 0); as_root++)
            for (int confined = 0; confined < 2; confined++) {
                ASSERT(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) == 0);
                reach.datagram = ends[0];
                reach.stream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                ASSERT(connect(reach.stream, (struct sockaddr *)&reach.inet,
                               sizeof reach.inet) == 0);
                int got =
                    attempt_alone(&socket_attempts[i], confined, as_root || geteuid());
                if (got != (confined ? FORBIDDEN : SUCCEEDED))
                    fprintf(stderr, "%s\n", socket_attempts[i].name);
                ASSERT_INT(got, confined ? FORBIDDEN : SUCCEEDED);
                close(reach.stream);
                close(ends[0]);
                close(ends[1]);
            }
    unlink(reach.path.sun_path);
    close(path);
    close(port);
}
