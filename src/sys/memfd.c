/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/io.h"

int memfd_seal(int fd)
{
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

    return fcntl(fd, F_ADD_SEALS, seals) == 0 ? 0 : -errno;
}

int memfd_of(const char *name, unsigned flags, const void *data, size_t len)
{
    AUTO_FD fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    int error = fd < 0 ? -errno : io_write(fd, data, len);

    if (!error && lseek(fd, 0, SEEK_SET) != 0)
        error = -errno;
    if (!error)
        error = memfd_seal(fd);
    return error ? error : TAKE_FD(fd);
}
