/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/landlock.h"

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

/* The rights of each ABI, all those before it included, from the kernel's documentation.
 */
static const struct landlock_rights abis[] = {
    {(1u << 13) - 1, 0, 0}, /* 1 */
    {(1u << 14) - 1, 0, 0}, /* 2: linking and renaming between directories */
    {(1u << 15) - 1, 0, 0}, /* 3: truncate */
    {(1u << 15) - 1, 3, 0}, /* 4: bind and connect of TCP */
    {(1u << 16) - 1, 3, 0}, /* 5: ioctl of devices */
    {(1u << 16) - 1, 3, 3}, /* 6: abstract sockets and signals */
};

unsigned landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1u /* ask the version */);

    if (abi == 0)
        errno = EOPNOTSUPP;
    return abi > 0 ? (unsigned)abi : 0;
}

const struct landlock_rights *landlock_all(void)
{
    const size_t known = sizeof abis / sizeof *abis;
    size_t abi = landlock_abi();

    if (abi == 0)
        return NULL;
    return &abis[abi < known ? abi - 1 : known - 1];
}

int landlock_create(const struct landlock_rights *rights)
{
    /* A kernel that knows less of it takes the rest if that is zero. */
    long fd = syscall(SYS_landlock_create_ruleset, rights, sizeof *rights, 0);

    return fd < 0 ? -errno : (int)fd;
}

int landlock_deny_all(void)
{
    const struct landlock_rights *all = landlock_all();
    AUTO_FD fd = all ? landlock_create(all) : -errno;

    if (fd < 0)
        return fd;
    return syscall(SYS_landlock_restrict_self, fd, 0) == 0 ? 0 : -errno;
}
