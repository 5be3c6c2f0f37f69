/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/landlock.h"

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

/* The kernel's own header may be older than the kernel: names and sizes of newer ABIs are
 * ours, taken from the kernel's documentation. */
struct ruleset {
    uint64_t handled_access_fs;
    uint64_t handled_access_net; /* ABI 4 */
    uint64_t scoped;             /* ABI 6 */
};

/* The rights of each ABI, all those before it included. */
static const struct {
    uint64_t fs, net, scoped;
    size_t size;
} abis[] = {
    {(1u << 13) - 1, 0, 0, 8},  /* 1 */
    {(1u << 14) - 1, 0, 0, 8},  /* 2: linking and renaming between directories */
    {(1u << 15) - 1, 0, 0, 8},  /* 3: truncate */
    {(1u << 15) - 1, 3, 0, 16}, /* 4: bind and connect of TCP */
    {(1u << 16) - 1, 3, 0, 16}, /* 5: ioctl of devices */
    {(1u << 16) - 1, 3, 3, 24}, /* 6: abstract sockets and signals */
};

int landlock_deny_all(void)
{
    const size_t known = sizeof abis / sizeof *abis;
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1u /* ask the version */);

    if (abi < 0)
        return -errno;
    if (abi == 0)
        return -EOPNOTSUPP;
    size_t newest = (size_t)abi < known ? (size_t)abi - 1 : known - 1;
    struct ruleset ruleset = {abis[newest].fs, abis[newest].net, abis[newest].scoped};
    AUTO_FD fd =
        (int)syscall(SYS_landlock_create_ruleset, &ruleset, abis[newest].size, 0);
    if (fd < 0)
        return -errno;
    return syscall(SYS_landlock_restrict_self, fd, 0) == 0 ? 0 : -errno;
}
