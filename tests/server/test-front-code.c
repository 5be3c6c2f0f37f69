/* SPDX-License-Identifier: Apache-2.0 */

/* The front and the code service of a hostile sandbox. */
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../fuzz/front.h"
#include "../unit/harness.h"
#include "base/clock.h"
#include "init/code.h"

enum { LINGER_S = 100, PEERS = 16, HIGH_FD = 500 };

static int peers[PEERS];
static size_t peer_count;

/* Closing the last descriptor of this connection takes LINGER_S. */
static int make_lingering(void)
{
    static char data[65536];
    const struct linger lingers = {.l_onoff = 1, .l_linger = LINGER_S};
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(bind(listener, (struct sockaddr *)&here, len) == 0 &&
          listen(listener, 1) == 0 &&
          getsockname(listener, (struct sockaddr *)&here, &len) == 0 &&
          connect(fd, (struct sockaddr *)&here, len) == 0);
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(peer >= 0 && close(listener) == 0 && peer_count < PEERS);
    /* The front's own descriptors are counted from the lowest. */
    peers[peer_count++] = fcntl(peer, F_DUPFD_CLOEXEC, HIGH_FD);
    CHECK(peers[peer_count - 1] >= 0 && close(peer) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers) == 0);
    while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
        continue;
    return fd;
}

/* A client whose service sends such a descriptor with these bytes gets a reply. */
static void execute(const void *says, size_t len)
{
    static const char request[] =
        "POST /execute HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: abc\r\n"
        "E2b-Sandbox-Port: 49999\r\nConnection: close\r\nContent-Length: 12\r\n\r\n"
        "{\"code\":\"1\"}";
    struct talk heard;
    struct response response = {0};

    talk_gift = make_lingering;
    uint64_t began_ms = clock_ms();
    talk(request, strlen(request), says, len, &heard);
    CHECK(clock_ms() - began_ms < LINGER_S * 1000);
    CHECK(peer_count > 0);
    for (; peer_count; peer_count--)
        close(peers[peer_count - 1]);
    CHECK(response_parse(heard.response.data, heard.response.len, &response));
    response_done(&response);
    talk_done(&heard);
}

static const struct {
    struct code_event event;
    char text[6];
} said = {{.kind = CODE_EVENT_OUT, .len = 6}, "output"};

TEST(a_front_does_not_wait_for_a_descriptor_of_a_code_service)
{
    int status = 1;
    pid_t child = fork(); /* the front stays open in its process */

    ASSERT(child >= 0);
    if (child == 0) {
        execute(&said, sizeof said.event + sizeof said.text);
        execute("x", 1);
        _exit(0);
    }
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
}
