/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum { PIECE = 256 << 10, MOST_AT_ONCE = 1 << 30 };

struct copy {
    int from, to;
    char *piece; /* once it is needed */
    size_t room;
};

static ssize_t by_range(struct copy *copy, size_t len)
{
    return copy_file_range(copy->from, NULL, copy->to, NULL, len, 0);
}

static ssize_t by_sendfile(struct copy *copy, size_t len)
{
    return sendfile(copy->to, copy->from, NULL, len);
}

static ssize_t by_splice(struct copy *copy, size_t len)
{
    return splice(copy->from, NULL, copy->to, NULL, len, SPLICE_F_MOVE);
}

static void wait_for(int fd, short events)
{
    struct pollfd waiting = {.fd = fd, .events = events};

    (void)poll(&waiting, 1, -1);
}

static int write_patiently(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, data, len);
        if (put < 0 && errno == EAGAIN)
            wait_for(fd, POLLOUT);
        else if (put < 0 && errno != EINTR)
            return -errno;
        if (put > 0) {
            data += put;
            len -= (size_t)put;
        }
    }
    return 0;
}

static ssize_t by_hand(struct copy *copy, size_t len)
{
    if (!copy->piece) {
        copy->room = len < PIECE ? len : PIECE;
        copy->piece = malloc(copy->room);
    }
    if (!copy->piece) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t got = read(copy->from, copy->piece, len < copy->room ? len : copy->room);
    if (got < 0 && errno == EAGAIN) {
        wait_for(copy->from, POLLIN);
        errno = EINTR;
    }
    if (got <= 0)
        return got;
    int error = write_patiently(copy->to, copy->piece, (size_t)got);
    errno = -error;
    return error ? -1 : got;
}

/* What says no more than that this way is not for these two. */
static bool is_unfit(int sys_errno)
{
    return sys_errno == EXDEV || sys_errno == EINVAL || sys_errno == EOPNOTSUPP ||
           sys_errno == ENOSYS || sys_errno == EBADF || sys_errno == EAGAIN ||
           sys_errno == EPERM || sys_errno == EISDIR;
}

int copy_bytes(int from, int to, uint64_t max, uint64_t *ret_copied)
{
    static ssize_t (*const ways[])(struct copy *, size_t) = {by_range, by_sendfile,
                                                             by_splice, by_hand};
    enum { LAST = sizeof ways / sizeof *ways - 1 };
    struct copy copy = {.from = from, .to = to};
    int error = 0;

    *ret_copied = 0;
    for (unsigned way = max <= PIECE ? LAST : 0; !error && *ret_copied < max;) {
        uint64_t left = max - *ret_copied;
        ssize_t got = ways[way](&copy, left < MOST_AT_ONCE ? (size_t)left : MOST_AT_ONCE);
        if (got > 0)
            *ret_copied += (uint64_t)got;
        else if (got < 0 && errno == EINTR)
            continue;
        else if (got == 0 && way < LAST) /* not every file tells its size: read it */
            way = LAST;
        else if (got < 0 && way < LAST && is_unfit(errno))
            way++;
        else if (got < 0)
            error = -errno;
        else
            break;
    }
    free(copy.piece);
    return error;
}
