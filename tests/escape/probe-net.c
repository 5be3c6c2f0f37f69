/* SPDX-License-Identifier: Apache-2.0 */

/* The network and its relatives.  A datagram socket that is connected asks for a route
 * and sends nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "probe.h"

static struct answer judge(long result)
{
    if (result < 0 && (errno == ENETUNREACH || errno == ECONNREFUSED))
        return answer_make(BLOCKED, errno, "refused");
    return answer_call(result);
}

static struct sockaddr_in address_of(const char *host, long port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port)};

    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}

struct answer probe_route(const char *arg)
{
    struct sockaddr_in address = address_of(arg, 80);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return answer_call(fd);
    return judge(connect(fd, (struct sockaddr *)&address, sizeof address));
}

struct answer probe_tcp(const char *arg)
{
    struct sockaddr_in address = address_of(arg, host_number("TCP_PORT"));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return answer_call(fd);
    return judge(connect(fd, (struct sockaddr *)&address, sizeof address));
}

/* A datagram that nobody takes comes back as a refusal. */
struct answer probe_udp(const char *arg)
{
    struct sockaddr_in address = address_of(arg, host_number("UDP_PORT"));
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return answer_call(fd);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return answer_make(ERROR, errno, "connect");
    if (send(fd, "x", 1, 0) < 0 || send(fd, "x", 1, 0) < 0)
        return judge(-1);
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    (void)poll(&waiting, 1, 200);
    return judge(send(fd, "x", 1, 0));
}

static struct answer connect_unix(const struct sockaddr_un *address, size_t len)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return answer_call(fd);
    return judge(connect(fd, (const struct sockaddr *)address, (socklen_t)len));
}

struct answer probe_abstract(const char *arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = host_fact("ABSTRACT");

    (void)arg;
    if (!name || strlen(name) >= sizeof address.sun_path - 1)
        return answer_make(ERROR, 0, "no name");
    memcpy(address.sun_path + 1, name, strlen(name));
    return connect_unix(&address,
                        offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

struct answer probe_unix_path(const char *arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = host_fact("UNIX_PATH");

    (void)arg;
    if (!path || strlen(path) >= sizeof address.sun_path)
        return answer_make(ERROR, 0, "no path");
    memcpy(address.sun_path, path, strlen(path));
    struct answer answer = connect_unix(&address, sizeof address);
    if (answer.error == ENOENT)
        answer.verdict = BLOCKED;
    return answer;
}

/* Such a pair is connected to itself, and can be sent elsewhere all the same. */
struct answer probe_pair(const char *arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = host_fact("DATAGRAM_PATH");
    int ends[2], type = (int)strtol(arg, NULL, 10);

    if (!path || strlen(path) >= sizeof address.sun_path)
        return answer_make(ERROR, 0, "no path");
    memcpy(address.sun_path, path, strlen(path));
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return answer_call(-1);
    struct answer answer = answer_path(
        sendto(ends[0], "x", 1, 0, (struct sockaddr *)&address, sizeof address));
    if (answer.verdict == BLOCKED)
        answer =
            answer_path(connect(ends[1], (struct sockaddr *)&address, sizeof address));
    return answer;
}

static bool is_socket(const char *path, const char *name, const struct stat *st)
{
    (void)path, (void)name;
    return S_ISSOCK(st->st_mode);
}

/* First where the host's would be. */
struct answer probe_sockets_around(const char *arg)
{
    static const char *const places[] = {"/run",  "/var", "/tmp", "/dev", "/home",
                                         "/root", "/srv", "/mnt", "/opt"};
    const char *canary = host_fact("CANARY_DIR");
    const char *found = canary ? find_below(canary, is_socket) : NULL;

    (void)arg;
    for (size_t i = 0; !found && i < sizeof places / sizeof *places; i++)
        found = find_below(places[i], is_socket);
    if (found)
        return answer_make(ESCAPE, 0, "%.120s", found);
    return answer_make(VIRTUALISED, 0, "none");
}

struct answer probe_promiscuous(const char *arg)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)arg;
    if (fd < 0)
        return answer_call(fd);
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0)
        return answer_make(ERROR, errno, "lo");
    request.ifr_flags |= IFF_PROMISC;
    return answer_call(ioctl(fd, SIOCSIFFLAGS, &request));
}

struct answer probe_interfaces(const char *arg)
{
    struct if_nameindex *list = if_nameindex();

    (void)arg;
    if (!list)
        return answer_call(-1);
    for (struct if_nameindex *one = list; one->if_name; one++)
        if (strcmp(one->if_name, "lo") != 0)
            return answer_make(ESCAPE, 0, "%.100s", one->if_name);
    return answer_make(VIRTUALISED, 0, "lo");
}
