/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"

ssize_t io_pread(int fd, void *data, size_t len, uint64_t offset)
{
    size_t have = 0;

    while (have < len) {
        ssize_t got = pread(fd, (char *)data + have, len - have, (off_t)(offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

int io_write(int fd, const void *data, size_t len)
{
    const char *bytes = data;

    while (len > 0) {
        ssize_t put = write(fd, bytes, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        bytes += put;
        len -= (size_t)put;
    }
    return 0;
}

ssize_t io_read_text(int dir, const char *path, char *text, size_t room)
{
    AUTO_FD fd = openat(dir, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, room - 1);

    text[len > 0 ? len : 0] = '\0';
    return len < 0 ? -errno : len;
}

enum { LINE_MOST = 4096 };

/* Takes the whole lines out of `text`; returns the length of the rest. */
static size_t take_lines(char *text, size_t len, bool is_last,
                         void (*note)(void *cookie, char *line), void *cookie)
{
    char *line = text, *end;

    text[len] = '\0';
    while ((end = memchr(line, '\n', len - (size_t)(line - text)))) {
        *end = '\0';
        note(cookie, line);
        line = end + 1;
    }
    size_t left = len - (size_t)(line - text);
    if (left && (is_last || left == LINE_MOST)) {
        note(cookie, line);
        left = 0;
    }
    memmove(text, line, left);
    return left;
}

int io_each_line(const char *path, void (*note)(void *cookie, char *line), void *cookie)
{
    AUTO_FD fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    char text[LINE_MOST + 1];
    size_t len = 0;
    ssize_t got;

    if (fd < 0)
        return -errno;
    while ((got = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len = take_lines(text, len + (size_t)got, false, note, cookie);
    (void)take_lines(text, len, true, note, cookie);
    return got < 0 ? -errno : 0;
}

int io_write_text(const char *path, const char *text)
{
    AUTO_FD fd = openat(AT_FDCWD, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t len = (ssize_t)strlen(text);

    return fd >= 0 && write(fd, text, (size_t)len) == len ? 0 : -errno;
}

/* If a writer writes to a terminal and closes it during the read, the kernel may return
 * EIO although there is data: read again. */
ssize_t io_read_some(int fd, void *data, size_t room)
{
    ssize_t len = read(fd, data, room);

    return len < 0 && errno == EIO ? read(fd, data, room) : len;
}

void io_free_room(int fd, uint64_t from, uint64_t to)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct stat st;

    if (fstat(fd, &st) != 0)
        return;
    if (from < (uint64_t)st.st_size)
        from = (uint64_t)st.st_size;
    if (from >= to)
        return;
    from = (from + page - 1) / page * page;
    to = (to + page - 1) / page * page;
    if (from < to)
        (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                         (off_t)(to - from));
}

int io_seal(int fd)
{
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

    return fcntl(fd, F_ADD_SEALS, seals) == 0 ? 0 : -errno;
}

int io_memfd(const char *name, unsigned flags, const void *data, size_t len)
{
    AUTO_FD fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    int error = fd < 0 ? -errno : io_write(fd, data, len);

    if (!error && lseek(fd, 0, SEEK_SET) != 0)
        error = -errno;
    if (!error)
        error = io_seal(fd);
    return error ? error : TAKE_FD(fd);
}
