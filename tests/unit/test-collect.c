/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/collect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { SKIPPED = 77, LONG_MS = 30000 };

/* Checks in a child that has a network namespace of its own; 0 if `check` returns 0. */
static int sockets[COLLECT_SOCKETS];
static char text_room[64];
static bool is_without_six;

static int enter(void)
{
    struct collect collect;
    enum collect_step step;

    if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return SKIPPED;
    collect_build(&collect);
    if (is_without_six) /* a message that the kernel refuses */
        memset(collect.rules6 + 40, 0xFF, 64);
    int error = collect_start(&collect, sockets, &step);
    if (error)
        printf("# %s: %s\n", collect_step_text(step), strerror(-error));
    return error == -EPROTONOSUPPORT || error == -ENOENT ? SKIPPED : error ? 1 : 0;
}

static void run_inside(int (*check)(void))
{
    int status = 0;

    fflush(stdout);
    pid_t child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        int code = enter();
        code = code ? code : check();
        fflush(stdout);
        _exit(code);
    }
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED)
        SKIP("this kernel has no nf_tables with tproxy, or no network namespaces");
    ASSERT_INT(WEXITSTATUS(status), 0);
}

/* In the child a failed check is the exit status; its line is printed. */
#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            printf("# line %d: %s (%s)\n", __LINE__, #condition, strerror(errno));       \
            return 1;                                                                    \
        }                                                                                \
    } while (0)

static struct sockaddr_in name_of(const char *address, uint16_t port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};

    inet_pton(AF_INET, address, &name.sin_addr);
    return name;
}

static int dial(int type, const char *address, uint16_t port)
{
    struct sockaddr_in name = name_of(address, port);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0)
        return fd;
    int error = errno;
    close(fd);
    return -error;
}

static bool is_readable(int fd, int ms)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};

    return poll(&waiting, 1, ms) == 1;
}

static int check_one(const char *address, uint16_t port)
{
    struct sockaddr_in name, peer;
    socklen_t len = sizeof name, peer_len = sizeof peer;
    char text[INET_ADDRSTRLEN], byte = 0;

    int client = dial(SOCK_STREAM, address, port);
    CHECK(client >= 0);
    CHECK(is_readable(sockets[COLLECT_TCP], LONG_MS));
    int server = accept4(sockets[COLLECT_TCP], (struct sockaddr *)&peer, &peer_len, 0);
    CHECK(server >= 0);
    CHECK(getsockname(server, (struct sockaddr *)&name, &len) == 0);
    CHECK(strcmp(inet_ntop(AF_INET, &name.sin_addr, text, sizeof text), address) == 0);
    CHECK(ntohs(name.sin_port) == port);
    CHECK(ntohl(peer.sin_addr.s_addr) == COLLECT_OWN);
    CHECK(write(server, "x", 1) == 1 && read(client, &byte, 1) == 1 && byte == 'x');
    CHECK(write(client, "y", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'y');
    close(client);
    close(server);
    return 0;
}

static int check_tcp(void)
{
    static const char *const addresses[] = {"93.184.216.34", "169.254.169.254",
                                            "198.18.0.1",    "10.0.0.1",
                                            "192.168.1.1",   "100.64.0.1"};
    int code = 0;

    for (size_t i = 0; i < sizeof addresses / sizeof *addresses && !code; i++)
        code = check_one(addresses[i], (uint16_t)(i * 7919 + 22));
    return code;
}

static int dial6(int type, const char *address, uint16_t port)
{
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET6, address, &name.sin6_addr);
    if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0)
        return fd;
    int error = errno;
    close(fd);
    return -error;
}

static int check_one6(const char *address)
{
    struct sockaddr_in6 name, peer;
    socklen_t len = sizeof name, peer_len = sizeof peer;
    char text[INET6_ADDRSTRLEN], byte = 0;

    int client = dial6(SOCK_STREAM, address, 443);
    CHECK(client >= 0);
    CHECK(is_readable(sockets[COLLECT_TCP6], LONG_MS));
    int server = accept4(sockets[COLLECT_TCP6], (struct sockaddr *)&peer, &peer_len, 0);
    CHECK(server >= 0);
    CHECK(getsockname(server, (struct sockaddr *)&name, &len) == 0);
    CHECK(strcmp(inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof text), address) == 0);
    CHECK(ntohs(name.sin6_port) == 443);
    CHECK(strcmp(inet_ntop(AF_INET6, &peer.sin6_addr, text, sizeof text),
                 COLLECT_OWN_ADDRESS6) == 0);
    CHECK(write(server, "x", 1) == 1 && read(client, &byte, 1) == 1 && byte == 'x');
    close(client);
    close(server);
    return 0;
}

static int check_tcp6(void)
{
    static const char *const addresses[] = {"2001:db8::1", "fd00:ec2::254",
                                            "fd00:ca1::1"};
    int code = 0, is_listening = 0;
    socklen_t len = sizeof is_listening;

    CHECK(getsockopt(sockets[COLLECT_TCP6], SOL_SOCKET, SO_ACCEPTCONN, &is_listening,
                     &len) == 0);
    if (!is_listening)
        return SKIPPED;
    for (size_t i = 0; i < 3 && !code; i++)
        code = check_one6(addresses[i]);
    CHECK(dial6(SOCK_STREAM, "::1", 443) == -ECONNREFUSED);
    CHECK(dial6(SOCK_STREAM, COLLECT_OWN_ADDRESS6, 443) == -ECONNREFUSED);
    int fd = dial6(SOCK_DGRAM, "2001:db8::1", 53);
    CHECK(fd >= 0 && send(fd, "x", 1, 0) == 1);
    CHECK(is_readable(fd, LONG_MS) && recv(fd, text_room, sizeof text_room, 0) < 0 &&
          errno == ECONNREFUSED);
    close(fd);
    return code;
}

TEST(the_second_listener_gets_connections_of_ipv6)
{
    run_inside(check_tcp6);
}

static int check_without_six(void)
{
    int is_listening = 1;
    socklen_t len = sizeof is_listening;

    CHECK(getsockopt(sockets[COLLECT_TCP6], SOL_SOCKET, SO_ACCEPTCONN, &is_listening,
                     &len) == 0);
    CHECK(!is_listening);
    CHECK(dial6(SOCK_STREAM, "2001:db8::1", 443) == -ENETUNREACH);
    return check_one("93.184.216.34", 443);
}

TEST(ipv4_works_where_the_kernel_refuses_the_rules_of_ipv6)
{
    is_without_six = true;
    run_inside(check_without_six);
    is_without_six = false;
}

TEST(the_listener_gets_connections_to_every_address_and_port)
{
    run_inside(check_tcp);
}

static int check_own(void)
{
    static const char *const own[] = {"127.0.0.1", "100.64.0.2", "127.9.9.9"};
    struct sockaddr_in name = name_of("0.0.0.0", 8080);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(bind(server, (struct sockaddr *)&name, sizeof name) == 0);
    CHECK(listen(server, 8) == 0);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        int client = dial(SOCK_STREAM, own[i], 8080);
        CHECK(client >= 0);
        CHECK(is_readable(server, LONG_MS) && !is_readable(sockets[COLLECT_TCP], 0));
        close(accept(server, NULL, NULL));
        close(client);
    }
    CHECK(check_one("93.184.216.34", 8080) == 0);
    CHECK(!is_readable(server, 0));
    CHECK(dial(SOCK_STREAM, "127.0.0.1", 8081) == -ECONNREFUSED);
    return 0;
}

TEST(own_addresses_stay_inside_and_a_server_inside_gets_nothing_else)
{
    run_inside(check_own);
}

static int check_closed(void)
{
    struct sockaddr_in name = name_of("0.0.0.0", 443);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    close(sockets[COLLECT_TCP]);
    CHECK(dial(SOCK_STREAM, "93.184.216.34", 443) < 0);
    CHECK(bind(server, (struct sockaddr *)&name, sizeof name) == 0);
    CHECK(listen(server, 8) == 0);
    CHECK(dial(SOCK_STREAM, "93.184.216.34", 443) < 0);
    CHECK(dial(SOCK_STREAM, "127.0.0.1", 443) >= 0); /* the server works */
    return 0;
}

TEST(connections_fail_at_once_without_the_listener)
{
    run_inside(check_closed);
}

static int check_dns(void)
{
    struct sockaddr_in from;
    char bytes[16], control[256], text[INET_ADDRSTRLEN];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_name = &from,
                             .msg_namelen = sizeof from,
                             .msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};

    int client = dial(SOCK_DGRAM, "8.8.8.8", 53);
    CHECK(client >= 0 && send(client, "who", 3, 0) == 3);
    CHECK(is_readable(sockets[COLLECT_DNS], LONG_MS));
    CHECK(recvmsg(sockets[COLLECT_DNS], &message, 0) == 3);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    CHECK(head && head->cmsg_level == SOL_IP && head->cmsg_type == IP_PKTINFO);
    struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(head);
    CHECK(strcmp(inet_ntop(AF_INET, &info->ipi_addr, text, sizeof text), "8.8.8.8") == 0);
    info->ipi_spec_dst = info->ipi_addr;
    info->ipi_ifindex = 0;
    part.iov_len = 3;
    CHECK(sendmsg(sockets[COLLECT_DNS], &message, 0) == 3);
    CHECK(is_readable(client, LONG_MS) && recv(client, bytes, sizeof bytes, 0) == 3);
    return 0;
}

TEST(the_dns_socket_gets_questions_to_every_nameserver)
{
    run_inside(check_dns);
}

static int check_udp(void)
{
    char bytes[1024], byte;
    int client = dial(SOCK_DGRAM, "93.184.216.34", 443);

    CHECK(client >= 0 && send(client, "quic", 4, 0) == 4);
    CHECK(is_readable(client, LONG_MS));
    CHECK(recv(client, &byte, 1, 0) < 0 && errno == ECONNREFUSED);
    CHECK(is_readable(sockets[COLLECT_LOG], LONG_MS));
    ssize_t got = recv(sockets[COLLECT_LOG], bytes, sizeof bytes, 0);
    const struct nlmsghdr *header = (const struct nlmsghdr *)bytes;
    CHECK(got > (ssize_t)sizeof *header);
    CHECK(header->nlmsg_type == (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET));
    CHECK(memmem(bytes, (size_t)got, "\x5d\xb8\xd8\x22", 4)); /* the destination */
    return 0;
}

TEST(a_datagram_is_refused_at_once_and_reported)
{
    run_inside(check_udp);
}
