/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_VALGRIND_OPENAT2_H
#define TESTS_VALGRIND_OPENAT2_H

#include <linux/openat2.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Valgrind 3.19 answers openat2(2) with ENOSYS.  Under it the tests are run with
 * preload.c preloaded, which has each call made by openat2-server, a process that
 * valgrind does not run, and gets the descriptor back over a socket. */

struct openat2_request { /* with two descriptors: the directory, and where to answer */
    struct open_how how;
    mode_t mask;
    char path[8192];
};

struct openat2_answer { /* with the descriptor, if error is 0 */
    int error;
};

#define SERVER_FD 3 /* where the server finds its socket */
#define FDS_MOST  2

static inline ssize_t send_fds(int socket, void *data, size_t len, const int *fds,
                               size_t count)
{
    char control[CMSG_SPACE(FDS_MOST * sizeof(int))] = {0};
    struct iovec piece = {data, len};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

static inline ssize_t receive_fds(int socket, void *data, size_t len, int *fds,
                                  size_t count)
{
    char control[CMSG_SPACE(FDS_MOST * sizeof(int))] = {0};
    struct iovec piece = {data, len};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;

    for (size_t i = 0; i < count; i++)
        fds[i] = -1;
    if (head && head->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
    return got;
}

#endif
