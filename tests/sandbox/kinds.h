/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_KINDS_H
#define TESTS_KINDS_H

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../unit/harness.h"

/* Descriptors that are not what was asked for. */
enum kind {
    A_PIPE,
    A_SOCKET,
    A_DIRECTORY,
    A_DEVICE,
    AN_EPOLL,
    A_WAITING_FILE,
    A_WRITABLE_FILE,
    A_HELD_FILE,
    OF_PROC,
    KINDS
};

static inline int make(enum kind kind)
{
    const char *exe = "/proc/self/exe";
    int pair[2] = {-1, -1};

    switch (kind) {
    case A_PIPE:
        ASSERT(pipe2(pair, O_CLOEXEC | O_NONBLOCK) == 0);
        close(pair[1]);
        return pair[0];
    case A_SOCKET:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    case A_DIRECTORY:
        return open("/", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    case A_DEVICE:
        return open("/dev/zero", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    case AN_EPOLL:
        return epoll_create1(EPOLL_CLOEXEC);
    case A_WAITING_FILE:
        return open(exe, O_RDONLY | O_CLOEXEC);
    case A_WRITABLE_FILE:
        return open(scratch(), O_TMPFILE | O_WRONLY | O_NONBLOCK | O_CLOEXEC, 0600);
    case A_HELD_FILE:
        return open(exe, O_PATH | O_CLOEXEC);
    case OF_PROC:
        return open("/proc/self/status", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    case KINDS:
        break;
    }
    return -1;
}

#endif
