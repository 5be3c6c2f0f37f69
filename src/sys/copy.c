/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
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

/* Errors that only mean that this method does not work for the two files. */
static bool is_unfit(int sys_errno)
{
    return sys_errno == EXDEV || sys_errno == EINVAL || sys_errno == EOPNOTSUPP ||
           sys_errno == ENOSYS || sys_errno == EBADF || sys_errno == EAGAIN ||
           sys_errno == EPERM || sys_errno == EISDIR;
}

static int copy_run(int from, int to, uint64_t max, uint64_t *ret_copied)
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
        else if (got == 0 &&
                 way < LAST) /* some files have size 0 and content: read them */
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

/* --- Holes --- */

/* Whether there are holes to keep: a hostile file may consist of holes only, longer than
 * any disk. *ret_at and *ret_size are of `from`, *ret_to is the position of the other. */
static bool has_holes(int from, int to, off_t *ret_at, off_t *ret_size, off_t *ret_to)
{
    struct stat source, target;

    *ret_at = lseek(from, 0, SEEK_CUR);
    *ret_to = lseek(to, 0, SEEK_CUR);
    if (*ret_at < 0 || *ret_to < 0 || fstat(from, &source) != 0 ||
        fstat(to, &target) != 0 || !S_ISREG(source.st_mode) || !S_ISREG(target.st_mode))
        return false;
    *ret_size = source.st_size;
    return source.st_blocks < source.st_size / 512 && target.st_size <= *ret_to &&
           !(fcntl(to, F_GETFL) & O_APPEND);
}

/* Copies the data between two holes from `at`; returns where it ends, or a negative
 * errno. *ret_end is set there if the file has become shorter. */
static off_t copy_island(int from, int to, off_t at, off_t *ret_end, off_t shift)
{
    off_t end = *ret_end, data = lseek(from, at, SEEK_DATA);
    uint64_t copied;

    if (data < 0 && errno != ENXIO)
        return -errno;
    if (data < 0 || data >= end)
        return end;
    off_t hole = lseek(from, data, SEEK_HOLE);
    if (hole < 0 || hole > end)
        hole = end;
    if (lseek(from, data, SEEK_SET) < 0 || lseek(to, data + shift, SEEK_SET) < 0)
        return -errno;
    int error = copy_run(from, to, (uint64_t)(hole - data), &copied);
    if (!error && data + (off_t)copied < hole)
        *ret_end = data + (off_t)copied;
    return error ? error : data + (off_t)copied;
}

int copy_bytes(int from, int to, uint64_t max, uint64_t *ret_copied)
{
    off_t begin, end, target;

    *ret_copied = 0;
    if (max <= PIECE || !has_holes(from, to, &begin, &end, &target) || end <= begin)
        return copy_run(from, to, max, ret_copied);
    if ((uint64_t)(end - begin) > max)
        end = begin + (off_t)max;
    for (off_t at = begin; at < end;) {
        at = copy_island(from, to, at, &end, target - begin);
        if (at < 0)
            return (int)at;
        *ret_copied = (uint64_t)(at - begin);
    }
    if (lseek(from, end, SEEK_SET) < 0 || lseek(to, end - begin + target, SEEK_SET) < 0 ||
        ftruncate(to, end - begin + target) != 0)
        return -errno;
    return 0;
}
