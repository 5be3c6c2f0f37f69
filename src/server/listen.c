/* SPDX-License-Identifier: Apache-2.0 */
#include "server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

enum { FIRST_PASSED = 3, BACKLOG = 1024 };

static const char op[] = "serve.listen";

/* As sd_listen_fds(3) has it: LISTEN_PID is us, and there is one. */
static int passed_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    int is_listening = 0;
    socklen_t len = sizeof is_listening;

    if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid() ||
        strcmp(count, "1") != 0)
        return -1;
    if (getsockopt(FIRST_PASSED, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) != 0 ||
        !is_listening || fcntl(FIRST_PASSED, F_SETFD, FD_CLOEXEC) != 0)
        return -1;
    return FIRST_PASSED;
}

static void note_address(struct serve_options *options, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;

    if (getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        return;
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address;
    bool is_four = address.ss_family == AF_INET;
    if (!is_four && address.ss_family != AF_INET6)
        return;
    options->port = ntohs(is_four ? four->sin_port : six->sin6_port);
    (void)inet_ntop(address.ss_family,
                    is_four ? (const void *)&four->sin_addr : &six->sin6_addr,
                    options->address, sizeof options->address);
}

static bool fill_address(const struct serve_options *options,
                         struct sockaddr_storage *address, socklen_t *ret_len)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;

    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, options->address, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(options->port);
        *ret_len = sizeof *four;
        return true;
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(options->port);
    *ret_len = sizeof *six;
    return inet_pton(AF_INET6, options->address, &six->sin6_addr) == 1;
}

int listen_open(struct serve_options *options, int *ret_socket, struct cay_error *err)
{
    struct sockaddr_storage address;
    socklen_t len;
    const int yes = 1;
    AUTO_FD fd = passed_socket();

    if (fd < 0 && !fill_address(options, &address, &len))
        return cay_fail_errno(err, EINVAL, op, options->address);
    if (fd < 0) {
        fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0)
            return cay_fail_errno(err, errno, op, options->address);
        if (bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, BACKLOG) != 0)
            return errno == EADDRINUSE
                       ? cay_fail(err, CAY_E_BUSY, errno, op, options->address,
                                  "somebody else listens on this port",
                                  "end that server, or choose another port: --listen")
                       : cay_fail_errno(err, errno, op, options->address);
    }
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    note_address(options, fd);
    *ret_socket = TAKE_FD(fd);
    return CAY_OK;
}
